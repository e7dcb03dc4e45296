package jobs

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// This file keeps servers out of each other's jobs. A server that cannot reach the database for a while counts as dead,
// and another one takes its jobs over (sweep.go). When it reaches the database again, it may still work on them. It
// must not end or requeue what the other one is running: the queue would then have no record of that work, so nothing
// could stop it, and it would be started a second time.

// holder is SQL for the server that took a job last; empty if none did.
const holder = "coalesce(attempted_by[array_upper(attempted_by, 1)], '')"

// held returns which of some jobs a server runs.
func (j *Jobs) held(ctx context.Context, server Server, jobs ...int64) (held []int64, err error) {
	err = j.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		held, err = heldTx(ctx, tx, server.String(), jobs)
		return err
	})
	return held, err
}

// heldTx is [Jobs.held] in the caller's transaction.
func heldTx(ctx context.Context, tx pgx.Tx, server string, jobs []int64) ([]int64, error) {
	rows, err := tx.Query(ctx, "select id from "+db.JobSchema+".river_job where id = any($1) and state = 'running' and "+holder+" = $2", jobs, server)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// leaveLost ends this server's work on jobs that were queued again because it counted as dead, if their kinds say so.
func (j *Jobs) leaveLost(ctx context.Context, server Server) {
	if !j.started.Load() {
		return // this server works on no job yet
	}
	for name, k := range j.kinds {
		working := k.working.jobs()
		if !k.leavesLost || len(working) == 0 {
			continue
		}
		var held []int64
		err := db.Persist(ctx, func() (err error) {
			held, err = j.held(ctx, server, working...)
			return err
		})
		if err != nil {
			if ctx.Err() == nil {
				j.logger.WarnContext(ctx, "cannot find out which jobs other servers have taken over; they end at their next step here", "kind", name, "error", fault.From(err).Detail())
			}
			return
		}
		for _, id := range working {
			if !slices.Contains(held, id) {
				k.working.cancel(id, ErrTakenByOther)
			}
		}
	}
}
