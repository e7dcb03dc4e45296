package stream

import (
	"container/list"
	"errors"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// hub knows the topics of a Log. Whoever holds its lock may lock a topic, never the reverse.
type hub struct {
	log *Log

	mu      sync.Mutex
	stopped bool
	topics  map[int64]*topic
	// refs finds the topic of a name without asking Postgres. A name may have got a new stream since, so
	// it is good enough for deltas only.
	refs map[Ref]*topic
	// previews holds all *preview, the one quiet for longest first.
	previews *list.List
	places   map[*preview]*list.Element
	// outbox holds the previews with something to tell to other servers; send says that it is not empty.
	outbox map[*preview]struct{}
	send   chan struct{}
}

func newHub(l *Log) *hub {
	return &hub{
		log: l, topics: map[int64]*topic{}, refs: map[Ref]*topic{},
		previews: list.New(), places: map[*preview]*list.Element{},
		outbox: map[*preview]struct{}{}, send: make(chan struct{}, 1),
	}
}

// close stops new fetches, so that the Log can wait for those under way, and has all watchers look once more.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for _, t := range h.topics {
		t.stir()
	}
}

// join adds a watcher of the stream with this id, whose tail was read a moment ago. The caller leaves.
func (h *hub) join(id int64, ref Ref, tail int64) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topic(id, ref)
	t.watch(tail)
	return t
}

// branch adds a watcher of a stream that is being watched; it is nil when none is.
func (h *hub) branch(id int64) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[id]; t != nil && t.watchOn() {
		return t
	}
	return nil
}

// leave takes a watcher away.
func (h *hub) leave(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if needed := t.unwatch(); !needed {
		h.remove(t)
	}
}

// topic finds or makes a topic; ref is empty when it is not known. Callers hold the lock.
func (h *hub) topic(id int64, ref Ref) *topic {
	t := h.topics[id]
	if t == nil {
		t = &topic{id: id, changed: make(chan struct{})}
		h.topics[id] = t
	}
	if ref != (Ref{}) {
		t.ref = ref
		h.refs[ref] = t
	}
	return t
}

// remove forgets a topic. Callers hold the lock.
func (h *hub) remove(t *topic) {
	if h.topics[t.id] == t {
		delete(h.topics, t.id)
	}
	if h.refs[t.ref] == t {
		delete(h.refs, t.ref)
	}
}

// idOf is the stream that had this name lately, when the hub knows it.
func (h *hub) idOf(ref Ref) (id int64, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.refs[ref]
	if t == nil {
		return 0, false
	}
	return t.id, true
}

func (h *hub) find(id int64) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[id]
}

// watched returns the ids of all topics.
func (h *hub) watched() []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]int64, 0, len(h.topics))
	for id := range h.topics {
		ids = append(ids, id)
	}
	return ids
}

// reached hears that a stream goes up to tail.
func (h *hub) reached(id, tail int64) {
	if t := h.find(id); t != nil && t.reach(tail) {
		h.fetch(t)
	}
}

// closed hears that a stream was closed, at tail or where it was last heard to reach.
func (h *hub) closed(id, tail int64) {
	if t := h.find(id); t != nil && t.end(tail) {
		h.fetch(t)
	}
}

// offer gives a topic what was just committed through this server, which spares it the fetch.
func (h *hub) offer(id int64, entries []entry.Entry) {
	t := h.find(id)
	if t == nil {
		return
	}
	finished, fetch := t.take(entries)
	h.retire(finished...)
	if fetch {
		h.fetch(t)
	}
}

// deleted hears that a stream is gone.
func (h *hub) deleted(id int64) {
	h.mu.Lock()
	t := h.topics[id]
	if t != nil {
		h.remove(t)
	}
	h.mu.Unlock()
	if t != nil {
		h.retire(t.close()...)
	}
}

// fetch asks the log for what a topic wants, once for all its watchers. The caller claimed the task.
func (h *hub) fetch(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return
	}
	ref := t.ref
	h.log.work.Go(func() {
		var pause backoff
		for {
			doubt, after, more := t.next()
			if !more {
				return
			}
			err := h.ask(t, ref, doubt, after)
			if err == nil {
				pause = backoff{}
				continue
			}
			if !pause.wait(h.log.ctx) {
				return
			}
			h.log.log.Warn("cannot fetch what is new in a stream; trying again", "stream", t.id, "error", detail(err))
		}
	})
}

// ask does one step of a fetch.
func (h *hub) ask(t *topic, ref Ref, doubt *preview, after int64) error {
	if doubt != nil {
		found, err := h.log.has(h.log.ctx, ref, t.id, doubt.id)
		switch {
		case err != nil:
			return err
		case found:
			h.retire(doubt)
		default:
			t.settle(doubt)
		}
		return nil
	}
	entries, err := h.log.readOn(h.log.ctx, ref, t.id, after)
	if err != nil {
		return err
	}
	if len(entries) == 0 { // positions have no gap
		return errors.New("its entries are gone; no word of its deletion yet")
	}
	finished, _ := t.take(entries)
	h.retire(finished...)
	return nil
}

// publish adds a delta to the stream's previews. local says that it was published here, so that other
// servers must be told.
func (h *hub) publish(id int64, ref Ref, d Delta, local bool) {
	if len(d.Data) == 0 {
		return
	}
	if t, fetch := h.preview(id, ref, d, local); fetch {
		h.fetch(t)
	}
}

func (h *hub) preview(id int64, ref Ref, d Delta, local bool) (t *topic, fetch bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.topic(id, ref)
	p, fetch := t.publish(d)
	if p == nil {
		return t, false
	}
	h.touch(p)
	if local {
		h.outbox[p] = struct{}{}
		select {
		case h.send <- struct{}{}:
		default: // it is told already
		}
	}
	return t, fetch
}

// unsent takes what other servers were not told yet.
func (h *hub) unsent() (deltas []sentDelta) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.outbox {
		deltas = append(deltas, sentDelta{p.topic.id, p.topic.unsent(p)})
	}
	clear(h.outbox)
	return deltas
}

// touch makes p the preview that wrote last, and drops the quietest when there are too many.
func (h *hub) touch(p *preview) {
	p.touched = time.Now()
	if at := h.places[p]; at != nil {
		h.previews.MoveToBack(at)
		return
	}
	h.places[p] = h.previews.PushBack(p)
	if h.previews.Len() > keptPreviews {
		h.drop(h.previews.Front().Value.(*preview))
	}
}

// drop lets go of a preview. Callers hold the lock.
func (h *hub) drop(p *preview) {
	if at := h.places[p]; at != nil {
		h.previews.Remove(at)
	}
	delete(h.places, p)
	delete(h.outbox, p)
	if needed := p.topic.forget(p); !needed {
		h.remove(p.topic)
	}
}

// retire lets go of previews whose entries came, or whose stream is gone.
func (h *hub) retire(finished ...*preview) {
	if len(finished) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range finished {
		h.drop(p)
	}
}

// sweep frees what nobody will miss.
func (h *hub) sweep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		t.rest()
	}
	for first := h.previews.Front(); first != nil; first = h.previews.Front() {
		p := first.Value.(*preview)
		if time.Since(p.touched) < keptQuiet {
			return
		}
		h.drop(p)
	}
}
