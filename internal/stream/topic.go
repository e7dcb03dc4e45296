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
	// closed says that known is the end of the stream, for ever.
	closed bool

	// recent holds the entries up to last without a gap; known is the furthest position heard of.
	recent      []entry.Entry
	bytes       int
	last, known int64
	// busy says that a fetch is under way; see next.
	busy bool
	// idle says that nothing came since the last sweep.
	idle bool

	previews []*preview
}

// view is what a watcher can send next.
type view struct {
	changed <-chan struct{}
	deleted bool
	// closed says that nothing comes after cursor, now or later.
	closed bool
	// last is the furthest position that the topic has.
	last int64
	// behind says that the next entry is older than what the topic keeps.
	behind  bool
	entries []entry.Entry
	deltas  []Delta
}

// look returns what comes after cursor. told is up to where each preview was sent to this watcher.
//
// Deltas are for who has seen every entry the topic has: an entry that was taken has ended its preview
// under this same lock, so no delta follows its entry.
func (t *topic) look(cursor int64, told map[string]int64) view {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := view{changed: t.changed, deleted: t.deleted, last: t.last}
	switch missing := t.last - cursor; {
	case missing > int64(len(t.recent)):
		v.behind = true
	case missing > 0:
		v.entries = slices.Clip(t.recent[len(t.recent)-int(missing):])
	case missing == 0:
		v.closed = t.closed && t.known == t.last
		for _, p := range t.previews {
			if p.standing == running && p.end > told[p.id] {
				v.deltas = append(v.deltas, p.since(told[p.id]))
			}
		}
	}
	return v
}

// watch adds a watcher of a stream whose tail was read a moment ago.
//
// The first one finds what nobody kept up to date: it begins at tail, and no preview is told before the log
// was asked for its entry.
func (t *topic) watch(tail int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers++; t.watchers == 1 {
		t.recent, t.bytes, t.last, t.known = nil, 0, tail, tail
		for _, p := range t.previews {
			p.standing = doubtful
		}
	}
}

// watchOn adds a watcher, if there is one already, and reports whether it did.
func (t *topic) watchOn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers == 0 {
		return false
	}
	t.watchers++
	return true
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
	return t.claim()
}

// end hears that the stream was closed at tail, and reports whether the caller must fetch.
func (t *topic) end(tail int64) (fetch bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = max(t.known, tail)
	if !t.closed {
		t.closed = true
		t.wake()
	}
	return t.claim()
}

// claim takes the task of fetching when there is something to do and nobody does it. Callers hold the lock.
func (t *topic) claim() (fetch bool) {
	if t.busy || !t.wants() {
		return false
	}
	t.busy = true
	return true
}

// wants tells whether the log must be asked for something. Callers hold the lock.
func (t *topic) wants() bool {
	return t.watchers > 0 && !t.deleted && (t.known > t.last || slices.ContainsFunc(t.previews, notRunning))
}

func notRunning(p *preview) bool { return p.standing != running }

// next is what whoever claimed the fetch has to do: read the entries after a position or, when the topic
// has them all, look whether the entry of a doubtful preview is there. When nothing is left, more is false
// and the claim is over.
func (t *topic) next() (doubt *preview, after int64, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy = t.wants(); t.busy && t.known == t.last {
		doubt = t.previews[slices.IndexFunc(t.previews, notRunning)]
		doubt.standing = asked
	}
	return doubt, t.last, t.busy
}

// take adds committed entries, ascending, as far as they join what is there without a gap; the others are
// only heard of. It returns the previews that they finish, and whether the caller must fetch.
func (t *topic) take(entries []entry.Entry) (finished []*preview, fetch bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.last
	for _, e := range entries {
		if p := t.preview(e.ID); p != nil {
			t.drop(p)
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
	return finished, t.claim()
}

// settle notes that the log did not have the entry of a preview when it was asked.
func (t *topic) settle(p *preview) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.standing == asked { // else nobody watched for a moment since, and the answer is stale
		p.standing = running
		t.wake()
	}
}

// publish adds a delta to its preview, which is made when there is none. The preview is nil when that was
// nothing new. It reports whether the caller must fetch.
func (t *topic) publish(d Delta) (_ *preview, fetch bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.preview(d.EntryID)
	if p == nil {
		p = &preview{topic: t, id: d.EntryID, end: d.Offset, forwarded: d.Offset}
		t.previews = append(t.previews, p)
	}
	if !p.add(d.Offset, d.Data) {
		return nil, false
	}
	if p.standing == running {
		t.wake()
	}
	return p, t.claim()
}

// unsent takes what of a preview was not forwarded yet.
func (t *topic) unsent(p *preview) Delta {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := p.since(p.forwarded)
	p.forwarded = p.end
	return d
}

// forget drops a preview, and reports whether the topic has a reason to stay.
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

// preview finds a preview. Callers hold the lock.
func (t *topic) preview(id string) *preview {
	if i := slices.IndexFunc(t.previews, func(p *preview) bool { return p.id == id }); i >= 0 {
		return t.previews[i]
	}
	return nil
}

// drop removes a preview. Callers hold the lock.
func (t *topic) drop(p *preview) {
	t.previews = slices.DeleteFunc(t.previews, func(q *preview) bool { return q == p })
}

// stir makes the watchers look though nothing is new here.
func (t *topic) stir() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wake()
}

// wake makes the watchers look. Callers hold the lock.
func (t *topic) wake() {
	if t.watchers == 0 {
		return
	}
	close(t.changed)
	t.changed = make(chan struct{})
}
