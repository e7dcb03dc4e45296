package fanout

import (
	"context"
	"iter"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// watcher is a running [Hub.Watch]: a cursor, and the offset up to which each preview was sent.
//
// There are many watchers and nearly all are waiting. Its stack frames are kept small so that it waits on a small
// stack, and it creates no context of its own.
type watcher struct {
	store  *store.Store
	topics *topics
	ref    store.Ref
	// id is the stream's id; 0 until the watch has begun.
	id int64
	// topic is nil while it has none.
	topic *topic
	yield func(Event, error) bool
	// gone reports that the consumer has stopped, or that nothing more will come.
	gone bool

	cursor int64
	sent   map[string]int64
	// goal is where the log ended when the watch began. caughtUp reports that it was reached.
	goal     int64
	caughtUp bool

	pause store.Backoff
}

func (w *watcher) events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w.yield = yield
		w.run(ctx)
	}
}

// run sends everything from beginning to end.
func (w *watcher) run(ctx context.Context) {
	defer w.leave()
	for !w.gone && ctx.Err() == nil {
		err := w.step(ctx)
		if err == nil {
			w.pause = store.Backoff{}
			continue
		}
		stopping := store.ShutdownError(w.topics.ctx)
		switch {
		case ctx.Err() != nil:
			return
		case stopping != nil:
			w.fail(stopping)
		case store.IsTransient(err):
			w.pause.Wait(ctx)
		default:
			w.fail(err)
		}
	}
}

// bound returns a context that also ends with the hub. The caller calls done. Only reads use it, because a waiting
// watcher should hold no context of its own.
func (w *watcher) bound(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(w.topics.ctx, cancel)
	return ctx, func() { release(); cancel() }
}

// leave leaves the topic.
func (w *watcher) leave() {
	if w.topic != nil {
		w.topics.leave(w.topic)
		w.topic = nil
	}
}

// begin joins the topic before it reads where the log ends, so that the topic is notified of every commit after that
// read. If id is not 0, it accepts only the log with that id.
func (w *watcher) begin(ctx context.Context) error {
	if w.cursor < 0 {
		return store.Negative()
	}
	ctx, done := w.bound(ctx)
	defer done()
	for {
		s, err := w.store.Find(ctx, w.ref)
		switch {
		case err != nil:
			return err
		case w.id != 0 && s.ID != w.id:
			return store.NoStream(w.ref)
		}
		w.topic = w.topics.join(s.ID, w.ref, s.Tail)
		joined, err := w.store.Find(ctx, w.ref)
		if err == nil && joined.ID == s.ID && w.cursor <= joined.Tail {
			w.id, w.goal = joined.ID, joined.Tail
			w.topics.reached(joined.ID, joined.Tail)
			if joined.Closed {
				w.topics.closed(joined.ID, joined.Tail)
			}
			return nil
		}
		w.leave()
		switch {
		case err != nil:
			return err
		case joined.ID == s.ID: // otherwise it was deleted and created again in between
			return store.PastEnd(w.cursor, joined.Tail)
		}
	}
}

// step sends what comes next, or waits for it.
func (w *watcher) step(ctx context.Context) error {
	if w.topic == nil {
		return w.begin(ctx)
	}
	v := w.topic.view(w.cursor, w.sent)
	// Checked after view, because closing the hub wakes only the watchers that have called it.
	if err := store.ShutdownError(w.topics.ctx); err != nil {
		return err
	}
	switch {
	case v.deleted:
		return store.NoStream(w.ref)
	case v.abandoned:
		w.leave()
	case v.behind:
		return w.catchUp(ctx, v.last)
	case len(v.entries) > 0:
		w.sendEntries(ctx, v.entries, v.last)
	case !w.caughtUp && w.cursor >= w.goal:
		w.caughtUp = true
		w.send(Event{CaughtUp: true, Seq: w.cursor})
	case v.closed:
		w.send(Event{Closed: true, Seq: w.cursor})
		w.gone = true
	case len(v.deltas) > 0:
		w.sendDeltas(ctx, v.deltas)
	default:
		select {
		case <-v.changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// catchUp reads and sends entries that the topic no longer keeps.
func (w *watcher) catchUp(ctx context.Context, last int64) error {
	reading, done := w.bound(ctx)
	defer done()
	entries, err := w.topics.read.after(reading, w.ref, w.topic.id, w.cursor)
	if err != nil {
		return err
	}
	if len(entries) == 0 { // positions have no gaps, so the stream is gone
		return store.NoStream(w.ref)
	}
	w.sendEntries(ctx, entries, last)
	return nil
}

// sendEntries sends entries. last is the greatest position that the topic has.
func (w *watcher) sendEntries(ctx context.Context, entries []entry.Entry, last int64) {
	known := time.Now()
	for i := range entries {
		if w.gone || ctx.Err() != nil || w.topics.ctx.Err() != nil {
			return
		}
		w.cursor = entries[i].Seq
		// The entry has replaced its preview, whose offset would otherwise stay as long as the watch.
		delete(w.sent, entries[i].ID)
		w.send(Event{Entry: &entries[i], More: i+1 < len(entries) || w.cursor < last, Seq: w.cursor, Known: known})
	}
}

func (w *watcher) sendDeltas(ctx context.Context, deltas []Delta) {
	if w.sent == nil { // allocated late, because most watchers never need it
		w.sent = map[string]int64{}
	}
	for i := range deltas {
		if w.gone || ctx.Err() != nil || w.topics.ctx.Err() != nil {
			return
		}
		d := &deltas[i]
		w.sent[d.EntryID] = d.Offset + int64(len(d.Data))
		w.send(Event{Delta: d, Seq: w.cursor})
	}
}

func (w *watcher) send(e Event) { w.gone = !w.yield(e, nil) }

func (w *watcher) fail(err error) {
	w.gone = true
	w.yield(Event{}, err)
}
