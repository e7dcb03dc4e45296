package live

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/wait"
)

const (
	// touchEvery is the shortest time between two touches of a thread's row, so that a busy log does not cause a write for
	// every entry. The first touch after a pause is immediate.
	touchEvery = time.Second
	// touchRetry is the pause before a locked thread is tried again.
	touchRetry = 100 * time.Millisecond
	// maxTouched is how many threads one transaction touches, so that it holds the locks of their rows for a short time
	// only.
	maxTouched = 500
)

// activity updates the last activity of threads as their logs grow, which changes their place in lists and notifies
// watchers of the changed rows. Every server does this for every log that it is notified of, because touching a thread
// again is cheap and a server may die.
type activity struct {
	threads *thread.Threads
	logger  *slog.Logger

	mu sync.Mutex
	// due is when to touch the thread of a stream. quiet is when a thread that was just touched may be touched again.
	due, quiet map[int64]time.Time
	// repair reports that notifications may have been lost, so that all threads must be touched.
	repair bool
	wake   chan struct{}
}

func newActivity(threads *thread.Threads, logger *slog.Logger) *activity {
	return &activity{threads: threads, logger: logger, due: map[int64]time.Time{}, quiet: map[int64]time.Time{}, repair: true, wake: make(chan struct{}, 1)}
}

// note records a hint from the log.
func (a *activity) note(streams []int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.repair = a.repair || streams == nil
	for _, s := range streams {
		if _, asked := a.due[s]; !asked {
			a.due[s] = a.quiet[s] // the zero time means now
		}
	}
	select {
	case a.wake <- struct{}{}:
	default: // a token is already pending
	}
}

// run touches threads until ctx ends.
func (a *activity) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-timer.C:
		}
		if err := a.round(ctx); err != nil && ctx.Err() == nil {
			a.logger.WarnContext(ctx, "the last activity of threads cannot be recorded; trying again", "error", fault.From(err).Detail())
			wait.For(ctx, touchEvery)
		}
		if next, ok := a.next(); ok {
			timer.Reset(time.Until(next))
		}
	}
}

// round touches the threads that are due.
func (a *activity) round(ctx context.Context) error {
	streams, repair := a.take(time.Now())
	for some := range slices.Chunk(streams, maxTouched) {
		again, err := a.threads.Touch(ctx, some)
		if err != nil {
			// All of them, because touching a thread again is cheap.
			a.put(streams, time.Now())
			return err
		}
		a.put(again, time.Now().Add(touchRetry))
	}
	if !repair {
		return nil
	}
	err := a.threads.RepairActivity(ctx)
	if err != nil {
		a.note(nil)
	}
	return err
}

// take returns the streams that are due, and whether to touch all threads.
func (a *activity) take(now time.Time) (streams []int64, repair bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s, until := range a.quiet {
		if now.After(until) {
			delete(a.quiet, s)
		}
	}
	for s, at := range a.due {
		if !at.After(now) {
			streams = append(streams, s)
			delete(a.due, s)
			a.quiet[s] = now.Add(touchEvery)
		}
	}
	repair, a.repair = a.repair, false
	return streams, repair
}

// put schedules touches of streams.
func (a *activity) put(streams []int64, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range streams {
		a.due[s] = at
	}
}

// next returns when the next touch is due. It is a second from now if only a repair is left, so that a failed one is
// repeated.
func (a *activity) next() (at time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, due := range a.due {
		if !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	if a.repair && !ok {
		return time.Now().Add(touchEvery), true
	}
	return at, ok
}
