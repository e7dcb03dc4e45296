package live

import (
	"context"
	"slices"
	"strconv"

	"github.com/arbe-dev/arbe/internal/thread"
)

// kept is how many threads a window reads, more than any view wants, so that some can leave before it must be read
// again.
const kept = MaxThreads + 50

// read updates the window, if a view wants it.
func (w *window) read(ctx context.Context, p *picture, r *round) error {
	switch {
	case r.wanted.Threads == 0:
		if r.all || len(r.threads) > 0 {
			w.threads = nil // not kept, because it would be outdated when a view wants it
		}
		return nil
	case w.threads != nil && !r.all:
		for id, t := range r.threads {
			w.put(id, t)
		}
		if !w.more || len(w.threads) >= MaxThreads {
			return nil
		}
	}
	list, err := p.of.Threads.List(ctx, p.scope, thread.Filter{Limit: kept + 1, Shared: true})
	if err != nil {
		return err
	}
	w.more = len(list) > kept
	w.threads = []*thread.Thread{}
	for _, t := range list[:min(len(list), kept)] {
		w.threads = append(w.threads, share(p, Key{Thread, t.ID}, &t))
	}
	return nil
}

// put moves a thread to its place, or removes it if it was deleted.
func (w *window) put(id string, t *thread.Thread) {
	w.threads = slices.DeleteFunc(w.threads, func(had *thread.Thread) bool { return had.ID == id })
	if t == nil || len(t.People) > 0 { // direct messages are listed only for their people, in their inboxes
		return
	}
	at, _ := slices.BinarySearchFunc(w.threads, t, func(a, b *thread.Thread) int { return a.Cursor().Compare(b.Cursor()) })
	if at == len(w.threads) && w.more {
		return // it is after the window
	}
	w.threads = slices.Insert(w.threads, at, t)
	if len(w.threads) > kept {
		w.threads, w.more = w.threads[:kept], true
	}
}

// first returns the first n threads.
func (w *window) first(n int) []*thread.Thread { return w.threads[:min(n, len(w.threads))] }

// rest returns where the list continues after the first n threads.
func (w *window) rest(p *picture, n int) *Rest {
	r := &Rest{More: w.more || len(w.threads) > n}
	if first := w.first(n); r.More && len(first) > 0 {
		r.After = first[len(first)-1].Cursor()
	}
	return share(p, Key{TheRest, strconv.Itoa(n)}, r)
}
