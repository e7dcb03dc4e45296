package dispatch

import (
	"context"
	"errors"
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

// errTakenByOther reports that another server has taken the job over.
var errTakenByOther = errors.New("another server works on the job")

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
		  select id from `+db.JobSchema+`.river_job where id = any($1) and `+holder+` = $2 order by id for update) held`, params.ID, p.server).Scan(&held)
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
func (d *Dispatcher) held(ctx context.Context, server string, jobs ...int64) (held []int64, err error) {
	err = d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		held, err = heldTx(ctx, tx, server, jobs)
		return err
	})
	return held, err
}

// heldTx is [Dispatcher.held] in the caller's transaction.
func heldTx(ctx context.Context, tx pgx.Tx, server string, jobs []int64) ([]int64, error) {
	rows, err := tx.Query(ctx, "select id from "+db.JobSchema+".river_job where id = any($1) and state = 'running' and "+holder+" = $2", jobs, server)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// leaveLost ends this server's work on turns that were queued again because it counted as dead. Otherwise two servers
// would pay for the same answer. Work on commands goes on, because it costs nothing: both servers follow the same
// command, and the log stores one result.
func (d *Dispatcher) leaveLost(ctx context.Context, server string) {
	turning := d.turning.jobs()
	if len(turning) == 0 {
		return
	}
	var held []int64
	err := persist(ctx, func() (err error) {
		held, err = d.held(ctx, server, turning...)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			d.logger.WarnContext(ctx, "cannot find out which turns of bots other servers have taken over; they end at their next step here", "error", fault.From(err).Detail())
		}
		return
	}
	for _, job := range turning {
		if !slices.Contains(held, job) {
			d.turning.cancel(job, errTakenByOther)
		}
	}
}

// workers are this server's workers for one kind of job, by the ids of their jobs. The zero value is ready to use.
type workers struct{ byJob sync.Map }

type worker struct {
	over   chan struct{} // closed when it no longer works on the job
	cancel context.CancelCauseFunc
}

// begin registers a worker for a job. If this server was mistaken for dead, its job was queued again, and it may have
// taken the job although it still works on it. Two workers must not work on one job: alone is then false, after the
// earlier worker has ended. Otherwise the caller works with the context that is returned, and calls end.
func (w *workers) begin(ctx context.Context, job int64) (_ context.Context, end func(), alone bool) {
	working, cancel := context.WithCancelCause(ctx)
	this := worker{make(chan struct{}), cancel}
	if earlier, there := w.byJob.LoadOrStore(job, this); there {
		cancel(nil)
		// The queue knows only the later worker, so a cancellation is passed on.
		stop := context.AfterFunc(ctx, func() { earlier.(worker).cancel(context.Cause(ctx)) })
		<-earlier.(worker).over
		stop()
		return nil, nil, false
	}
	return working, func() {
		w.byJob.Delete(job)
		close(this.over)
		cancel(nil)
	}, true
}

// cancel ends the context of a job's worker, if there is one.
func (w *workers) cancel(job int64, cause error) {
	if found, there := w.byJob.Load(job); there {
		found.(worker).cancel(cause)
	}
}

// jobs returns the ids of the jobs that have a worker.
func (w *workers) jobs() (ids []int64) {
	w.byJob.Range(func(id, _ any) bool {
		ids = append(ids, id.(int64))
		return true
	})
	return ids
}
