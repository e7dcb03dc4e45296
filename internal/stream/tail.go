package stream

import (
	"context"
	"iter"
	"time"

	"github.com/arbe-dev/arbe/internal/stream/fanout"
)

// Event is one event of a tail: an entry, a delta, the fact that it has caught up, or that the log is closed.
type Event = fanout.Event

// Delta is a piece of an entry that is still being produced: live output, or text as a model writes it. It is not
// stored in the log and may be lost; the final entry is complete.
type Delta = fanout.Delta

// Tail sends every entry of a log after a position, in order, both existing and new ones, and the deltas that are
// published meanwhile. Ranging over it again starts again.
//
// The sequence ends without an error when ctx ends or the log is closed. Otherwise it ends with its one error:
// [fault.OutOfRange] if after is past the end, [fault.NotFound] if there is no such log or it was deleted, or
// [fault.Unavailable] if the Log is closed or the database cannot be reached at the start. Once it has started, a tail
// waits for the database to come back. If the database comes back without entries that the tail has sent, after counts
// as past the end.
func (l *Log) Tail(ctx context.Context, ref Ref, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		events, err := l.fanout.Watch(ctx, ref, 0, after)
		switch {
		case err == nil:
			events(yield)
		case ctx.Err() == nil:
			yield(Event{}, err)
		}
	}
}

// StartTail starts a [Log.Tail]: errors of its start are returned here and not by the sequence. If s has an id, a
// different log that has taken its name since is a [fault.NotFound]. The caller must range over the sequence once, in
// any goroutine; only that releases the log.
func (l *Log) StartTail(ctx context.Context, s Stream, after int64) (iter.Seq2[Event, error], error) {
	return l.fanout.Watch(ctx, s.Ref, s.ID, after)
}

// Publish sends a piece of an unfinished entry to the tails of a log on all servers. It does not wait for them, and a
// slow tail misses pieces. The bytes of an entry id never change, so pieces at offsets that were already sent are
// skipped. Errors: [fault.NotFound], and [fault.Invalid] for a negative offset or an entry id that is empty, longer
// than 200 bytes or not UTF-8.
func (l *Log) Publish(ctx context.Context, ref Ref, d Delta) error {
	if err := l.stopping(); err != nil {
		return err
	}
	return l.fanout.Publish(ctx, ref, d)
}

// Typing tells the tails of a log on all servers, with a delta, that an agent is writing something. It is not stored,
// and repeating it within two seconds has no effect. [Delta.Typing] reads it.
func (l *Log) Typing(ctx context.Context, ref Ref, agent string) error {
	return l.Publish(ctx, ref, fanout.Typing(agent, time.Now()))
}
