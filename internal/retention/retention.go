// Package retention deletes what a house no longer wants to keep: inactive threads, old artifacts, and the oldest of either
// if together they are too large.
//
// It leaves a mark for each deletion, so that a link can say why its target is gone.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
)

// The kinds of things that a retention deletes.
const (
	Thread   = "thread"
	Artifact = "artifact"
)

// MaxDays is the longest time that can be set, in days.
const MaxDays = 3650

// MarksKept is how long a link to a deleted thread or artifact says why it is gone.
const MarksKept = 400 * 24 * time.Hour

// batch limits what one transaction deletes, and perSweep the threads of a house that one sweep deletes: each is a transaction.
const batch, perSweep = 1000, 1000

// Config has what a [Retention] needs. All fields are required.
type Config struct {
	DB *db.DB
	// DeleteThreadTx deletes a thread, its child threads, and everything of theirs that nothing else uses.
	DeleteThreadTx func(ctx context.Context, tx pgx.Tx, scope db.Scope, id string) error
	Logger         *slog.Logger
}

// Retention deletes old threads and artifacts. It is safe for concurrent use.
type Retention struct {
	Config
	q *query.Queries
}

// New returns a Retention.
func New(c Config) *Retention { return &Retention{c, query.New()} }

// Keep is the retention of a house: the days after which things are deleted, and the bytes beyond which the oldest are
// deleted. 0 means no limit.
type Keep struct {
	ThreadsDays, ArtifactsDays   int
	ThreadsBytes, ArtifactsBytes int64
}

// quietFor is how long a thread must be inactive before it may be deleted to reduce the total size.
const quietFor = time.Hour

// Stale counts the threads and artifacts that are too old, or beyond the size limit.
type Stale struct{ Threads, Artifacts, ArtifactBytes int64 }

// Preview counts what a retention would delete now in the scope's house.
func (r *Retention) Preview(ctx context.Context, scope db.Scope, as Keep) (found Stale, err error) {
	err = r.DB.In(ctx, scope, func(tx pgx.Tx) error {
		row, err := r.q.CountStale(ctx, tx, query.CountStaleParams{
			HouseID: scope.House, ThreadsBefore: before(as.ThreadsDays), ArtifactsBefore: before(as.ArtifactsDays),
			QuietBefore: time.Now().Add(-quietFor), ThreadsBytes: as.ThreadsBytes, ArtifactsBytes: as.ArtifactsBytes,
		})
		found = Stale{row.Threads, row.Artifacts, row.Bytes}
		return err
	})
	return found, err
}

func (r *Retention) keepTx(ctx context.Context, tx pgx.Tx, house string) (Keep, error) {
	row, err := r.q.RetentionOf(ctx, tx, house)
	if errors.Is(err, pgx.ErrNoRows) { // deleted meanwhile
		return Keep{}, nil
	}
	return Keep{int(row.KeepThreadsDays), int(row.KeepArtifactsDays), int64(row.KeepThreadsMb) << 20, int64(row.KeepArtifactsMb) << 20}, err
}

// before returns the time before which things are old; the zero time, before which nothing is, for 0 days.
func before(days int) time.Time {
	if days == 0 {
		return time.Time{}
	}
	return time.Now().AddDate(0, 0, -days)
}

// Sweep deletes the old threads and artifacts of all houses, and marks older than [MarksKept]. If one house fails, it
// continues with the others.
func (r *Retention) Sweep(ctx context.Context) error {
	var houses []string
	err := r.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
		houses, err = r.q.HousesWithRetention(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	if err := r.dropMarks(ctx, time.Now().Add(-MarksKept)); err != nil {
		return err
	}
	for _, house := range houses {
		if err := r.sweep(ctx, db.Scope{House: house}); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.Logger.WarnContext(ctx, "the retention of a house failed, and is tried again in an hour", "house", house, "error", fault.From(err).Detail())
		}
	}
	return nil
}

// dropMarks deletes the marks that were left before a time. Otherwise their number would grow without limit.
func (r *Retention) dropMarks(ctx context.Context, before time.Time) error {
	for n := int64(batch); n == batch; {
		err := r.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
			n, err = r.q.DropExpired(ctx, tx, before, batch)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Retention) sweep(ctx context.Context, scope db.Scope) error {
	// Things that are too old are deleted first, so that they do not count towards the size limit.
	for _, step := range []func(context.Context, db.Scope) error{r.sweepOldThreads, r.sweepExcessThreads, r.sweepOldArtifacts, r.sweepExcessArtifacts} {
		if err := step(ctx, scope); err != nil {
			return err
		}
	}
	return nil
}

func (r *Retention) sweepOldThreads(ctx context.Context, scope db.Scope) error {
	var threads []string
	err := r.DB.In(ctx, scope, func(tx pgx.Tx) error {
		keep, err := r.keepTx(ctx, tx, scope.House)
		if err == nil && keep.ThreadsDays > 0 {
			threads, err = r.q.StaleThreads(ctx, tx, scope.House, before(keep.ThreadsDays), perSweep)
		}
		return err
	})
	for _, id := range threads {
		if err == nil {
			err = r.DB.In(ctx, scope, func(tx pgx.Tx) error {
				keep, err := r.keepTx(ctx, tx, scope.House)
				if err != nil || keep.ThreadsDays == 0 {
					return err
				}
				if stale, err := r.q.IsStaleThread(ctx, tx, id, scope.House, before(keep.ThreadsDays)); err != nil || !stale {
					return err
				}
				return r.deleteThreadTx(ctx, tx, scope, id, keep.ThreadsDays)
			})
		}
	}
	return err
}

// sweepExcessThreads finds the threads beyond the size limit only once, because that reads all threads of the house. It does
// not notice what others delete meanwhile.
func (r *Retention) sweepExcessThreads(ctx context.Context, scope db.Scope) error {
	var threads []string
	quiet := time.Now().Add(-quietFor)
	err := r.DB.In(ctx, scope, func(tx pgx.Tx) error {
		keep, err := r.keepTx(ctx, tx, scope.House)
		if err == nil && keep.ThreadsBytes > 0 {
			threads, err = r.q.ExcessThreads(ctx, tx, query.ExcessThreadsParams{HouseID: scope.House, Before: quiet, Bytes: keep.ThreadsBytes, MaxRows: perSweep})
		}
		return err
	})
	for _, id := range threads {
		if err == nil {
			err = r.DB.In(ctx, scope, func(tx pgx.Tx) error {
				keep, err := r.keepTx(ctx, tx, scope.House)
				if err != nil || keep.ThreadsBytes == 0 {
					return err
				}
				if still, err := r.q.IsQuietThread(ctx, tx, quiet, id, scope.House); err != nil || !still {
					return err
				}
				return r.deleteThreadTx(ctx, tx, scope, id, 0)
			})
		}
	}
	return err
}

func (r *Retention) sweepOldArtifacts(ctx context.Context, scope db.Scope) error {
	return r.inBatches(ctx, scope, func(tx pgx.Tx, keep Keep) (int64, error) {
		if keep.ArtifactsDays == 0 {
			return 0, nil
		}
		return r.q.ExpireArtifacts(ctx, tx, query.ExpireArtifactsParams{
			Days: int32(keep.ArtifactsDays), HouseID: scope.House, Before: before(keep.ArtifactsDays), MaxRows: batch,
		})
	})
}

func (r *Retention) sweepExcessArtifacts(ctx context.Context, scope db.Scope) error {
	return r.inBatches(ctx, scope, func(tx pgx.Tx, keep Keep) (int64, error) {
		if keep.ArtifactsBytes == 0 {
			return 0, nil
		}
		return r.q.ExpireExcess(ctx, tx, scope.House, keep.ArtifactsBytes, batch)
	})
}

// inBatches calls f, each time in a transaction of its own, until it deletes less than a batch.
func (r *Retention) inBatches(ctx context.Context, scope db.Scope, f func(pgx.Tx, Keep) (int64, error)) error {
	for n := int64(batch); n == batch; {
		err := r.DB.In(ctx, scope, func(tx pgx.Tx) error {
			keep, err := r.keepTx(ctx, tx, scope.House)
			if err == nil {
				n, err = f(tx, keep)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteThreadTx deletes a thread and its child threads, and notes the reason: the days after which it was old, or 0
// for the size limit.
func (r *Retention) deleteThreadTx(ctx context.Context, tx pgx.Tx, scope db.Scope, id string, days int) error {
	if err := r.q.NoteRetention(ctx, tx); err != nil {
		return err
	}
	if err := r.q.ExpireThreads(ctx, tx, int32(days), id); err != nil {
		return err
	}
	return r.DeleteThreadTx(ctx, tx, scope, id)
}

// Explain replaces err, which says that a thing does not exist, by an error that says that a retention deleted it. It
// returns err if no retention did, or if the scope's agent may not know. A scope without a house means all houses of its
// agent.
func (r *Retention) Explain(ctx context.Context, scope db.Scope, kind, id string, err error) error {
	if fault.CodeOf(err) != fault.NotFound {
		return err
	}
	var days int32
	failed := r.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
		days, err = r.q.ExpiredAfter(ctx, tx, kind, id)
		return err
	})
	if failed != nil { // err is true in any case
		return err
	}
	why := "after %d days without activity"
	if kind == Artifact {
		why = "after %d days"
	}
	why = fmt.Sprintf(why, days)
	if days == 0 {
		why = "because it was among the oldest, and all " + kind + "s together were too large"
	}
	return fault.New(fault.NotFound, "this "+kind+" was deleted by the house's retention "+why, "it cannot be restored; owners set what the house keeps with: arbe house retention").WithReason(fault.Expired).Because(err)
}
