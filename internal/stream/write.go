package stream

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Write is an append that depends on the state of its log.
type Write struct {
	// ContentType is what Content is of; it must be the log's. It does not matter when there is none.
	ContentType string
	// Content is what to append, as [Drafts] makes it.
	Content []entry.Draft
	// Producer makes the append harmless to repeat; nil when it is not.
	Producer *Producer
	// Seq must be greater, byte by byte, than that of every earlier append that had one. Defaults to "", none.
	Seq string
	// Close makes it the last append.
	Close bool
}

// Producer numbers its appends. Of two that use the same name, the one with the higher epoch shuts the other out.
type Producer struct {
	Name string
	// Epoch grows when a producer starts anew, with Seq 0.
	Epoch int64
	// Seq grows by one with each append.
	Seq int64
}

// Verdict is what became of a [Write].
type Verdict int

// The verdicts. Only an Accepted write changed anything.
const (
	// Accepted: it is written, or the log is closed as it asked.
	Accepted Verdict = iota
	// Duplicate: its producer wrote it before.
	Duplicate
	// Closed: nothing is written to a closed log.
	Closed
	// OtherContent: the log's content is of another type.
	OtherContent
	// Fenced: another producer of this name came with a higher epoch.
	Fenced
	// NotFromStart: a new epoch begins at 0.
	NotFromStart
	// Gap: an append of the producer is missing before this one.
	Gap
	// SeqTooLow: its Seq is not greater than an earlier one.
	SeqTooLow
)

// Written is what became of a write.
type Written struct {
	Verdict Verdict
	// Stream is the log after it.
	Stream Stream
	// Producer is the last accepted append of the write's producer; nil when there is none.
	Producer *Producer
}

// Write appends to a log, or closes it, or both in one, if its state allows that. The log, its closing and its
// producer change together. It counts as a use of the log.
//
// Errors: those of [Log.Describe] and [Log.Append]; what the log's state forbids is a verdict, and no error.
func (l *Log) Write(ctx context.Context, ref Ref, w Write) (Written, error) {
	if err := l.stopping(); err != nil {
		return Written{}, err
	}
	if w.Producer == nil && w.Seq == "" && !w.Close {
		if done, err := l.writePlain(ctx, ref, w); fault.CodeOf(err) != fault.Precondition {
			return done, err
		}
		// It was closed a moment ago.
	}
	w.Content = withIDs(w.Content)
	var done Written
	var entries []entry.Entry
	tries := 0
	err := l.in(ctx, ref, func(tx txn) (err error) {
		tries++
		done, entries, err = l.writeTx(ctx, tx, ref, w, tries > 1)
		return err
	})
	if err != nil {
		return Written{}, err
	}
	if done.Verdict == Accepted {
		l.hub.offer(done.Stream.ID, entries)
		if done.Stream.Closed {
			l.hub.closed(done.Stream.ID, done.Stream.Tail)
		}
	}
	return done, nil
}

// writePlain is a write that depends on nothing but the type of its content, which a log keeps for life: it
// needs no lock, and shares its commit with others.
func (l *Log) writePlain(ctx context.Context, ref Ref, w Write) (Written, error) {
	s, err := l.Describe(ctx, ref)
	switch {
	case err != nil:
		return Written{}, err
	case s.Closed:
		return Written{Verdict: Closed, Stream: s}, nil
	case MediaType(w.ContentType) != MediaType(s.ContentType):
		return Written{Verdict: OtherContent, Stream: s}, nil
	}
	entries, err := l.Append(ctx, ref, w.Content...)
	if err != nil {
		return Written{}, err
	}
	l.use(s)
	if n := len(entries); n > 0 {
		s.Tail = entries[n-1].Seq
	}
	return Written{Stream: s}, nil
}

// writeTx decides about a write, and does it. again says that an earlier try may have been committed.
func (l *Log) writeTx(ctx context.Context, tx txn, ref Ref, w Write, again bool) (done Written, entries []entry.Entry, err error) {
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
		// What was committed before a connection broke was accepted then: the log was as it left it.
		switch wrote, err := queries.GetEntry(ctx, tx, s.ID, w.Content[n-1].ID); {
		case err == nil:
			s.Tail, s.Closed = wrote.Seq, w.Close
			return done, nil, nil
		case !errors.Is(err, pgx.ErrNoRows):
			return done, nil, err
		}
	}
	if done.Verdict = s.judge(w, last); done.Verdict != Accepted {
		return done, nil, nil
	}
	done.Producer = w.Producer
	if entries, err = l.change(ctx, tx, s, w); err != nil {
		return done, nil, err
	}
	return done, entries, nil
}

// judge decides about a write by the state of a log and of the write's producer.
func (s Stream) judge(w Write, last *lastWrite) Verdict {
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

// lastWrite is the last accepted append of a producer.
type lastWrite struct {
	Producer
	closed bool
}

func (l *lastWrite) producer() *Producer {
	if l == nil {
		return nil
	}
	return &l.Producer
}

func lastOf(ctx context.Context, tx txn, stream int64, p Producer) (*lastWrite, error) {
	row, err := queries.GetProducer(ctx, tx, stream, p.Name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &lastWrite{Producer{p.Name, row.Epoch, row.Seq}, row.Closed}, err
}

// after decides whether an append comes next after the last one of its producer.
func (p Producer) after(last *lastWrite) Verdict {
	switch {
	case last == nil && p.Seq == 0:
		return Accepted
	case last == nil:
		return Gap
	case p.Epoch < last.Epoch:
		return Fenced
	case p.Epoch > last.Epoch && p.Seq != 0:
		return NotFromStart
	case p.Epoch > last.Epoch || p.Seq == last.Seq+1:
		return Accepted
	case p.Seq <= last.Seq:
		return Duplicate
	}
	return Gap
}

// change does an accepted write, and brings s up to date.
func (l *Log) change(ctx context.Context, tx txn, s *Stream, w Write) (entries []entry.Entry, err error) {
	if len(w.Content) > 0 {
		if entries, err = l.AppendTx(ctx, tx, s.Ref, w.Content...); err != nil {
			return nil, err
		}
		s.Tail = max(s.Tail, entries[len(entries)-1].Seq) // an earlier one, when it was written before
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
