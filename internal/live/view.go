package live

import (
	"fmt"

	"maps"

	"slices"

	"github.com/arbe-dev/arbe/internal/fault"
)

// watch adds a watcher.
func (p *picture) watch(want Want) *watcher {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := fmt.Sprintf("%d %t %t %q %q", want.Threads, want.Members, want.Bots, want.IDs, want.Reader)
	v := p.views[id]
	if v == nil {
		v = &view{want: want, watchers: map[*watcher]struct{}{}}
		p.views[id] = v
		p.wakeUp()
	}
	w := &watcher{view: v, wake: make(chan struct{}, 1), latest: map[Key]any{}}
	v.watchers[w] = struct{}{}
	if v.ready {
		w.begin(v)
	}
	return w
}

// leave removes a watcher.
func (p *picture) leave(w *watcher) {
	defer p.watchers.Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(w.view.watchers, w)
	if len(w.view.watchers) > 0 {
		return
	}
	for id, v := range p.views {
		if v == w.view {
			delete(p.views, id)
		}
	}
}

// publish gives every watcher the rows that changed for it.
func (p *picture) publish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.views {
		if v.behind(p) {
			p.wakeUp() // the view came during this round, so the next one reads for it
			continue
		}
		keys, rows, missing := p.content(v.want)
		had := v.rows
		v.keys, v.rows, v.missing = keys, rows, missing
		if !v.ready {
			v.ready = true
			for w := range v.watchers {
				w.begin(v)
			}
			continue
		}
		order, changed := changesBetween(had, rows, keys)
		if len(order) == 0 {
			continue
		}
		for w := range v.watchers {
			w.put(order, changed)
		}
	}
	p.forget()
}

// changesBetween returns the rows that changed, in the order of keys, and then the rows that are gone, which are nil.
func changesBetween(had, rows map[Key]any, keys []Key) (order []Key, changed map[Key]any) {
	changed = map[Key]any{}
	for _, key := range keys {
		if had[key] != rows[key] {
			order = append(order, key)
			changed[key] = rows[key]
		}
	}
	for key := range had {
		if _, there := rows[key]; !there {
			order = append(order, key)
			changed[key] = nil
		}
	}
	return order, changed
}

// behind reports whether the picture lacks what the view wants.
func (v *view) behind(p *picture) bool {
	if v.ready {
		return false
	}
	for _, id := range v.want.IDs {
		if _, read := p.focused[id]; !read {
			return true
		}
	}
	if v.want.Reader != "" && !p.readers[v.want.Reader].has(v.want) {
		return true
	}
	return v.want.Threads > 0 && p.window.threads == nil || v.want.Members && p.members == nil || v.want.Bots && p.bots == nil
}

// begin gives a new watcher everything that the view has.
func (w *watcher) begin(v *view) {
	if v.missing != "" {
		w.fail(fault.Newf(fault.NotFound, "list the threads with: arbe thread list", "there is no thread %q in this house", v.missing))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order = append(w.order, v.keys...)
	for key, row := range v.rows {
		w.latest[key] = row
	}
	w.caughtUp, w.first = true, len(w.order)
	w.wakeUp()
}

// put adds changes. A change of a row that is still waiting replaces the waiting one, so that only the latest state is
// sent.
func (w *watcher) put(order []Key, rows map[Key]any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range order {
		if _, waits := w.latest[key]; !waits {
			w.order = append(w.order, key)
		}
		w.latest[key] = rows[key]
	}
	w.wakeUp()
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.wakeUp()
}

func (w *watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // a token is already pending
	}
}

// take removes the waiting changes and returns them.
func (w *watcher) take() (changes []Change, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, key := range w.order {
		if w.caughtUp && i == w.first {
			changes = append(changes, Change{CaughtUp: true})
			w.caughtUp = false
		}
		changes = append(changes, Change{Key: key, Row: w.latest[key]})
	}
	if w.caughtUp {
		changes = append(changes, Change{CaughtUp: true})
		w.caughtUp = false
	}
	w.order = nil
	clear(w.latest)
	return changes, w.err
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
		// TheRest rows stay, because content uses another key for them than share does. There are few.
		return !there && key.Kind != TheRest
	})
}

// content returns the rows of a view, in the order in which they are first sent. missing is the first wanted id that
// does not exist.
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
		f.rows(add)
	}
	p.people(want, add)
	return slices.Clip(keys), rows, missing
}

// rows adds the rows of a thread that is watched by id.
func (f *focus) rows(add func(Key, any)) {
	add(Key{Thread, f.thread.ID}, f.thread)
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

// people adds the rows of the wanted members, bots and inbox.
func (p *picture) people(want Want, add func(Key, any)) {
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
}
