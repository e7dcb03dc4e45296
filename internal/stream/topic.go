package stream

import (
	"slices"
	"sync"

	"github.com/arbe-dev/arbe/internal/entry"
)

const (
	// recentEntries and recentBytes bound what a topic keeps for tails that keep pace.
	recentEntries = 256
	recentBytes   = 256 << 10
)

// topic is what this server knows of one stream while somebody watches it, or while something in it has a
// preview. Its methods lock it; none of them blocks on anything else.
type topic struct {
	id  int64
	ref Ref // empty until it is known; the hub's lock guards it

	mu       sync.Mutex
	watchers int
	// changed is closed, and replaced, when there is something new for the watchers.
	changed chan struct{}
	deleted bool

	// recent holds the entries up to last without a gap; known is the furthest position heard of.
	recent      []entry.Entry
	bytes       int
	last, known int64
	fetching    bool
	// idle says that nothing came since the last sweep.
	idle bool

	previews []*preview
	finished []string
}

// view is what a watcher can send next.
type view struct {
	changed <-chan struct{}
	deleted bool
	// behind says that the next entry is older than what the topic keeps.
	behind  bool
	entries []entry.Entry
	deltas  []Delta
	// doubts are previews whose entry may be in the log already, unnoticed.
	doubts []string
}

// look returns what comes after cursor. told is up to where each preview was sent to this watcher.
//
// Deltas are for who has seen every entry the topic has: an entry that was taken has ended its preview
// under this same lock, so no delta follows its entry.
func (t *topic) look(cursor int64, told map[string]int64) view {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := view{changed: t.changed, deleted: t.deleted}
	switch missing := t.last - cursor; {
	case missing > int64(len(t.recent)):
		v.behind = true
	case missing > 0:
		v.entries = slices.Clip(t.recent[len(t.recent)-int(missing):])
	case missing == 0:
		for _, p := range t.previews {
			if !p.checked {
				v.doubts = append(v.doubts, p.id)
			} else if p.end > told[p.id] {
				v.deltas = append(v.deltas, p.since(told[p.id]))
			}
		}
	}
	return v
}

// watch adds a watcher of a stream whose tail was read a moment ago.
func (t *topic) watch(tail int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers++; t.watchers == 1 {
		// Nobody kept this up to date: begin at tail, and trust no preview before the log was asked.
		t.recent, t.bytes, t.last, t.known = nil, 0, tail, tail
		for _, p := range t.previews {
			p.checked = false
		}
	}
}

// unwatch removes a watcher and reports whether the topic has a reason to stay.
func (t *topic) unwatch() (needed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers--
	return t.watchers > 0 || len(t.previews) > 0
}

// reach hears that the stream goes up to tail, and reports whether the caller must fetch.
func (t *topic) reach(tail int64) (fetch bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = max(t.known, tail)
	return t.mustFetch()
}

// mustFetch claims the fetch when there is something to fetch and nobody does it. Callers hold the lock.
func (t *topic) mustFetch() bool {
	if t.watchers == 0 || t.deleted || t.fetching || t.known <= t.last {
		return false
	}
	t.fetching = true
	return true
}

// take adds committed entries, ascending, as far as they join what is there without a gap; the others are
// only heard of. It returns the previews that they finish, and whether the caller must fetch.
func (t *topic) take(entries []entry.Entry) (finished []*preview, fetch bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.last
	for _, e := range entries {
		if p := t.finish(e.ID); p != nil {
			finished = append(finished, p)
		}
		t.known = max(t.known, e.Seq)
		if t.watchers > 0 && e.Seq == t.last+1 {
			t.recent, t.last = append(t.recent, e), e.Seq
			t.bytes += len(e.Payload)
		}
	}
	drop := 0
	for ; len(t.recent)-drop > recentEntries || (t.bytes > recentBytes && len(t.recent)-drop > 1); drop++ {
		t.bytes -= len(t.recent[drop].Payload)
	}
	t.recent, t.idle = t.recent[drop:], false
	if t.last > before || finished != nil {
		t.wake()
	}
	return finished, t.mustFetch()
}

// end is where the entries that the topic has seen end.
func (t *topic) end() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// fetched ends a fetch that went up to the known end; otherwise there is more, and it goes on.
func (t *topic) fetched() (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fetching = t.watchers > 0 && !t.deleted && t.known > t.last
	return !t.fetching
}

// settle notes what the log said about a preview in doubt, and returns the preview when its entry is there.
func (t *topic) settle(id string, inLog bool) (finished *preview) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if inLog {
		return t.finish(id)
	}
	if p := t.preview(id); p != nil {
		p.checked = true
	}
	return nil
}

// publish adds a delta to its preview, which is made when there is none, and returns it; nil when there is
// nothing new, or its entry is in the log.
func (t *topic) publish(d Delta) *preview {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deleted || slices.Contains(t.finished, d.EntryID) {
		return nil
	}
	p := t.preview(d.EntryID)
	if p == nil {
		p = &preview{topic: t, id: d.EntryID, end: d.Offset, forwarded: d.Offset}
		t.previews = append(t.previews, p)
	}
	if !p.add(d.Offset, d.Data) {
		return nil
	}
	t.wake()
	return p
}

// unsent takes what of a preview was not forwarded yet.
func (t *topic) unsent(p *preview) Delta {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := p.since(p.forwarded)
	p.forwarded = p.end
	return d
}

// forget drops a preview without its entry having come.
func (t *topic) forget(p *preview) (needed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(p)
	return t.watchers > 0 || len(t.previews) > 0
}

// close tells the watchers that the stream is gone, and returns the previews that went with it.
func (t *topic) close() []*preview {
	t.mu.Lock()
	defer t.mu.Unlock()
	dropped := t.previews
	t.deleted, t.recent, t.previews = true, nil, nil
	t.wake()
	return dropped
}

// rest frees the recent entries when none came since the last call: who needs them still is so slow that
// it can read from the log.
func (t *topic) rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle {
		t.recent, t.bytes = nil, 0
	}
	t.idle = true
}

func (t *topic) preview(id string) *preview {
	if i := slices.IndexFunc(t.previews, func(p *preview) bool { return p.id == id }); i >= 0 {
		return t.previews[i]
	}
	return nil
}

// finish ends the preview of an entry that is in the log. Callers hold the lock.
func (t *topic) finish(id string) *preview {
	p := t.preview(id)
	if p == nil {
		return nil
	}
	t.drop(p)
	if t.finished = append(t.finished, id); len(t.finished) > keptFinished {
		t.finished = slices.Delete(t.finished, 0, 1)
	}
	return p
}

func (t *topic) drop(p *preview) {
	t.previews = slices.DeleteFunc(t.previews, func(q *preview) bool { return q == p })
}

func (t *topic) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}
