package stream

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// ErrGone is the cause of the [fault.NotFound] of a deleted log that still has forks. It and its name stay until the
// last fork is deleted, because the forks read their inherited entries from it.
var ErrGone = errors.New("the stream was deleted, but forks of it remain")

// errExpired is the cause of the [fault.NotFound] of a log that has expired but is not deleted yet.
var errExpired = errors.New("the stream has expired")

// Stream describes a log without its entries.
type Stream struct {
	Ref
	// ID identifies the log. If a log is deleted and created again under the same name, it has another id.
	ID int64
	// ContentType is the media type of the content, as given at creation.
	ContentType string
	// Tail is the position of the last entry.
	Tail int64
	// Closed reports that the log accepts no more entries.
	Closed bool
	// TTL is how long the log lives after its last use; nil if use does not extend its life.
	TTL *time.Duration
	// ExpiresAt is when the log expires unless it is used before; zero if it does not expire.
	ExpiresAt time.Time

	fork    *fork
	lastSeq string
}

// fork is the point that a log was forked from.
type fork struct {
	source   string
	seq, sub int64
}

// Describe returns the description of a log. The error is a [fault.NotFound], with cause [ErrGone] if the log was
// deleted and has forks.
func (l *Log) Describe(ctx context.Context, ref Ref) (s Stream, err error) {
	err = l.store.In(ctx, ref, func(tx pgx.Tx) error {
		s, err = describe(ctx, tx, ref)
		return err
	})
	return s, err
}

// Use is Describe, and counts as a use of the log.
func (l *Log) Use(ctx context.Context, ref Ref) (Stream, error) {
	s, err := l.Describe(ctx, ref)
	if err == nil {
		l.use(s)
	}
	return s, err
}

// use records a use of a log, if its life depends on use.
func (l *Log) use(s Stream) {
	if s.TTL != nil {
		l.expiry.record(s.ID)
	}
}

// KeepInUse keeps a log from expiring until ctx ends. Followers need it, because they may wait longer than the TTL.
func (l *Log) KeepInUse(ctx context.Context, s Stream) {
	if s.TTL == nil {
		return
	}
	// Several times per TTL, so that one late record does not let the log expire.
	every := max(*s.TTL/4, recordEvery)
	go func() {
		for ctx.Err() == nil && l.ctx.Err() == nil {
			l.use(s)
			select {
			case <-time.After(every):
			case <-ctx.Done():
			case <-l.ctx.Done():
			}
		}
	}()
}

// Delete deletes a log. Its forks stay readable, and its name stays taken until the last of them is deleted. A thread's
// log is deleted with its thread, not with Delete. Errors: those of Describe.
func (l *Log) Delete(ctx context.Context, ref Ref) error {
	return l.store.In(ctx, ref, func(tx pgx.Tx) error {
		s, err := lock(ctx, tx, ref)
		if err != nil {
			return err
		}
		return queries.DeleteOwnStream(ctx, tx, s.ID)
	})
}

// lock describes a log and locks it against other writers until the transaction ends.
func lock(ctx context.Context, tx pgx.Tx, ref Ref) (Stream, error) {
	// Two statements are needed so that the second sees what was committed before the lock was granted.
	if err := queries.LockStream(ctx, tx, ref.House, ref.Name); err != nil {
		return Stream{}, err
	}
	return describe(ctx, tx, ref)
}

// describe reads the description of a log. It also returns that of a deleted or expired one beside the error, because
// create needs the id of an expired log to replace it.
func describe(ctx context.Context, tx pgx.Tx, ref Ref) (Stream, error) {
	row, err := queries.DescribeStream(ctx, tx, ref.House, ref.Name)
	if errors.Is(err, pgx.ErrNoRows) {
		return Stream{}, store.NoStream(ref).Because(err)
	}
	if err != nil {
		return Stream{}, err
	}
	s := fromStreamRow(ref, row)
	switch {
	case row.Deleted:
		return s, fault.Newf(fault.NotFound, "use another name, or delete its forks", "stream %s was deleted", ref.Name).Because(ErrGone)
	case row.Expired:
		return s, store.NoStream(ref).Because(errExpired)
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
