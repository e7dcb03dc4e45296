package command

import (
	"context"
	"slices"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Signal is the signal with which a command is cancelled.
type Signal string

// The signals, the weakest first. A cancelled command gets the requested one. If it has not ended after
// [entry.CancelGrace], it gets the next one, because programs may ignore the weaker ones.
const (
	Interrupt Signal = "SIGINT"  // to its process group, as from Ctrl-C at a terminal
	Terminate Signal = "SIGTERM" // to everything that it started
	Kill      Signal = "SIGKILL" // to everything that it started
)

var signals = []Signal{Interrupt, Terminate, Kill}

// cancelPoll is how often the worker of a cancelled command checks for a stronger signal. It polls because the queue reports
// only the first cancellation of a job.
const cancelPoll = 250 * time.Millisecond

// escalate sends a cancelled command one signal after the other until ctx ends, which it does when the command has ended.
// requested returns the strongest signal that was requested so far. Before each signal it calls sent.
func (l launched) escalate(ctx context.Context, requested func() Signal, sent func(Signal)) error {
	last := Signal("")
	for began := time.Now(); ; {
		due := signals[min(int(time.Since(began)/entry.CancelGrace), len(signals)-1)]
		next := stronger(due, requested())
		if next != last {
			if last = next; ctx.Err() != nil {
				return nil
			}
			began = time.Now().Add(-time.Duration(next.strength()) * entry.CancelGrace)
			sent(next)
			if next == Kill {
				return l.end(ctx, 0)
			}
			if err := l.send(ctx, next); err != nil && ctx.Err() == nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(cancelPoll):
		}
	}
}

// send sends a signal that the command may handle.
func (l launched) send(ctx context.Context, s Signal) error {
	if s == Interrupt {
		return l.interrupt(ctx)
	}
	// End also kills the command after the grace, in case the loop does not get there in time. It runs in a goroutine,
	// because it returns only when the command has ended, and a stronger signal may come before.
	go func() { _ = l.end(ctx, entry.CancelGrace) }()
	return nil
}

// stronger returns the stronger of two signals.
func stronger(a, b Signal) Signal {
	if a.strength() >= b.strength() {
		return a
	}
	return b
}

// strength orders signals. The empty one is the weakest.
func (s Signal) strength() int { return slices.Index(signals, s) }
