package stream

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// ErrGone is the cause of the [fault.NotFound] of a log that was deleted while it has forks: its name stays
// taken until the last of them is deleted too.
var ErrGone = errors.New("the stream was deleted, and has forks")

// errExpired is the cause of the [fault.NotFound] of a log whose time is over, and which nobody cleared away yet.
var errExpired = errors.New("the stream has expired")

// Stream is what a log is, beside its entries.
type Stream struct {
	Ref
	// ID is the log's own: a log of the same name that is made after it was deleted has another one.
	ID int64
	// ContentType is the media type of its content, as its maker wrote it.
	ContentType string
	// Tail is the position of its last entry.
	Tail int64
	// Closed says that nothing will ever be written behind Tail.
	Closed bool
	// TTL is how long it outlives its last use; nil when use does not prolong it.
	TTL *time.Duration
	// ExpiresAt is when it ends, unless it is used before; zero when it does not.
	ExpiresAt time.Time

	fork    *fork
	lastSeq string
}

// fork is what a log was forked from.
type fork struct {
	source   string
	seq, sub int64
}

// Describe says what a log is. Errors: [fault.NotFound], because of [ErrGone] when
// it was deleted and has forks.
func (l *Log) Describe(ctx context.Context, ref Ref) (s Stream, err error) {
	err = l.in(ctx, ref, func(tx txn) error {
		s, err = describe(ctx, tx, ref)
		return err
	})
	return s, err
}

// Use is Describe, and counts as a use.
func (l *Log) Use(ctx context.Context, ref Ref) (Stream, error) {
	s, err := l.Describe(ctx, ref)
	if err == nil {
		l.use(s)
	}
	return s, err
}

// ReadFrom returns what a log is and its first entries after a position: a page, which reaches the end when
// its last entry is at the log's Tail. It counts as a use. Errors: those of Describe and [Log.Read].
func (l *Log) ReadFrom(ctx context.Context, ref Ref, after int64) (s Stream, entries []entry.Entry, err error) {
	err = l.in(ctx, ref, func(tx txn) error {
		if s, err = describe(ctx, tx, ref); err != nil {
			return err
		}
		if after > s.Tail {
			return pastEnd(after, s.Tail)
		}
		entries, err = page(ctx, tx, ref, s.ID, Range{After: after, Before: s.Tail + 1, Limit: pageRows}, readBytes)
		return err
	})
	if err == nil {
		l.use(s)
	}
	return s, entries, err
}

// use notes that a log is in use, which prolongs a life that depends on it.
func (l *Log) use(s Stream) {
	if s.TTL != nil {
		l.uses.note(s.ID)
	}
}

// Delete deletes a log. When it has forks they stay readable, and its name stays taken until the last of them
// is deleted. Errors: those of Describe. Who deletes a thread deletes its log with it, and not this way.
func (l *Log) Delete(ctx context.Context, ref Ref) error {
	return l.in(ctx, ref, func(tx txn) error {
		s, err := lock(ctx, tx, ref)
		if err != nil {
			return err
		}
		return queries.DeleteOwnStream(ctx, tx, s.ID)
	})
}

// lock describes a log and holds it until the transaction ends: nobody else writes into it.
func lock(ctx context.Context, tx txn, ref Ref) (Stream, error) {
	// In two statements, so that the second one sees what was committed before the lock was granted.
	if err := queries.LockStream(ctx, tx, ref.House, ref.Name); err != nil {
		return Stream{}, err
	}
	return describe(ctx, tx, ref)
}

func describe(ctx context.Context, tx txn, ref Ref) (Stream, error) {
	row, err := queries.DescribeStream(ctx, tx, ref.House, ref.Name)
	if errors.Is(err, pgx.ErrNoRows) {
		return Stream{}, noStream(ref).Because(err)
	}
	if err != nil {
		return Stream{}, err
	}
	s := fromStreamRow(ref, row)
	switch {
	case row.Deleted:
		return s, fault.Newf(fault.NotFound, "use another name, or delete its forks", "stream %s was deleted", ref.Name).Because(ErrGone)
	case row.Expired:
		return s, noStream(ref).Because(errExpired)
	}
	return s, nil
}

func fromStreamRow(ref Ref, row query.DescribeStreamRow) Stream {
	s := Stream{
		Ref: ref, ID: row.ID, ContentType: row.ContentType, Tail: row.Tail, Closed: row.Closed,
		ExpiresAt: db.Zero(row.ExpiresAt), lastSeq: row.LastStreamSeq,
	}
	if row.TtlSeconds != nil {
		ttl := time.Duration(*row.TtlSeconds) * time.Second
		s.TTL = &ttl
	}
	if row.ForkSeq != nil {
		s.fork = &fork{row.Source, *row.ForkSeq, db.Zero(row.ForkSub)}
	}
	return s
}
