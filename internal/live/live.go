// Package live keeps a picture of each house that is watched through this server: the rows of threads, sandboxes,
// environments, members and bots that a page or a list shows. A picture is read once, however many watchers there are, and
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
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

const (
	// MaxThreads is the largest [Want.Threads]. This and the next two limits bound the memory of a picture, however large
	// its house is.
	MaxThreads = 200
	// MaxForks is how many forks of a thread a picture holds: one more than a page shows, so that the page knows
	// whether there are others.
	MaxForks = 21
	// MaxChildren is how many children of a thread a picture holds: one more than a page shows.
	MaxChildren = 101
	// MaxMembers is how many members of a house a picture holds.
	MaxMembers = 1000
)

// Want says what to watch besides the house itself.
type Want struct {
	// Threads is how many threads to watch from the start of the house's list, at most [MaxThreads].
	Threads int
	// IDs are threads to watch together with their sandbox, environment, parent, source, forks and children.
	IDs []string
	// Members says whether to watch the members of the house, Bots whether to watch its bots.
	Members, Bots bool
	// Reader is the member whose inbox to watch; empty for none. The inbox includes how far they have read the first
	// hundred threads and the threads of Threads and IDs.
	Reader string
}

// Kind is the kind of a row.
type Kind string

// The kinds.
const (
	House       Kind = "house"
	Thread      Kind = "thread"
	Sandbox     Kind = "sandbox"
	Environment Kind = "environment"
	Member      Kind = "member"
	Bot         Kind = "bot"
	// Inbox is what needs a member and what they have read; its id is the member's.
	Inbox Kind = "inbox"
	// TheRest says where the list of threads continues after the first ones. It has no id.
	TheRest Kind = "rest"
)

// Key identifies a row. For a member and a bot, ID is the agent's id.
type Key struct {
	Kind Kind
	ID   string
}

// Rest is the rest of the list of threads.
type Rest struct {
	// More says whether there are more threads, and After is the position after which they begin.
	More  bool
	After thread.Cursor
}

// Change is the new state of a row.
type Change struct {
	Key Key
	// Row is a *[house.House] without a role, *[thread.Thread], *[sandbox.Sandbox], *[sandbox.Environment],
	// *[house.Member], *[bot.Bot] without its instructions, *[inbox.Inbox], or *[Rest]. It is nil if the row is deleted
	// or no longer wanted. Do not change it, because watchers share it.
	Row any
	// CaughtUp reports, without a row, that everything that existed at the start has been sent. It is sent once.
	CaughtUp bool
}

// Boxes reads sandboxes and environments.
type Boxes interface {
	Sandbox(ctx context.Context, scope db.Scope, id string) (sandbox.Sandbox, error)
	Environment(ctx context.Context, scope db.Scope, id string) (sandbox.Environment, error)
}

// Config configures [Open]. All fields but the last are required.
type Config struct {
	DB      *db.DB
	Log     *stream.Log
	Threads *thread.Threads
	Houses  *house.Houses
	Bots    *bot.Bots
	Inboxes *inbox.Inboxes
	Boxes   Boxes
	Logger  *slog.Logger
	// PresentFor is how long people are shown as present after their server died. Defaults to 30 seconds.
	PresentFor time.Duration
}

// Pictures holds the pictures of one server, so that all watchers of a house share one. It is safe for concurrent use.
type Pictures struct {
	Config
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
	// presence records who has which thread open.
	presence *presence

	mu     sync.Mutex
	houses map[string]*picture
}

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

// Watch sends what is wanted of the scope's house and then its changes. It ends without an error when ctx ends, and
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
			for _, c := range changes {
				if !yield(c, nil) {
					return
				}
			}
			if err != nil {
				yield(Change{}, err)
				return
			}
		}
	}
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

// remove removes a picture that nobody watches, and reports whether it did. It holds the lock of join, so that no watcher
// can join a picture whose goroutine ends.
func (p *Pictures) remove(at *picture) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.watchers.Load() > 0 {
		return false
	}
	delete(p.houses, at.scope.House)
	return true
}

// mark marks a row of a house to be read again.
func (p *Pictures) mark(house string, key Key) {
	p.mu.Lock()
	at := p.houses[house]
	p.mu.Unlock()
	if at != nil {
		at.mark(key)
	}
}

// markAll marks everything to be read again.
func (p *Pictures) markAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.houses {
		at.markAll()
	}
}
