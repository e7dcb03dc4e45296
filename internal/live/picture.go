package live

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"log/slog"

	"slices"

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
	// refreshEvery is the longest delay of a change whose notification is lost, and the shortest time for which an
	// unwatched picture is kept.
	refreshEvery = time.Minute
	// roundEvery is the pause between two rounds, so that changes in quick succession are read together.
	roundEvery = 5 * time.Millisecond
	// readTimeout limits one round. Otherwise a database that never answers would stop all later ones.
	readTimeout = 30 * time.Second
	// maxMarked is how many marked rows are kept. If more are marked, everything is read instead of single rows.
	maxMarked = 500
)

// picture is the picture of one house. Its own goroutine alone uses the rows, which therefore need no lock. The marks
// and the views are shared with listeners and watchers, under mu.
type picture struct {
	of       *Pictures
	scope    db.Scope
	watchers atomic.Int64

	mu sync.Mutex
	// marked are the rows to read again. all means all of them.
	marked map[Key]struct{}
	all    bool
	wake   chan struct{}
	views  map[string]*view

	house   *house.House
	window  window
	focused map[string]*focus
	members []*house.Member // nil if not read
	bots    []*bot.Bot      // nil if not read
	readers map[string]*reader
	// rows holds every row of the picture, so that a row that is read again unchanged keeps its pointer: publish compares
	// pointers.
	rows map[Key]any
}

func newPicture(of *Pictures, houseID string) *picture {
	return &picture{
		of: of, scope: db.Scope{House: houseID}, marked: map[Key]struct{}{}, all: true, wake: make(chan struct{}, 1),
		views: map[string]*view{}, focused: map[string]*focus{}, readers: map[string]*reader{}, rows: map[Key]any{},
	}
}

func (p *picture) mark(key Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.marked[key] = struct{}{}; len(p.marked) > maxMarked {
		clear(p.marked)
		p.all = true
	}
	p.wakeUp()
}

func (p *picture) markAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = true
	p.wakeUp()
}

// wakeUp wakes the picture's goroutine, which then checks the marks and the views.
func (p *picture) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default: // a token is already pending
	}
}

// round is one update of the picture.
type round struct {
	marked map[Key]struct{}
	all    bool
	// wanted is the union of what all views want.
	wanted Want
	// readers are the members whose inboxes are wanted, and the threads whose readings each wants.
	readers map[string]wantedReadings
	// threads are the marked threads as they are now; nil for a deleted one.
	threads map[string]*thread.Thread
	// forked are the completely read threads that have forks, and parents those that have children.
	forked, parents map[string]bool
	// read holds the sandboxes and environments read in this round, because many threads share them.
	read map[Key]any
}

// isMarked reports whether a row must be read again.
func (r *round) isMarked(kind Kind, id string) bool {
	_, marked := r.marked[Key{kind, id}]
	return r.all || marked
}

// take starts a round with everything that is marked.
func (p *picture) take() *round {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &round{marked: p.marked, all: p.all, threads: map[string]*thread.Thread{}, forked: map[string]bool{}, parents: map[string]bool{}, read: map[Key]any{}, readers: map[string]wantedReadings{}}
	p.marked, p.all = map[Key]struct{}{}, false
	for _, v := range p.views {
		r.wanted.Threads = max(r.wanted.Threads, v.want.Threads)
		r.wanted.IDs = append(r.wanted.IDs, v.want.IDs...)
		r.wanted.Members = r.wanted.Members || v.want.Members
		r.wanted.Bots = r.wanted.Bots || v.want.Bots
		if reader := v.want.Reader; reader != "" {
			r.readers[reader] = r.readers[reader].with(v.want)
			r.wanted.Threads = max(r.wanted.Threads, readingsOf)
		}
	}
	return r
}

// putBack returns the marks of a failed round to the next one. Otherwise the changes would be missed until the next
// refresh.
func (p *picture) putBack(r *round) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.marked, r.marked)
	p.all = p.all || r.all
}

// readThreads reads threads into a map. It leaves deleted ones unchanged.
func (p *picture) readThreads(ctx context.Context, ids []string, into map[string]*thread.Thread) error {
	if len(ids) == 0 {
		return nil
	}
	found, err := p.of.Threads.ByIDs(ctx, p.scope, ids)
	for _, t := range found {
		into[t.ID] = share(p, Key{Thread, t.ID}, &t)
	}
	return err
}

// readMembers reads the members of the house, if a view wants them.
func (p *picture) readMembers(ctx context.Context, r *round) error {
	marked := r.all || p.members == nil
	for key := range r.marked {
		marked = marked || key.Kind == Member || key.Kind == Bot // a bot's row has the handle
	}
	if !r.wanted.Members {
		if marked {
			p.members = nil // not kept, because they would be outdated when a view wants them
		}
		return nil
	}
	if !marked {
		return nil
	}
	list, err := p.of.Houses.Members(ctx, p.scope, db.Cursor{}, MaxMembers)
	if err != nil {
		return err
	}
	p.members = []*house.Member{}
	for _, m := range list {
		p.members = append(p.members, share(p, Key{Member, m.Agent.ID}, &m))
	}
	return nil
}

// readBots reads the bots of the house, if a view wants them.
func (p *picture) readBots(ctx context.Context, r *round) error {
	marked := r.all || p.bots == nil
	for key := range r.marked {
		marked = marked || key.Kind == Bot || key.Kind == Member // a member's row has the bot's name
	}
	if !marked {
		return nil
	}
	if !r.wanted.Bots {
		p.bots = nil // not kept, because they would be outdated when a view wants them
		return nil
	}
	list, err := p.of.Bots.List(ctx, p.scope, "", bot.MaxBots)
	if err != nil {
		return err
	}
	p.bots = []*bot.Bot{}
	for _, b := range list {
		b.Instructions = "" // they may be long, and lists do not show them
		p.bots = append(p.bots, share(p, Key{Bot, b.ID}, &b))
	}
	return nil
}

// share returns the picture's copy of a row if the row has not changed; otherwise row becomes the picture's copy.
func share[Row any](p *picture, key Key, row *Row) *Row {
	if had, ok := p.rows[key].(*Row); ok && reflect.DeepEqual(had, row) {
		return had
	}
	p.rows[key] = row
	return row
}

// readOne reads one row, once per round. It returns nil for a deleted one.
func readOne[Row any](ctx context.Context, p *picture, r *round, key Key, get func(context.Context, db.Scope, string) (Row, error)) (*Row, error) {
	if row, read := r.read[key]; read {
		return row.(*Row), nil
	}
	var found *Row
	row, err := get(ctx, p.scope, key.ID)
	switch {
	case err == nil:
		found = share(p, key, &row)
	case fault.CodeOf(err) != fault.NotFound:
		return nil, err
	}
	r.read[key] = found
	return found, nil
}

// The pauses before a failed step is repeated. Each is twice the previous one, to relieve a database in trouble.
const (
	minRetryPause = 50 * time.Millisecond
	maxRetryPause = 5 * time.Second
)

// Boxes reads the sandboxes and environments of houses.
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

// view holds the rows that were sent to watchers with equal wants. They share it, so that changes are found once for
// all of them. The picture's lock guards it.
type view struct {
	want     Want
	watchers map[*watcher]struct{}
	// ready reports that rows are up to date; until then its watchers wait. missing is the id of a wanted thread that does
	// not exist.
	ready   bool
	missing string
	keys    []Key
	rows    map[Key]any
}

// watcher is one call of Watch. Unsent changes wait in it, only the latest of each row, so that a slow watcher takes no
// more memory than the rows that it wants.
type watcher struct {
	view *view
	wake chan struct{}

	mu     sync.Mutex
	order  []Key
	latest map[Key]any
	// caughtUp asks to send CaughtUp after the first keys of order, the rows that existed at the start, so that later
	// changes do not delay it.
	caughtUp bool
	first    int
	err      error
}

// reader is a member whose inbox is watched.
type reader struct {
	inbox *inbox.Inbox
	// counted is when the inbox was last read, and again reports that another read is scheduled.
	counted time.Time
	again   bool
	want    wantedReadings
}

// wantedReadings are the threads whose readings a member watches: the first ones of the list, and some by their ids.
type wantedReadings struct {
	first int
	ids   []string
}

// readingsOf is how many threads from the start of the house's list a watched inbox has readings of, at least.
const readingsOf = 100

func (w wantedReadings) with(want Want) wantedReadings {
	ids := slices.Concat(w.ids, want.IDs)
	slices.Sort(ids)
	return wantedReadings{max(w.first, want.Threads, readingsOf), slices.Compact(ids)}
}

// focus is one thread with its sandbox, environment, parent, source, forks and children; each is nil if it does not
// exist.
type focus struct {
	thread      *thread.Thread
	parent      *thread.Thread
	source      *thread.Thread
	forks       []*thread.Thread
	children    []*thread.Thread
	box         *sandbox.Sandbox
	environment *sandbox.Environment
}

// window is the first threads of a house's list. It takes the time and memory of one page, however many threads the
// house has.
type window struct {
	// threads are in list order; nil if not read.
	threads []*thread.Thread
	// more reports that the list continues after them.
	more bool
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
