package stream

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/commit"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// Write is an append that depends on the state of its log.
type Write struct {
	// ContentType is the type of Content and must be the log's. It is ignored if Content is empty.
	ContentType string
	// Content are the drafts to append, made by [Drafts].
	Content []entry.Draft
	// Producer makes the append idempotent; nil if it is not.
	Producer *Producer
	// Seq must be greater, byte by byte as the protocol requires, than that of every earlier append that had one.
	// Defaults to "": none.
	Seq string
	// Close makes this the last append.
	Close bool
}

// Written is the result of a [Write].
type Written struct {
	Outcome WriteOutcome
	// Stream describes the log after the write.
	Stream Stream
	// Producer is the last accepted append of the write's producer; nil if there is none.
	Producer *Producer
}

// Write appends to a log, closes it, or both, if its state allows that. The entries, the closing and the producer's
// position change together. It counts as a use of the log.
//
// Errors: those of [Log.Describe] and [Log.Append]. If the log's state forbids the write, that is an outcome and not an
// error.
func (l *Log) Write(ctx context.Context, ref Ref, w Write) (Written, error) {
	if err := l.stopping(); err != nil {
		return Written{}, err
	}
	if w.Producer == nil && w.Seq == "" && !w.Close {
		if done, err := l.writePlain(ctx, ref, w); fault.CodeOf(err) != fault.Precondition {
			return done, err
		}
		// The log was closed a moment ago: below, its state is read under its lock.
	}
	w.Content = withIDs(w.Content)
	var done Written
	var entries []entry.Entry
	tries := 0
	err := l.store.In(ctx, ref, func(tx pgx.Tx) (err error) {
		tries++
		done, entries, err = l.writeTx(ctx, tx, ref, w, tries > 1)
		return err
	})
	if err != nil {
		return Written{}, err
	}
	if done.Outcome == Accepted {
		l.fanout.Offer(done.Stream.ID, func() []entry.Entry { return entries })
		if done.Stream.Closed {
			l.fanout.Closed(done.Stream.ID, done.Stream.Tail)
		}
	}
	return done, nil
}

// WriteTx is [Log.Write] in the caller's transaction, whose scope must be ref's house. It also returns the entries of
// an accepted write, one per draft. It holds the log's lock until the transaction ends.
func (l *Log) WriteTx(ctx context.Context, tx pgx.Tx, ref Ref, w Write) (done Written, entries []entry.Entry, err error) {
	if err := l.stopping(); err != nil {
		return Written{}, nil, err
	}
	w.Content = withIDs(w.Content)
	done, entries, err = l.writeTx(ctx, tx, ref, w, false)
	return done, entries, store.Explain(ref, err)
}

// writePlain does a write that depends only on the log's content type, which never changes. It therefore needs no lock
// and shares its commit with other appends. For a log that was written to recently it needs no query first.
func (l *Log) writePlain(ctx context.Context, ref Ref, w Write) (Written, error) {
	w.Content = withIDs(w.Content) // so that a repeated attempt writes the same entries
	if done, known, err := l.writeKnown(ctx, ref, w); known || err != nil {
		return done, err
	}
	for {
		s, err := l.Describe(ctx, ref)
		switch {
		case err != nil:
			return Written{}, err
		case s.Closed:
			return Written{Outcome: Closed, Stream: s}, nil
		case !s.accepts(w):
			return Written{Outcome: OtherContent, Stream: s}, nil
		}
		l.commit.Remember(ref, s.ID, s.ContentType, s.TTL != nil || !s.ExpiresAt.IsZero())
		entries, err := l.commit.Append(ctx, ref, s.ID, w.Content)
		if errors.Is(err, commit.ErrMoved) {
			continue
		} else if err != nil {
			return Written{}, err
		}
		l.use(s)
		return s.accepted(entries), nil
	}
}

// writeKnown writes to a log that was written to recently. known is false if nothing was written.
func (l *Log) writeKnown(ctx context.Context, ref Ref, w Write) (done Written, known bool, err error) {
	id, contentType, known := l.commit.Recall(ref)
	s := Stream{Ref: ref, ID: id, ContentType: contentType}
	if !known || len(w.Content) == 0 || !s.accepts(w) {
		return Written{}, false, nil
	}
	entries, err := l.commit.Append(ctx, ref, s.ID, w.Content)
	if err == nil {
		return s.accepted(entries), true, nil
	}
	if fault.CodeOf(err) == fault.NotFound || errors.Is(err, commit.ErrMoved) {
		return Written{}, false, nil // it was deleted, or replaced by another of its name: describe it again to find the outcome
	}
	return Written{}, false, err
}

// accepts reports whether a write has the content type of the stream.
func (s Stream) accepts(w Write) bool { return MediaType(w.ContentType) == MediaType(s.ContentType) }

// accepted returns the result of a plain write of these entries.
func (s Stream) accepted(entries []entry.Entry) Written {
	if n := len(entries); n > 0 {
		s.Tail = entries[n-1].Seq
	}
	return Written{Stream: s}
}

// writeTx decides about a write and does it. again reports that an earlier attempt may have been committed.
func (l *Log) writeTx(ctx context.Context, tx pgx.Tx, ref Ref, w Write, again bool) (done Written, entries []entry.Entry, err error) {
	if done.Stream, err = lock(ctx, tx, ref); err != nil {
		return done, nil, err
	}
	s := &done.Stream
	var last *lastWrite
	if w.Producer != nil {
		if last, err = lastOf(ctx, tx, s.ID, *w.Producer); err != nil {
			return done, nil, err
		}
		done.Producer = last.producer()
	}
	if n := len(w.Content); again && n > 0 {
		// An earlier attempt may have been committed before its connection broke. If the log has its last entry, the
		// write was accepted, because a refused write leaves no entries.
		switch wrote, err := store.Get(ctx, tx, ref, s.ID, w.Content[n-1].ID); {
		case err == nil:
			s.Tail, s.Closed = wrote.Seq, w.Close
			return done, nil, nil
		case fault.CodeOf(err) != fault.NotFound:
			return done, nil, err
		}
	}
	if done.Outcome = s.decide(w, last); done.Outcome != Accepted {
		return done, nil, nil
	}
	done.Producer = w.Producer
	if entries, err = l.apply(ctx, tx, s, w); err != nil {
		return done, nil, err
	}
	return done, entries, nil
}

// decide returns the outcome of a write from the state of the log and of the write's producer. The protocol fixes the
// order of the checks. The producer comes before Seq, because a repeated append has a Seq that is no longer greater and
// must still be a Duplicate.
func (s Stream) decide(w Write, last *lastWrite) WriteOutcome {
	switch {
	case s.Closed && w.Producer != nil:
		if last != nil && last.closed && last.Producer == *w.Producer {
			return Duplicate
		}
		return Closed
	case s.Closed && w.Close && len(w.Content) == 0:
		return Accepted
	case s.Closed:
		return Closed
	case len(w.Content) > 0 && MediaType(w.ContentType) != MediaType(s.ContentType):
		return OtherContent
	}
	if w.Producer != nil {
		if v := w.Producer.after(last); v != Accepted {
			return v
		}
	}
	if w.Seq != "" && w.Seq <= s.lastSeq {
		return SeqTooLow
	}
	return Accepted
}

func lastOf(ctx context.Context, tx pgx.Tx, stream int64, p Producer) (*lastWrite, error) {
	row, err := queries.GetProducer(ctx, tx, stream, p.Name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &lastWrite{Producer{p.Name, row.Epoch, row.Seq}, row.Closed}, err
}

// apply does an accepted write and updates s.
func (l *Log) apply(ctx context.Context, tx pgx.Tx, s *Stream, w Write) (entries []entry.Entry, err error) {
	if len(w.Content) > 0 {
		if entries, err = l.AppendTx(ctx, tx, s.Ref, w.Content...); err != nil {
			return nil, err
		}
		s.Tail = max(s.Tail, entries[len(entries)-1].Seq) // entries that were already there may be before the tail
	}
	if w.Seq != "" || s.TTL != nil {
		if err := queries.UpdateStream(ctx, tx, db.Null(w.Seq), s.ID); err != nil {
			return nil, err
		}
	}
	if w.Close && !s.Closed {
		if err := queries.CloseOwnStream(ctx, tx, s.ID); err != nil {
			return nil, err
		}
		s.Closed = true
	}
	if p := w.Producer; p != nil {
		err = queries.PutProducer(ctx, tx, query.PutProducerParams{
			StreamID: s.ID, HouseID: s.House, Name: p.Name, Epoch: p.Epoch, Seq: p.Seq, Closed: w.Close,
		})
	}
	return entries, err
}
