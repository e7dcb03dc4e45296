package stream

import (
	"context"
	"iter"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Tail tells every entry of a log after a position, in order, those that are there and those to come, and
// the deltas of what is being made meanwhile. Ranging over it again begins again.
//
// When ctx ends the sequence ends, without an error, and also when the log is closed. Otherwise it ends with its one error:
// [fault.OutOfRange] when after is past the end, [fault.NotFound] when there is no such log or it was
// deleted, [fault.Unavailable] when the Log closes, or when the database cannot be reached at the start.
// Once it has begun, a tail waits for a database that is away, and goes on.
func (l *Log) Tail(ctx context.Context, ref Ref, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		events, err := l.Begin(ctx, Stream{Ref: ref}, after)
		switch {
		case err == nil:
			events(yield)
		case ctx.Err() == nil:
			yield(Event{}, err)
		}
	}
}

// Begin is a [Log.Tail] that has begun: what is wrong with its start is this error, and not the sequence's. When s
// has an id, another log that has got its name since is a [fault.NotFound]. The caller ranges over the sequence,
// once, in the same goroutine or another; only that lets go of the log.
func (l *Log) Begin(ctx context.Context, s Stream, after int64) (iter.Seq2[Event, error], error) {
	w := &watcher{log: l, ref: s.Ref, cursor: after}
	if err := w.begin(ctx, s.ID); err != nil {
		if stopping := l.stopping(); stopping != nil {
			err = stopping
		}
		return nil, err
	}
	return w.events(ctx), nil
}

// Branch is a Begin that asks the database nothing: it goes on behind what another tail of s, which is running,
// has told already. Without one it is a [fault.NotFound].
func (l *Log) Branch(ctx context.Context, s Stream, after int64) (iter.Seq2[Event, error], error) {
	w := &watcher{log: l, ref: s.Ref, cursor: after, caughtUp: true}
	if w.topic = l.hub.branch(s.ID); w.topic == nil {
		return nil, noStream(s.Ref)
	}
	return w.events(ctx), nil
}

// watcher is a running Tail: a cursor, and how far it has told each preview.
//
// There are many, and nearly all wait: its frames are kept small while it does, so that it does that on a
// small stack, and it makes no context of its own.
type watcher struct {
	log   *Log
	ref   Ref
	topic *topic
	yield func(Event, error) bool
	// gone says that the consumer wants no more, or that there is no more.
	gone bool

	cursor int64
	told   map[string]int64
	// goal is where the log ended when the tail began; caughtUp says that it was told.
	goal     int64
	caughtUp bool

	pause backoff
}

func (w *watcher) events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w.yield = yield
		w.run(ctx)
	}
}

// run goes on from the beginning to the end.
func (w *watcher) run(ctx context.Context) {
	defer w.log.hub.leave(w.topic)
	for !w.gone && ctx.Err() == nil {
		err := w.step(ctx)
		if err == nil {
			w.pause = backoff{}
			continue
		}
		stopping := w.log.stopping()
		switch {
		case ctx.Err() != nil:
			return
		case stopping != nil:
			w.fail(stopping)
		case passing(err):
			w.pause.wait(ctx)
		default:
			w.fail(err)
		}
	}
}

// begin joins the topic before it reads where the log ends: what is committed after that read, the topic
// hears of. It begins with no other log than that of id, unless that is 0.
func (w *watcher) begin(ctx context.Context, id int64) error {
	if w.cursor < 0 {
		return negative()
	}
	ctx, done := w.log.bound(ctx)
	defer done()
	for {
		s, err := w.log.lookup(ctx, w.ref)
		switch {
		case err != nil:
			return err
		case id != 0 && s.ID != id:
			return noStream(w.ref)
		}
		w.topic = w.log.hub.join(s.ID, w.ref, s.Tail)
		joined, err := w.log.lookup(ctx, w.ref)
		if err == nil && joined.ID == s.ID && w.cursor <= joined.Tail {
			w.goal = joined.Tail
			w.log.hub.reached(joined.ID, joined.Tail)
			if joined.Closed {
				w.log.hub.closed(joined.ID, joined.Tail)
			}
			return nil
		}
		w.log.hub.leave(w.topic)
		switch {
		case err != nil:
			return err
		case joined.ID == s.ID: // else it was deleted and made again in between
			return pastEnd(w.cursor, joined.Tail)
		}
	}
}

// step tells what is next, or waits until something is.
func (w *watcher) step(ctx context.Context) error {
	v := w.topic.look(w.cursor, w.told)
	if err := w.log.stopping(); err != nil { // after the look: the end of the log wakes who looked before it
		return err
	}
	switch {
	case v.deleted:
		return noStream(w.ref)
	case v.behind:
		return w.catchUp(ctx, v.last)
	case len(v.entries) > 0:
		w.tellEntries(ctx, v.entries, v.last)
	case !w.caughtUp && w.cursor >= w.goal:
		w.caughtUp = true
		w.tell(Event{CaughtUp: true, Seq: w.cursor})
	case v.closed:
		w.tell(Event{Closed: true, Seq: w.cursor})
		w.gone = true
	case len(v.deltas) > 0:
		w.tellDeltas(ctx, v.deltas)
	default:
		select {
		case <-v.changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// catchUp tells entries that the topic does not keep any more.
func (w *watcher) catchUp(ctx context.Context, last int64) error {
	reading, done := w.log.bound(ctx)
	defer done()
	entries, err := w.log.readOn(reading, w.ref, w.topic.id, w.cursor)
	if err != nil {
		return err
	}
	if len(entries) == 0 { // positions have no gap: the stream is gone
		return noStream(w.ref)
	}
	w.tellEntries(ctx, entries, last)
	return nil
}

// tellEntries tells entries; last is the furthest that the topic has.
func (w *watcher) tellEntries(ctx context.Context, entries []entry.Entry, last int64) {
	for i := range entries {
		if w.gone || ctx.Err() != nil || w.log.ctx.Err() != nil {
			return
		}
		w.cursor = entries[i].Seq
		delete(w.told, entries[i].ID)
		w.tell(Event{Entry: &entries[i], More: i+1 < len(entries) || w.cursor < last, Seq: w.cursor})
	}
}

func (w *watcher) tellDeltas(ctx context.Context, deltas []Delta) {
	if w.told == nil { // most tails never need it
		w.told = map[string]int64{}
	}
	for i := range deltas {
		if w.gone || ctx.Err() != nil || w.log.ctx.Err() != nil {
			return
		}
		d := &deltas[i]
		w.told[d.EntryID] = d.Offset + int64(len(d.Data))
		w.tell(Event{Delta: d, Seq: w.cursor})
	}
}

func (w *watcher) tell(e Event) { w.gone = !w.yield(e, nil) }

func (w *watcher) fail(err error) {
	w.gone = true
	w.yield(Event{}, err)
}
