// Package logging writes a server's log. Each line says what it is about: the request, the house, the thread, the
// command. The code that knows one of these puts it into the context once ([With], [Add]); the logger of [New] adds
// what the context holds to every line that is written with a context, so that no call site repeats it.
//
// The rule to remember: ids, codes and durations go into the log; secrets and what people wrote do not.
package logging

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
)

// The formats of a log.
const (
	Text = "text"
	JSON = "json"
)

// RequestKey is the key of a request's id.
const RequestKey = "request"

// New returns a logger that writes lines of one format, at or above a level.
func New(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == JSON {
		return slog.New(handler{slog.NewJSONHandler(w, options)})
	}
	return slog.New(handler{slog.NewTextHandler(w, options)})
}

// subject holds the attributes of a context's lines. It is safe for concurrent use, because goroutines of one request
// share its context.
type subject struct {
	mu    sync.Mutex
	attrs []slog.Attr
}

type subjectKey struct{}

func of(ctx context.Context) *subject {
	s, _ := ctx.Value(subjectKey{}).(*subject)
	return s
}

// With returns a context whose lines also have attrs. An attribute replaces an earlier one with the same key. The new
// context has a copy of the earlier attributes, so that a later [Add] to it does not change the lines of ctx.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	s := &subject{}
	if outer := of(ctx); outer != nil {
		s.attrs = outer.all()
	}
	s.set(attrs)
	return context.WithValue(ctx, subjectKey{}, s)
}

// Add adds attrs to the context that [With] returned, instead of to a new one, so that the caller's lines have them
// too: the line about the end of a request says which thread it was about. Without such a context it does nothing.
func Add(ctx context.Context, attrs ...slog.Attr) {
	if s := of(ctx); s != nil {
		s.set(attrs)
	}
}

// Value returns the text of an attribute of the context; empty if there is none.
func Value(ctx context.Context, key string) string {
	s := of(ctx)
	if s == nil {
		return ""
	}
	for _, a := range s.all() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

func (s *subject) all() []slog.Attr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.attrs)
}

func (s *subject) set(attrs []slog.Attr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attrs {
		if i := slices.IndexFunc(s.attrs, func(b slog.Attr) bool { return b.Key == a.Key }); i >= 0 {
			s.attrs[i] = a
		} else {
			s.attrs = append(s.attrs, a)
		}
	}
}

// handler adds the attributes of the context to each line, except those whose key the line already has: otherwise the
// key would be in the line twice.
type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	s := of(ctx)
	if s == nil {
		return h.Handler.Handle(ctx, r)
	}
	var said []string
	r.Attrs(func(a slog.Attr) bool { said = append(said, a.Key); return true })
	r = r.Clone()
	for _, a := range s.all() {
		if !slices.Contains(said, a.Key) {
			r.AddAttrs(a)
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
