// Package store accesses the log's streams in Postgres. It has the transactions, which are retried after transient
// failures, the statements that read and append entries in them, and the translation of Postgres' errors.
//
// It is the base of the log's other packages and imports none of them.
package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

const (
	// RetryFor is how long a call retries while the database drops connections. One retry would not do, because a
	// restart of Postgres leaves a pool full of dead connections, and each attempt discovers one.
	RetryFor = 5 * time.Second
	// StatementTimeout is how long Postgres may take for a statement that waits for no lock, and for a new connection.
	// If the other end is gone, it would never answer.
	StatementTimeout = 10 * time.Second
)

// Store accesses the streams of a database. It is safe for concurrent use.
type Store struct {
	DB *db.DB
}

var queries = query.New()

// In runs f in a transaction that sees ref's house, and explains its error. It runs f again after a transient failure,
// even if it is unknown whether the first run was committed: repeating f must be harmless.
func (s *Store) In(ctx context.Context, ref Ref, f func(tx pgx.Tx) error) error {
	start := time.Now()
	var pause Backoff
	for {
		err := s.DB.In(ctx, db.Scope{House: ref.House, GenericPlans: true}, f)
		if err == nil {
			return nil
		}
		if !IsTransient(err) || time.Since(start) > RetryFor || !pause.Wait(ctx) {
			return Explain(ref, err)
		}
	}
}

// End is where a stream ends.
type End struct {
	// ID is the stream's id, which is never reused.
	ID int64
	// Tail is the position of the last entry.
	Tail int64
	// Closed reports that no entry will follow.
	Closed bool
}

// Find finds a stream by its name.
func (s *Store) Find(ctx context.Context, ref Ref) (end End, err error) {
	err = s.In(ctx, ref, func(tx pgx.Tx) error {
		end, err = FindTx(ctx, tx, ref)
		return err
	})
	return end, err
}

// FindTx is [Store.Find] in a transaction. Its error is not explained.
func FindTx(ctx context.Context, tx pgx.Tx, ref Ref) (End, error) {
	row, err := queries.GetStream(ctx, tx, ref.House, ref.Name)
	return End(row), err
}

// Ends returns where streams of all houses end. It leaves out streams that are gone.
func (s *Store) Ends(ctx context.Context, ids []int64) (map[int64]End, error) {
	var found []query.StreamTailsRow
	var closed []int64
	err := s.In(ctx, Ref{}, func(tx pgx.Tx) (err error) {
		// In this order, because a stream that is closed now still has the end that it had when it was closed.
		if closed, err = queries.ClosedStreams(ctx, tx, ids); err != nil {
			return err
		}
		found, err = queries.StreamTails(ctx, tx, ids)
		return err
	})
	ends := make(map[int64]End, len(found))
	for _, row := range found {
		ends[row.ID] = End{ID: row.ID, Tail: row.Tail}
	}
	for _, id := range closed {
		if end, there := ends[id]; there {
			end.Closed = true
			ends[id] = end
		}
	}
	return ends, err
}

// RecordUse records when streams of all houses were last used.
func (s *Store) RecordUse(ctx context.Context, ids []int64, used []time.Time) error {
	return s.In(ctx, Ref{}, func(tx pgx.Tx) error { return queries.TouchStreams(ctx, tx, ids, used) })
}

// DeleteExpired deletes the streams of all houses that expired before a time.
func (s *Store) DeleteExpired(ctx context.Context, before time.Time) error {
	return db.Explain(queries.DeleteExpiredStreams(ctx, s.DB.Pool(), before)) // not in a [db.DB.In], because it may take long
}

// NotifyDeltas notifies all servers of pieces of previews.
func (s *Store) NotifyDeltas(ctx context.Context, payloads []string) error {
	return db.Explain(queries.NotifyDeltas(ctx, s.DB.Pool(), payloads)) // for all houses
}
