package fanout

import (
	"slices"
	"sync"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

const (
	// recentEntries and recentBytes limit the entries that a topic keeps for tails that keep up.
	recentEntries = 256
	recentBytes   = 256 << 10
)

// topic is this server's knowledge of a stream that is watched here or has a preview. Its methods lock it, and none of
// them blocks on anything else.
type topic struct {
	id  int64
	ref store.Ref // empty until known; the lock of topics guards it

	mu       sync.Mutex
	watchers int
	// changed is closed and replaced when there is something new for the watchers.
	changed chan struct{}
	deleted bool
	// abandoned reports that the stream no longer has what this topic holds. Another topic replaces this one, because
	// its watchers must not be sent entries that are lost.
	abandoned bool
	// closed reports that known is the final end of the stream.
	closed bool

	// recent holds the entries up to last without a gap. known is the greatest position that was reported.
	recent      []entry.Entry
	bytes       int
	last, known int64
	// busy reports that a fetch is in progress, so that there is only one at a time; see next.
	busy bool
	// idle reports that nothing came since the last sweep.
	idle bool

	previews []*preview
}

// view is the next part of a stream for a watcher.
type view struct {
	changed            <-chan struct{}
	deleted, abandoned bool
	// closed reports that nothing follows cursor, now or later.
	closed bool
	// last is the greatest position that the topic has.
	last int64
	// behind reports that the next entry is older than those that the topic keeps.
	behind  bool
	entries []entry.Entry
	deltas  []Delta
}

// view returns the part of the stream after cursor. sent is the offset up to which each preview was sent to this
// watcher.
//
// Only watchers that have seen every entry of the topic get deltas. Taking an entry ends its preview under the same
// lock, so that no delta follows its entry.
func (t *topic) view(cursor int64, sent map[string]int64) view {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := view{changed: t.changed, deleted: t.deleted, abandoned: t.abandoned, last: t.last}
	switch missing := t.last - cursor; {
	case missing > int64(len(t.recent)):
		v.behind = true
	case missing > 0:
		v.entries = slices.Clip(t.recent[len(t.recent)-int(missing):])
	case missing == 0:
		v.closed = t.closed && t.known == t.last
		for _, p := range t.previews {
			if p.state == running && p.end > sent[p.id] {
				v.deltas = append(v.deltas, p.since(sent[p.id]))
			}
		}
	}
	return v
}

// watch adds a watcher of a stream whose tail was just read.
//
// Before the first watcher the topic was not kept up to date. It therefore restarts at tail, and sends no preview until
// the log was asked for the preview's entry.
func (t *topic) watch(tail int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers++; t.watchers == 1 {
		t.recent, t.bytes, t.last, t.known = nil, 0, tail, tail
		for _, p := range t.previews {
			p.state = doubtful
		}
	}
}

// unwatch removes a watcher and reports whether the topic is still needed.
func (t *topic) unwatch() (needed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers--
	return t.watchers > 0 || len(t.previews) > 0
}

// reach records that the stream reaches tail, and reports whether the caller must fetch.
func (t *topic) reach(tail int64) (fetch bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = max(t.known, tail)
	return t.claim()
}

// end records that the stream was closed at tail, and reports whether the caller must fetch.
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

// claim claims the task of fetching if there is something to fetch and no fetch is in progress. Callers hold the lock.
func (t *topic) claim() (fetch bool) {
	if t.busy || !t.needsRead() {
		return false
	}
	t.busy = true
	return true
}

// needsRead reports whether something must be read from the log. Callers hold the lock.
func (t *topic) needsRead() bool {
	return t.watchers > 0 && !t.deleted && !t.abandoned && (t.known > t.last || slices.ContainsFunc(t.previews, notRunning))
}

func notRunning(p *preview) bool { return p.state != running }

// next returns the next step for the caller who claimed the fetch: read the entries after a position or, if the topic
// has them all, look for the entry of a doubtful preview. If nothing is left, more is false and the claim ends.
func (t *topic) next() (doubt *preview, after int64, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy = t.needsRead(); t.busy && t.known == t.last {
		doubt = t.previews[slices.IndexFunc(t.previews, notRunning)]
		doubt.state = asked
	}
	return doubt, t.last, t.busy
}

// take adds committed entries, ascending, as long as they follow the topic's entries without a gap. Of the others it
// records only the positions, so that they are fetched in order. It returns the previews that the entries finish, and
// whether the caller must fetch.
func (t *topic) take(entries []entry.Entry) (finished []*preview, fetch bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.last
	for _, e := range entries {
		for _, p := range slices.Clone(t.previews) {
			if slices.Contains(p.ends, e.ID) {
				t.drop(p)
				finished = append(finished, p)
			}
		}
		t.known = max(t.known, e.Seq)
		// Without watchers nothing is kept, because the first one restarts the topic at the log's tail.
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

// markRunning records that the log did not have the entry of a preview.
func (t *topic) markRunning(p *preview) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.state == asked { // otherwise there was no watcher for a moment, and the answer is outdated
		p.state = running
		t.wake()
	}
}

// publish adds a delta to its preview, which it creates if there is none. It returns nil if the delta had nothing new,
// the previews that the new one replaces, and whether the caller must fetch.
func (t *topic) publish(d Delta) (p *preview, replaced []*preview, fetch bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p = t.preview(d.EntryID); p == nil {
		p = newPreview(d.EntryID, d.Offset)
		if slices.ContainsFunc(t.previews, func(q *preview) bool { return q.replaces(p) }) {
			return nil, nil, false // it is late
		}
		for _, q := range slices.Clone(t.previews) {
			if p.replaces(q) {
				t.drop(q)
				replaced = append(replaced, q)
			}
		}
		t.previews = append(t.previews, p)
	}
	if !p.add(d.Offset, d.Data) {
		return nil, replaced, false
	}
	if p.state == running {
		t.wake()
	}
	return p, replaced, t.claim()
}

// kept returns how many bytes of a preview are kept.
func (t *topic) kept(p *preview) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(p.data)
}

// unsent returns the part of a preview that was not yet forwarded, and marks it as forwarded.
func (t *topic) unsent(p *preview) Delta {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := p.since(p.forwarded)
	p.forwarded = p.end
	return d
}

// forget drops a preview and reports whether the topic is still needed.
func (t *topic) forget(p *preview) (needed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(p)
	return t.watchers > 0 || len(t.previews) > 0
}

// close closes the topic of a deleted stream, and returns its previews.
func (t *topic) close() []*preview {
	t.mu.Lock()
	defer t.mu.Unlock()
	dropped := t.previews
	t.deleted, t.recent, t.previews = true, nil, nil
	t.wake()
	return dropped
}

// abandon makes the watchers move to another topic of the stream, and returns the previews of this one.
func (t *topic) abandon() []*preview {
	t.mu.Lock()
	defer t.mu.Unlock()
	dropped := t.previews
	t.abandoned, t.recent, t.previews = true, nil, nil
	t.wake()
	return dropped
}

// position returns the greatest position that the topic has.
func (t *topic) position() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// trim frees the recent entries if none came since the last call. This delays nobody, because watchers that keep up
// have them already and slower ones read from the log.
func (t *topic) trim() {
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

// wakeAll wakes the watchers although the topic has nothing new, so that they notice the end of the hub.
func (t *topic) wakeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wake()
}

// wake wakes the watchers. Callers hold the lock.
func (t *topic) wake() {
	if t.watchers == 0 {
		return
	}
	close(t.changed)
	t.changed = make(chan struct{})
}
