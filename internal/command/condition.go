package command

import (
	"context"
	"sync"
	"time"
)

// absentAfter is the time without a call after which a reader or writer counts as gone. It is long, because a client whose
// connection broke needs time to connect again.
const absentAfter = time.Minute

// presence tracks whether someone calls. Its owner's lock guards it.
type presence struct {
	calls int // calls in progress
	last  time.Time
}

func (p *presence) begin() { p.calls++ }

func (p *presence) end() { p.calls--; p.last = time.Now() }

// absentIn returns the time that remains until nobody has called for limit; zero or less if it has passed.
func (p *presence) absentIn(limit time.Duration) time.Duration {
	if p.calls > 0 {
		return limit
	}
	return time.Until(p.last.Add(limit))
}

// condition is a lock with notification of changes. It is not a [sync.Cond], because a wait must also end after a time or
// with a context.
type condition struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
}

func newCondition() condition { return condition{changed: make(chan struct{})} }

// notify reports a change. Callers hold mu.
func (c *condition) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// sleep releases mu and waits for a change, at most for the given time. If ctx ends, the error is its cause.
func (c *condition) sleep(ctx context.Context, most time.Duration) error {
	changed := c.changed
	c.mu.Unlock()
	defer c.mu.Lock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
