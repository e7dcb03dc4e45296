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
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(l.ctx, cancel)()

		w := watcher{log: l, ref: ref, cursor: after, yield: yield}
		err := w.run(inner)
		if w.gone || ctx.Err() != nil {
			return
		}
		if stopping := l.stopping(); stopping != nil {
			err = stopping
		}
		yield(Event{}, err)
	}
}

// watcher is a running Tail: a cursor, and how far it has told each preview.
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

// run ends with an error, or because the consumer is gone.
func (w *watcher) run(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	defer w.log.hub.leave(w.topic)
	for !w.gone {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.step(ctx); err != nil {
			if !passing(err) || !w.pause.wait(ctx) {
				return err
			}
			continue
		}
		w.pause = backoff{}
	}
	return nil
}

// begin joins the topic before it reads where the log ends: what is committed after that read, the topic
// hears of.
func (w *watcher) begin(ctx context.Context) error {
	if w.cursor < 0 {
		return negative()
	}
	for {
		s, err := w.log.lookup(ctx, w.ref)
		if err != nil {
			return err
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
	switch v := w.topic.look(w.cursor, w.told); {
	case v.deleted:
		return noStream(w.ref)
	case v.behind:
		entries, err := w.log.readOn(ctx, w.ref, w.topic.id, w.cursor)
		if err != nil {
			return err
		}
		if len(entries) == 0 { // positions have no gap: the stream is gone
			return noStream(w.ref)
		}
		w.tellEntries(ctx, entries, v.last)
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

// tellEntries tells entries; last is the furthest that the topic has.
func (w *watcher) tellEntries(ctx context.Context, entries []entry.Entry, last int64) {
	for i := range entries {
		if ctx.Err() != nil || w.gone {
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
		if ctx.Err() != nil || w.gone {
			return
		}
		d := &deltas[i]
		w.told[d.EntryID] = d.Offset + int64(len(d.Data))
		w.tell(Event{Delta: d, Seq: w.cursor})
	}
}

func (w *watcher) tell(e Event) { w.gone = !w.yield(e, nil) }
