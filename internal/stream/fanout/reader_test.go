package fanout

import (
	"context"
	"errors"
	"testing"

	"github.com/arbe-dev/arbe/internal/stream/store"
)

// Every read of a log waits for one of the few slots, so that many topics at once leave connections for appends.
func TestEveryReadWaitsForASlot(t *testing.T) {
	t.Parallel()
	r := &reader{slots: make(chan struct{}, 1)} // without a store, so that a read that does not wait panics
	r.slots <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.after(ctx, store.Ref{}, 1, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a read of entries ends with %v", err)
	}
	if _, err := r.has(ctx, store.Ref{}, 1, []string{"e1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a lookup of an entry ends with %v", err)
	}
}
