package jobs

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// This file keeps servers out of each other's jobs. A server that cannot reach the database for a while counts as dead,
// and another one takes its jobs over (sweep.go). When it reaches the database again, it may still work on them. It
// must not end or queue again what the other one is running: the queue would then have no record of that work, so
// nothing could stop it, and it would be begun once more.

// holder is SQL for the server that took a job last; empty if none did.
const holder = "coalesce(attempted_by[array_upper(attempted_by, 1)], '')"

// JobSetStateIfRunningMany changes the states of those jobs that this server holds, and leaves the others as they are.
// The library calls it for each result of a worker, but names jobs only by their ids. It expects that jobs may be
// missing in what is returned, because jobs can be deleted.
func (p *fairPilot) JobSetStateIfRunningMany(ctx context.Context, exec riverdriver.Executor, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	tx, within := exec.(riverdriver.ExecutorTx)
	if !within {
		begun, err := exec.Begin(ctx)
		if err != nil {
			return nil, err
		}
		defer begun.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it does nothing after the commit, and otherwise the connection is closed
		tx = begun
	}
	var held []int64
	// The rows stay locked, so that no other server takes a job over in between.
	err := tx.QueryRow(ctx, `
		select coalesce(array_agg(id), '{}') from (
		  select id from `+db.JobSchema+`.river_job where id = any($1) and `+holder+` = $2 order by id for update) held`, params.ID, p.server.String()).Scan(&held)
	if err != nil || len(held) == 0 {
		return nil, err
	}
	rows, err := p.StandardPilot.JobSetStateIfRunningMany(ctx, tx, only(params, held))
	if err == nil && !within {
		err = tx.Commit(ctx)
	}
	return rows, err
}

// only returns the part of params for some of its jobs.
func only(params *riverdriver.JobSetStateIfRunningManyParams, jobs []int64) *riverdriver.JobSetStateIfRunningManyParams {
	part := &riverdriver.JobSetStateIfRunningManyParams{Now: params.Now, Schema: params.Schema}
	for i, id := range params.ID {
		if !slices.Contains(jobs, id) {
			continue
		}
		part.ID = append(part.ID, id)
		part.Attempt = append(part.Attempt, params.Attempt[i])
		part.ErrData = append(part.ErrData, params.ErrData[i])
		part.FinalizedAt = append(part.FinalizedAt, params.FinalizedAt[i])
		part.MetadataDoMerge = append(part.MetadataDoMerge, params.MetadataDoMerge[i])
		part.MetadataUpdates = append(part.MetadataUpdates, params.MetadataUpdates[i])
		part.ScheduledAt = append(part.ScheduledAt, params.ScheduledAt[i])
		part.State = append(part.State, params.State[i])
	}
	return part
}

// held returns those of some jobs that a server runs.
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
		return // it works on nothing yet
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

// working are this server's workers for one kind of job, by the ids of their jobs. The zero value is ready to use.
type working struct{ byJob sync.Map }

type workerOf struct {
	over   chan struct{} // closed when it no longer works on the job
	cancel context.CancelCauseFunc
}

// begin registers a worker for a job. If this server was mistaken for dead, its job was queued again, and it may have
// taken the job although it still works on it. Two workers must not work on one job: alone is then false, after the
// earlier worker has ended. Otherwise the caller works with the context that is returned, and calls end.
func (w *working) begin(ctx context.Context, job int64) (_ context.Context, end func(), alone bool) {
	ours, cancel := context.WithCancelCause(ctx)
	this := workerOf{make(chan struct{}), cancel}
	if earlier, there := w.byJob.LoadOrStore(job, this); there {
		cancel(nil)
		// The queue knows only the later worker, so a cancellation is passed on.
		stop := context.AfterFunc(ctx, func() { earlier.(workerOf).cancel(context.Cause(ctx)) })
		<-earlier.(workerOf).over
		stop()
		return nil, nil, false
	}
	return ours, func() {
		w.byJob.Delete(job)
		close(this.over)
		cancel(nil)
	}, true
}

// cancel ends the context of a job's worker, if there is one.
func (w *working) cancel(job int64, cause error) {
	if found, there := w.byJob.Load(job); there {
		found.(workerOf).cancel(cause)
	}
}

// jobs returns the ids of the jobs that have a worker.
func (w *working) jobs() (ids []int64) {
	w.byJob.Range(func(id, _ any) bool {
		ids = append(ids, id.(int64))
		return true
	})
	return ids
}
