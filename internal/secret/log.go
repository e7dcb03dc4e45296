package secret

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

const (
	// maxKnown limits the values of a [Known], in bytes. Anybody can create a house and fill it.
	maxKnown = 2 << 20
	// batchSize is how many bytes of values share a redactor. A new value rebuilds only the redactor of its batch.
	batchSize = 64 << 10
)

// Known holds the values that this process has used recently, of all houses. It redacts the server's own log, which
// belongs to no single house. The zero Known is empty; a nil one stays empty. It is safe for concurrent use.
type Known struct {
	mu      sync.Mutex
	batches []*batch // oldest first
	size    int
}

type batch struct {
	seen     map[[sha256.Size]byte]bool
	values   [][]byte
	size     int
	redactor *Redactor
	stale    bool
}

// Add adds a value.
func (k *Known) Add(value []byte) {
	if k == nil || !Redactable(value) {
		return
	}
	sum := sha256.Sum256(value)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range k.batches {
		if b.seen[sum] {
			return
		}
	}
	if n := len(k.batches); n == 0 || k.batches[n-1].size >= batchSize {
		k.batches = append(k.batches, &batch{seen: map[[sha256.Size]byte]bool{}})
	}
	last := k.batches[len(k.batches)-1]
	last.seen[sum], last.stale = true, true
	last.values = append(last.values, bytes.Clone(value))
	last.size += len(value)
	for k.size += len(value); k.size > maxKnown; k.batches = k.batches[1:] {
		k.size -= k.batches[0].size // values that are still in use are soon added again
	}
}

// Redactors returns redactors that together remove all values.
func (k *Known) Redactors() (all []*Redactor) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range k.batches {
		if b.stale {
			b.redactor, b.stale = NewRedactor(b.values...), false
		}
		if b.redactor != nil {
			all = append(all, b.redactor)
		}
	}
	return all
}

// several applies redactors one after the other.
type several []*Redactor

func (all several) String(text string) string {
	for _, r := range all {
		text = r.String(text)
	}
	return text
}

func (all several) Bytes(p []byte) []byte {
	for _, r := range all {
		p = r.Bytes(p)
	}
	return p
}

// LogHandler returns a handler that removes known values from the lines of a log: from the message, and from the text
// of all attributes, whatever their type. Names of attributes stay as they are, because the program wrote them.
func LogHandler(next slog.Handler, known *Known) slog.Handler { return logHandler{next, known} }

type logHandler struct {
	slog.Handler
	known *Known
}

func (h logHandler) Handle(ctx context.Context, record slog.Record) error {
	r := several(h.known.Redactors())
	if len(r) == 0 {
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
	if r := several(h.known.Redactors()); len(r) > 0 {
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

func attr(r several, a slog.Attr) slog.Attr {
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
		// A handler formats unknown types in its own way, so they stay as they are unless their text contains a value.
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
	return slog.Attr{Key: a.Key, Value: v}
}
