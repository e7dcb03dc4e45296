// Package live keeps a picture of each house that is watched through this server: the rows of threads, sandboxes,
// environments, members and bots that a page or a list shows. However many watchers a picture has, it is read once and
// then updated as rows change.
//
// [Pictures.Watch] sends a watcher first everything that it wants and then each change, without a gap. A slow watcher
// gets only the latest state of a row, so nobody waits for it.
//
// Triggers notify of every row that a transaction changed, with its commit. listen.go receives the notification and
// marks the row in its house's picture. picture.go reads marked rows again within the house's scope; window.go keeps
// the first threads of the list, focus.go single threads with all that belongs to them, and read.go the inboxes of those who
// watch. view.go compares what watchers have with the current rows. activity.go updates a thread's row when its log grows. presence.go
// records who has a thread open, apart from the rest.
//
// The rule to remember: a notification is only a hint to read. Lost ones are repaired when the listening connection is
// replaced, and once a minute.
package live

import (
	"context"
	"iter"
	"slices"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/wait"
)

// Open starts to listen for changes. The error is a [fault.Unavailable] if the database refuses the connection; later
// it reconnects by itself. Close the Pictures before the log and the database, because they use both until they are
// closed.
func Open(ctx context.Context, c Config) (*Pictures, error) {
	p := &Pictures{Config: c, houses: map[string]*picture{}, presence: newPresence(c.PresentFor)}
	// Without the caller's cancellation, because ctx is only for Open and may end long before the Pictures.
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	listener := p.listener()
	if err := listener.Connect(ctx); err != nil {
		p.stop()
		return nil, err
	}
	active := newActivity(c.Threads, c.Logger)
	c.Log.OnChange(active.note)
	p.work.Go(func() { active.run(p.ctx) })
	p.work.Go(func() { listener.Run(p.ctx) })
	p.work.Go(func() {
		p.presence.run(p.ctx, c.DB, func(err error) {
			c.Logger.WarnContext(p.ctx, "cannot notify the other servers of who has which thread open", "error", fault.From(err).Detail())
		})
	})
	return p, nil
}

// Close ends all watches with [fault.Unavailable].
func (p *Pictures) Close() {
	p.stop()
	p.work.Wait()
}

// Watch sends the wanted rows of the scope's house, and then their changes. It ends without an error when ctx ends, and
// with [fault.Unavailable] when the Pictures are closed. If a thread of [Want.IDs] does not exist at the start, the
// error is a [fault.NotFound]. The caller must have checked that the scope's agent may read the house.
func (p *Pictures) Watch(ctx context.Context, scope db.Scope, want Want) iter.Seq2[Change, error] {
	want.IDs = slices.Compact(slices.Sorted(slices.Values(want.IDs)))
	want.Threads = min(want.Threads, MaxThreads)
	return func(yield func(Change, error) bool) {
		if p.ctx.Err() != nil {
			yield(Change{}, stopping())
			return
		}
		picture := p.join(scope.House)
		w := picture.watch(want)
		defer picture.leave(w)
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.ctx.Done():
				yield(Change{}, stopping())
				return
			case <-w.wake:
			}
			changes, err := w.take()
			if !yieldAll(yield, changes, err) {
				return
			}
		}
	}
}

// yieldAll yields changes, and then an error. It reports whether more may follow.
func yieldAll(yield func(Change, error) bool, changes []Change, err error) bool {
	for _, c := range changes {
		if !yield(c, nil) {
			return false
		}
	}
	if err != nil {
		yield(Change{}, err)
	}
	return err == nil
}

func stopping() error {
	return fault.New(fault.Unavailable, "the server is stopping", "connect again in a moment").WithReason(fault.ServerStopping)
}

// Len returns how many houses have a picture.
func (p *Pictures) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.houses)
}

// join finds or creates a house's picture and adds a watcher to it.
func (p *Pictures) join(house string) *picture {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.houses[house]
	if at == nil {
		at = newPicture(p, house)
		p.houses[house] = at // before anything is read, so that changes made meanwhile are marked
		p.work.Go(at.run)
	}
	at.watchers.Add(1)
	return at
}

// Present shows the scope's agent as present in a thread until ctx ends. It yields the sorted ids of all present agents, first at once and
// then after each change. It ends without an error when ctx ends, and with [fault.Unavailable] when the Pictures are closed. The caller
// must have checked that the agent may read the thread and may see its other readers.
func (p *Pictures) Present(ctx context.Context, scope db.Scope, thread string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		at := threadRef{scope.House, thread}
		changed := p.presence.enter(at, scope.Agent)
		defer p.presence.leave(at, scope.Agent, changed)
		var shown []string
		for first := true; ; first = false {
			if now := p.presence.in(at); first || !slices.Equal(now, shown) {
				if shown = now; !yield(now, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-p.ctx.Done():
				yield(nil, stopping())
				return
			case <-changed:
				if !wait.For(ctx, settleFor) { // so that many arrivals and departures cost each watcher little
					return
				}
			}
		}
	}
}
