package secret

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// maxKnown limits how many values a [Known] holds.
const maxKnown = 10_000

// Known are all values that this process has seen, whoever they belong to. It redacts what belongs to no single house:
// the server's own log. The zero Known is empty; a nil one stays empty. It is safe for concurrent use.
type Known struct {
	mu     sync.Mutex
	seen   map[[sha256.Size]byte]bool
	values [][]byte
	made   *Redactor
	stale  bool
}

// Add adds a value.
func (k *Known) Add(value []byte) {
	if k == nil || len(value) < MinRedacted {
		return
	}
	sum := sha256.Sum256(value)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen[sum] {
		return
	}
	if k.seen == nil || len(k.values) >= maxKnown {
		k.seen, k.values = map[[sha256.Size]byte]bool{}, nil // those that are still used are soon added again
	}
	k.seen[sum], k.stale = true, true
	k.values = append(k.values, append([]byte(nil), value...))
}

// Redactor returns the redactor of all values.
func (k *Known) Redactor() *Redactor {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stale {
		k.made, k.stale = NewRedactor(k.values...), false
	}
	return k.made
}

// LogHandler returns a handler that removes known values from the lines of a log: from the message, and from the text
// of all attributes, whatever their type.
func LogHandler(next slog.Handler, known *Known) slog.Handler { return logHandler{next, known} }

type logHandler struct {
	slog.Handler
	known *Known
}

func (h logHandler) Handle(ctx context.Context, record slog.Record) error {
	r := h.known.Redactor()
	if r == nil {
		return h.Handler.Handle(ctx, record)
	}
	clean := slog.NewRecord(record.Time, record.Level, r.String(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(attr(r, a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs redacts with the values that are known now, because the inner handler formats the attributes now.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if r := h.known.Redactor(); r != nil {
		clean := make([]slog.Attr, len(attrs))
		for i, a := range attrs {
			clean[i] = attr(r, a)
		}
		attrs = clean
	}
	return logHandler{h.Handler.WithAttrs(attrs), h.known}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name), h.known}
}

func attr(r *Redactor, a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		v = slog.StringValue(r.String(v.String()))
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i, inner := range group {
			clean[i] = attr(r, inner)
		}
		v = slog.GroupValue(clean...)
	case slog.KindAny:
		// A handler formats an unknown type in its own way. It is left alone unless its text has a value.
		switch any := v.Any().(type) {
		case error:
			if clean := r.String(any.Error()); clean != any.Error() {
				v = slog.AnyValue(errors.New(clean))
			}
		case []byte:
			v = slog.AnyValue(r.Bytes(any))
		default:
			text := fmt.Sprintf("%+v", any)
			if clean := r.String(text); clean != text {
				v = slog.StringValue(clean)
			}
		}
	}
	return slog.Attr{Key: r.String(a.Key), Value: v}
}
