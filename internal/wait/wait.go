// Package wait pauses work that is repeated.
package wait

import (
	"context"
	"time"
)

// For pauses for d, and returns true. If ctx ends first, it returns false at once. A pause of zero or less returns true
// unless ctx has ended.
func For(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
