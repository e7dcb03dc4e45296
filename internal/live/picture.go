package live

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/wait"
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

// run updates the picture until nobody watches it or the Pictures are closed.
func (p *picture) run() {
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	pause := minRetryPause
	for {
		select {
		case <-p.of.ctx.Done():
			return
		case <-refresh.C:
			if p.watchers.Load() == 0 && p.of.remove(p) {
				return
			}
			p.markAll()
			continue
		case <-p.wake:
		}
		if p.watchers.Load() == 0 {
			p.markAllLater()
			continue
		}
		r := p.take()
		if err := p.read(r); err != nil {
			p.putBack(r)
			p.wakeUp()
			if p.of.ctx.Err() == nil {
				p.of.Logger.WarnContext(p.of.ctx, "the live view of a house cannot be updated; trying again", "house", p.scope.House, "error", fault.From(err).Detail())
			}
			wait.For(p.of.ctx, pause)
			pause = min(2*pause, maxRetryPause)
			continue
		}
		pause = minRetryPause
		p.publish()
		wait.For(p.of.ctx, roundEvery)
	}
}

// markAllLater marks everything without waking the goroutine: nobody watches now, and the changes meanwhile are not read,
// so the next watcher needs a complete round.
func (p *picture) markAllLater() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = true
}

// read updates the picture.
func (p *picture) read(r *round) error {
	ctx, cancel := context.WithTimeout(p.of.ctx, readTimeout)
	defer cancel()
	if p.house == nil || r.isMarked(House, p.scope.House) {
		at, err := p.of.Houses.Get(ctx, p.scope)
		if err != nil {
			return err
		}
		at.Role = "" // it depends on the member who asks, but all members share this row
		p.house = share(p, Key{House, at.ID}, &at)
	}
	if err := p.readMarked(ctx, r); err != nil {
		return err
	}
	if err := p.window.read(ctx, p, r); err != nil {
		return err
	}
	if err := p.readFocused(ctx, r); err != nil {
		return err
	}
	if err := p.readMembers(ctx, r); err != nil {
		return err
	}
	if err := p.readBots(ctx, r); err != nil {
		return err
	}
	return p.readInboxes(ctx, r)
}

// readMarked reads the marked threads. If everything is marked, they are read as parts of the picture instead of one by
// one.
func (p *picture) readMarked(ctx context.Context, r *round) error {
	var ids []string
	for key := range r.marked {
		if key.Kind == Thread && !r.all {
			ids = append(ids, key.ID)
			r.threads[key.ID] = nil
		}
	}
	return p.readThreads(ctx, ids, r.threads)
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
		marked = marked || key.Kind == Member || key.Kind == Bot // which has the handle
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
		marked = marked || key.Kind == Bot || key.Kind == Member // which has the bot's name
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

// forget drops rows that no view shows. Otherwise they would stay in memory as long as the house is watched.
func (p *picture) forget() {
	used := map[Key]struct{}{}
	for _, v := range p.views {
		for key := range v.rows {
			used[key] = struct{}{}
		}
	}
	maps.DeleteFunc(p.rows, func(key Key, _ any) bool {
		_, there := used[key]
		// The rest stays, because content shows it under another key than share has it. There are few.
		return !there && key.Kind != TheRest
	})
}

// content returns what a view shows, in the order in which it is first sent. missing is the first of its ids that does
// not exist.
func (p *picture) content(want Want) (keys []Key, rows map[Key]any, missing string) {
	rows = map[Key]any{}
	add := func(key Key, row any) {
		if _, there := rows[key]; !there {
			keys = append(keys, key)
			rows[key] = row
		}
	}
	add(Key{House, p.house.ID}, p.house)
	if want.Threads > 0 {
		for _, t := range p.window.first(want.Threads) {
			add(Key{Thread, t.ID}, t)
		}
		add(Key{Kind: TheRest}, p.window.rest(p, want.Threads))
	}
	for _, id := range want.IDs {
		f := p.focused[id]
		if f == nil || f.thread == nil {
			missing = id
			continue
		}
		add(Key{Thread, id}, f.thread)
		if f.box != nil {
			add(Key{Sandbox, f.box.ID}, f.box)
		}
		if f.environment != nil {
			add(Key{Environment, f.environment.ID}, f.environment)
		}
		if f.parent != nil {
			add(Key{Thread, f.parent.ID}, f.parent)
		}
		if f.source != nil {
			add(Key{Thread, f.source.ID}, f.source)
		}
		for _, fork := range f.forks {
			add(Key{Thread, fork.ID}, fork)
		}
		for _, child := range f.children {
			add(Key{Thread, child.ID}, child)
		}
	}
	if want.Members {
		for _, m := range p.members {
			add(Key{Member, m.Agent.ID}, m)
		}
	}
	if want.Bots {
		for _, b := range p.bots {
			add(Key{Bot, b.ID}, b)
		}
	}
	if at := p.readers[want.Reader]; at != nil {
		add(Key{Inbox, want.Reader}, at.inbox)
	}
	return slices.Clip(keys), rows, missing
}

// The pauses before a failed step is repeated. Each is twice the previous one, to relieve a database in trouble.
const (
	minRetryPause = 50 * time.Millisecond
	maxRetryPause = 5 * time.Second
)
