package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

// sweepArgs are the arguments of a job that looks for jobs of dead servers. A failed sweep is not retried, because the
// next one follows.
type sweepArgs struct{}

// Kind is the job's kind.
func (sweepArgs) Kind() string { return "sweep_commands" }

// sweep looks for jobs of dead servers, and calls the functions of [Jobs.OnSweep].
func (j *Jobs) sweep(ctx context.Context, _ *Job[sweepArgs]) error {
	all := append([]func(context.Context) error{j.recover}, j.sweeps...)
	failed := make([]error, len(all))
	var running sync.WaitGroup
	for i, f := range all {
		running.Go(func() { failed[i] = f(ctx) })
	}
	running.Wait()
	return errors.Join(failed...)
}

// orphan is a job that the queue counts as running on some server.
type orphan struct {
	Job    int64
	Kind   string
	Server string
}

// recover queues the jobs of dead servers again. A server counts as dead if nobody holds its lock at two checks: a server
// that only lost its connection takes the lock again in between.
func (j *Jobs) recover(ctx context.Context) error {
	suspects, err := j.suspects(ctx)
	if err != nil || len(suspects) == 0 {
		return err
	}
	select {
	case <-time.After(j.config.LockGrace):
	case <-ctx.Done():
		return ctx.Err()
	}
	var failed error
	for _, o := range suspects {
		if err := j.interrupt(ctx, o); err != nil {
			failed = errors.Join(failed, fmt.Errorf("queueing the job %d of a dead server again: %w", o.Job, err))
		}
	}
	return failed
}

// suspects returns the running jobs of servers whose lock nobody holds.
func (j *Jobs) suspects(ctx context.Context) (list []orphan, err error) {
	err = j.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select id, kind, `+holder+` from `+db.JobSchema+`.river_job
			where state = 'running'`)
		if err != nil {
			return err
		}
		running, err := pgx.CollectRows(rows, pgx.RowToStructByPos[orphan])
		if err != nil {
			return err
		}
		gone := map[string]bool{j.Server().String(): false}
		for _, o := range running {
			if _, known := gone[o.Server]; !known {
				if gone[o.Server], err = parseServer(o.Server).GoneTx(ctx, tx); err != nil {
					return err
				}
			}
			if gone[o.Server] {
				list = append(list, o)
			}
		}
		return nil
	})
	return list, err
}

// interrupt queues a job of a dead server again, unless the server has come back: it then still works on the job, and
// another worker would interfere.
func (j *Jobs) interrupt(ctx context.Context, o orphan) error {
	return j.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		if gone, err := parseServer(o.Server).GoneTx(ctx, tx); err != nil || !gone {
			return err
		}
		j.logger.Info("continuing a job of a dead server", "job", o.Job, "kind", o.Kind)
		return j.requeueTx(ctx, tx, o)
	})
}

// requeueTx requeues a job that its server has abandoned, unless another server already works on it.
func (j *Jobs) requeueTx(ctx context.Context, tx pgx.Tx, o orphan) error {
	k := j.kind(o.Kind)
	var queue string
	err := tx.QueryRow(ctx, `
		update `+db.JobSchema+`.river_job set
		  state = case when $2 or attempt < max_attempts then 'available' else 'discarded' end::`+db.JobSchema+`.river_job_state,
		  attempt = case when $2 then greatest(attempt - 1, 0) else attempt end,
		  scheduled_at = now(),
		  finalized_at = case when $2 or attempt < max_attempts then null else now() end
		where id = $1 and state = 'running' and `+holder+` = $3
		returning queue`, o.Job, k.adopted, o.Server).Scan(&queue)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	return WakeTx(ctx, tx, queue)
}
