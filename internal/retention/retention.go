// Package retention deletes what houses do not want to keep: threads in which nothing happened for long, and old artifacts.
//
// It leaves a mark of each, so that a link to it says why it is gone.
package retention

import (
	"context"
	"errors"
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

// MarksKept is how long a link to something that was deleted says why.
const MarksKept = 400 * 24 * time.Hour

// batch limits what one transaction deletes, and perSweep the threads of a house that one sweep deletes: each is a transaction.
const batch, perSweep = 1000, 1000

// Config has what a [Retention] needs. All fields are required.
type Config struct {
	DB *db.DB
	// DeleteThreadTx deletes a thread, what is below it, and what nothing else uses of it.
	DeleteThreadTx func(ctx context.Context, tx pgx.Tx, scope db.Scope, id string) error
	Logger         *slog.Logger
}

// Retention deletes what is old. It is safe for concurrent use.
type Retention struct {
	Config
	q *query.Queries
}

// New returns a Retention.
func New(c Config) *Retention { return &Retention{c, query.New()} }

// Days says after how many days things are deleted; 0 is never.
type Days struct{ Threads, Artifacts int }

// Stale counts what is old.
type Stale struct{ Threads, Artifacts, ArtifactBytes int64 }

// Preview returns what would be deleted now in the scope's house.
func (r *Retention) Preview(ctx context.Context, scope db.Scope, as Days) (found Stale, err error) {
	err = r.DB.In(ctx, scope, func(tx pgx.Tx) error {
		row, err := r.q.CountStale(ctx, tx, scope.House, before(as.Threads), before(as.Artifacts))
		found = Stale{row.Threads, row.Artifacts, row.Bytes}
		return err
	})
	return found, err
}

func (r *Retention) daysTx(ctx context.Context, tx pgx.Tx, house string) (Days, error) {
	row, err := r.q.RetentionOf(ctx, tx, house)
	if errors.Is(err, pgx.ErrNoRows) { // deleted meanwhile
		return Days{}, nil
	}
	return Days{int(row.KeepThreadsDays), int(row.KeepArtifactsDays)}, err
}

// before returns the time before which things are old. Nothing is older than the zero time.
func before(days int) time.Time {
	if days == 0 {
		return time.Time{}
	}
	return time.Now().AddDate(0, 0, -days)
}

// Sweep deletes what is old in all houses, and marks older than [MarksKept]. One house that fails does not keep the others from it.
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

// dropMarks deletes the marks of what was deleted before a time. Otherwise they would grow for ever.
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
	var days Days
	var threads []string
	err := r.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
		if days, err = r.daysTx(ctx, tx, scope.House); err == nil && days.Threads > 0 {
			threads, err = r.q.StaleThreads(ctx, tx, scope.House, before(days.Threads), perSweep)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, id := range threads {
		if err := r.DB.In(ctx, scope, func(tx pgx.Tx) error { return r.deleteThreadTx(ctx, tx, scope, id) }); err != nil {
			return err
		}
	}
	for n := int64(batch); n == batch && days.Artifacts > 0; {
		err := r.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
			if days, err = r.daysTx(ctx, tx, scope.House); err != nil || days.Artifacts == 0 {
				return err
			}
			n, err = r.q.ExpireArtifacts(ctx, tx, query.ExpireArtifactsParams{
				Days: int32(days.Artifacts), HouseID: scope.House, Before: before(days.Artifacts), MaxRows: batch,
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteThreadTx deletes a thread and those below it, unless something has happened there or the house keeps them now.
func (r *Retention) deleteThreadTx(ctx context.Context, tx pgx.Tx, scope db.Scope, id string) error {
	days, err := r.daysTx(ctx, tx, scope.House)
	if err != nil || days.Threads == 0 {
		return err
	}
	if stale, err := r.q.IsStaleThread(ctx, tx, id, scope.House, before(days.Threads)); err != nil || !stale {
		return err
	}
	if err := r.q.NoteRetention(ctx, tx); err != nil {
		return err
	}
	if err := r.q.ExpireThreads(ctx, tx, int32(days.Threads), id); err != nil {
		return err
	}
	return r.DeleteThreadTx(ctx, tx, scope, id)
}

// Explain returns an error that says that a retention deleted the thing that err says is not there. If it is not so, or not
// for the scope's agent to know, it returns err. Without a house, the scope means all houses of its agent.
func (r *Retention) Explain(ctx context.Context, scope db.Scope, kind, id string, err error) error {
	if fault.CodeOf(err) != fault.NotFound {
		return err
	}
	var days int32
	failed := r.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
		days, err = r.q.ExpiredAfter(ctx, tx, kind, id)
		return err
	})
	if failed != nil { // that it is not there is true in any case
		return err
	}
	why := "after %d days without activity"
	if kind == Artifact {
		why = "after %d days"
	}
	return fault.Newf(fault.NotFound, "it cannot be restored; owners set what the house keeps with: arbe house retention",
		"this "+kind+" was deleted by the house's retention "+why, days).WithReason(fault.Expired).Because(err)
}
