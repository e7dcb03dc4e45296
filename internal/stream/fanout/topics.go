package fanout

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// topics holds the topics of a [Hub]. A goroutine that holds its lock may lock a topic, but must not lock topics while
// it holds a topic's lock, because the two could deadlock.
type topics struct {
	ctx  context.Context
	work *sync.WaitGroup
	log  *slog.Logger
	read *reader

	mu      sync.Mutex
	stopped bool
	all     map[int64]*topic
	// refs finds the topic of a name without asking Postgres. The name may belong to a new stream by now, which is
	// acceptable only for deltas, because those may be lost.
	refs map[store.Ref]*topic
	// previews holds all *preview in the order in which they last grew, oldest first, so that the one to drop is found
	// at once. lru maps each to its element.
	previews *list.List
	lru      map[*preview]*lruEntry
	// kept is the number of bytes of all previews.
	kept int
	// outbox holds the previews with something to send to other servers. send receives a token when it is not empty.
	outbox map[*preview]struct{}
	send   chan struct{}
}

// lruEntry is a preview's element in the list.
type lruEntry struct {
	topic *topic
	at    *list.Element
	// touched is when the preview last grew, and kept the number of its bytes then.
	touched time.Time
	kept    int
}

func newTopics(ctx context.Context, work *sync.WaitGroup, log *slog.Logger, read *reader) *topics {
	return &topics{
		ctx: ctx, work: work, log: log, read: read,
		all: map[int64]*topic{}, refs: map[store.Ref]*topic{},
		previews: list.New(), lru: map[*preview]*lruEntry{},
		outbox: map[*preview]struct{}{}, send: make(chan struct{}, 1),
	}
}

// close prevents new fetches, so that the hub can wait for those in progress, and wakes all watchers, so that they end.
func (ts *topics) close() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.stopped = true
	for _, t := range ts.all {
		t.wakeAll()
	}
}

// join adds a watcher of the stream with this id, whose tail was just read. The caller must call leave.
func (ts *topics) join(id int64, ref store.Ref, tail int64) *topic {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.topic(id, ref)
	t.watch(tail)
	return t
}

// leave removes a watcher.
func (ts *topics) leave(t *topic) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if needed := t.unwatch(); !needed {
		ts.remove(t)
	}
}

// topic finds or creates a topic. ref is empty if it is unknown. Callers hold the lock.
func (ts *topics) topic(id int64, ref store.Ref) *topic {
	t := ts.all[id]
	if t == nil {
		t = &topic{id: id, changed: make(chan struct{})}
		ts.all[id] = t
	}
	if ref != (store.Ref{}) {
		t.ref = ref
		ts.refs[ref] = t
	}
	return t
}

// remove forgets a topic. Callers hold the lock.
func (ts *topics) remove(t *topic) {
	if ts.all[t.id] == t {
		delete(ts.all, t.id)
	}
	if ts.refs[t.ref] == t {
		delete(ts.refs, t.ref)
	}
}

// idOf returns the stream that recently had this name, if it has a topic.
func (ts *topics) idOf(ref store.Ref) (id int64, known bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.refs[ref]
	if t == nil {
		return 0, false
	}
	return t.id, true
}

func (ts *topics) find(id int64) *topic {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.all[id]
}

// watched returns the ids of all topics, and the position that each has reached.
func (ts *topics) watched() (ids []int64, reached map[int64]int64) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	reached = make(map[int64]int64, len(ts.all))
	for id, t := range ts.all {
		ids = append(ids, id)
		reached[id] = t.position()
	}
	return ids, reached
}

// reached records that a stream reaches tail.
func (ts *topics) reached(id, tail int64) {
	if t := ts.find(id); t != nil && t.reach(tail) {
		ts.fetch(t)
	}
}

// closed records that a stream was closed, at tail or at the greatest position that was reported.
func (ts *topics) closed(id, tail int64) {
	if t := ts.find(id); t != nil && t.end(tail) {
		ts.fetch(t)
	}
}

// offer gives a topic the entries of a commit of this server, which saves a fetch.
func (ts *topics) offer(t *topic, entries []entry.Entry) {
	finished, fetch := t.take(entries)
	ts.retire(finished...)
	if fetch {
		ts.fetch(t)
	}
}

// deleted records that a stream was deleted.
func (ts *topics) deleted(id int64) {
	ts.mu.Lock()
	t := ts.all[id]
	if t != nil {
		ts.remove(t)
	}
	ts.mu.Unlock()
	if t != nil {
		ts.retire(t.close()...)
	}
}

// lost records that a stream ends before the entries of its topic: a database that was restored or failed over lacks
// the last commits. All watchers of the stream start again.
func (ts *topics) lost(id int64) {
	ts.mu.Lock()
	t := ts.all[id]
	if t != nil {
		ts.remove(t)
	}
	ts.mu.Unlock()
	if t != nil {
		ts.retire(t.abandon()...)
	}
}

// fetch reads what a topic lacks from the log, once for all its watchers. The caller has claimed the task.
func (ts *topics) fetch(t *topic) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	// The hub may already be waiting for the fetches in progress, so that no other must start.
	if ts.stopped {
		return
	}
	ref := t.ref
	ts.work.Go(func() {
		var pause store.Backoff
		for {
			doubt, after, more := t.next()
			if !more {
				return
			}
			err := ts.ask(t, ref, doubt, after)
			if err == nil {
				pause = store.Backoff{}
				continue
			}
			if !pause.Wait(ts.ctx) {
				return
			}
			ts.log.WarnContext(ts.ctx, "cannot read new entries of a stream; trying again", "stream", t.id, "error", fault.From(err).Detail())
		}
	})
}

// ask does one step of a fetch.
func (ts *topics) ask(t *topic, ref store.Ref, doubt *preview, after int64) error {
	if doubt != nil {
		found, err := ts.read.has(ts.ctx, ref, t.id, doubt.ends)
		switch {
		case err != nil:
			return err
		case found:
			ts.retire(doubt)
		default:
			t.markRunning(doubt)
		}
		return nil
	}
	entries, err := ts.read.after(ts.ctx, ref, t.id, after)
	if err != nil {
		return err
	}
	if len(entries) == 0 { // positions have no gap
		return errors.New("the stream's entries are gone; its deletion has not been notified yet")
	}
	finished, _ := t.take(entries)
	ts.retire(finished...)
	if next := entries[0].Seq; next != after+1 {
		return fmt.Errorf("entry %d is followed by entry %d: those between are lost", after, next)
	}
	return nil
}

// publish adds a delta to the stream's previews. local reports that it was published on this server, which then sends
// it to the others.
func (ts *topics) publish(id int64, ref store.Ref, d Delta, local bool) {
	if len(d.Data) == 0 {
		return
	}
	if t, fetch := ts.preview(id, ref, d, local); fetch {
		ts.fetch(t)
	}
}

func (ts *topics) preview(id int64, ref store.Ref, d Delta, local bool) (t *topic, fetch bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t = ts.topic(id, ref)
	p, replaced, fetch := t.publish(d)
	for _, q := range replaced {
		ts.drop(q)
	}
	if p == nil {
		return t, false
	}
	ts.touch(t, p, t.kept(p))
	if local {
		ts.outbox[p] = struct{}{}
		select {
		case ts.send <- struct{}{}:
		default: // a token is already pending
		}
	}
	return t, fetch
}

// streamDelta is a delta with the id of its stream.
type streamDelta struct {
	Stream int64
	Delta
}

// unsent returns everything that was not yet sent to other servers.
func (ts *topics) unsent() (deltas []streamDelta) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for p := range ts.outbox {
		t := ts.lru[p].topic
		deltas = append(deltas, streamDelta{t.id, t.unsent(p)})
	}
	clear(ts.outbox)
	return deltas
}

// touch records that p, a preview of t that keeps this many bytes, grew last. It drops the quietest previews if there
// are too many. Callers hold the lock.
func (ts *topics) touch(t *topic, p *preview, kept int) {
	known := ts.lru[p]
	if known == nil {
		known = &lruEntry{topic: t, at: ts.previews.PushBack(p)}
		ts.lru[p] = known
	}
	ts.previews.MoveToBack(known.at)
	ts.kept += kept - known.kept
	known.touched, known.kept = time.Now(), kept
	for ts.previews.Len() > keptPreviews || ts.kept > keptAll && ts.previews.Len() > 1 {
		ts.drop(ts.previews.Front().Value.(*preview))
	}
}

// drop removes a preview if it is still there. Callers hold the lock.
func (ts *topics) drop(p *preview) {
	known := ts.lru[p]
	if known == nil {
		return
	}
	ts.previews.Remove(known.at)
	ts.kept -= known.kept
	delete(ts.lru, p)
	delete(ts.outbox, p)
	if needed := known.topic.forget(p); !needed {
		ts.remove(known.topic)
	}
}

// retire removes previews whose entries were committed or whose stream is gone.
func (ts *topics) retire(finished ...*preview) {
	if len(finished) == 0 {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, p := range finished {
		ts.drop(p)
	}
}

// sweep frees recent entries and previews that were not used for a long time.
func (ts *topics) sweep() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.all {
		t.trim()
	}
	var next *list.Element
	for at := ts.previews.Front(); at != nil; at = next {
		next = at.Next()
		p := at.Value.(*preview)
		kept := keptQuiet
		if strings.HasPrefix(p.id, typingPrefix) {
			kept = keptTyping
		}
		if time.Since(ts.lru[p].touched) >= kept {
			ts.drop(p)
		}
	}
}
