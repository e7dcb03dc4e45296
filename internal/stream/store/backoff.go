package store

import (
	"context"
	"time"
)

// Backoff is the pause between attempts: 5 ms at first, doubling up to one second. The zero value is ready to use.
type Backoff struct{ next time.Duration }

// Wait pauses. It returns false if ctx ended first.
func (b *Backoff) Wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, 5*time.Millisecond), time.Second)
	t := time.NewTimer(b.next)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
