package live

import (
	"fmt"
	"sync"

	"github.com/arbe-dev/arbe/internal/fault"
)

// view is what was sent to watchers with equal wants. They share it, so that changes are found once for all of them.
// The picture's lock guards it.
type view struct {
	want     Want
	watchers map[*watcher]struct{}
	// ready reports that rows are up to date; until then its watchers wait. missing is a wanted thread id that does not
	// exist.
	ready   bool
	missing string
	keys    []Key
	rows    map[Key]any
}

// watcher is one call of Watch. Changes to be sent wait in it, each row only in its latest state, so that a slow watcher
// cannot take more memory than the rows that it wants.
type watcher struct {
	view *view
	wake chan struct{}

	mu     sync.Mutex
	order  []Key
	latest map[Key]any
	// caughtUp asks to send CaughtUp after the first keys of order, which are those of the start: later changes must
	// not delay it.
	caughtUp bool
	first    int
	err      error
}

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
			p.wakeUp() // the next round reads for it, because it came while the picture was read
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
		changed := map[Key]any{}
		var order []Key
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
		if len(order) == 0 {
			continue
		}
		for w := range v.watchers {
			w.put(order, changed)
		}
	}
	p.forget()
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
