package dispatch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
)

// kind is one kind of job. All kinds have the same life cycle:
//
//	queued       it waits for a worker of its queue, in fair order if its queue has shares.
//	running      a server works on it. If only another machine can do it, the server queues it again for that machine.
//	interrupted  its server died or stopped. It is queued again, and its metadata says what had begun.
//	ended        the server that ends it records the result in the same transaction. It does not end again.
//
// A new kind needs a file with its arguments and its worker, and a line in kinds.
type kind struct {
	name  string
	queue string
	// recovery is what happens to a job whose server died.
	recovery recovery
	// add adds a worker for this kind.
	add func(*river.Workers, *Dispatcher)
}

// recovery is what happens to a job whose server died.
type recovery int

const (
	// retried: the job is run again, as often as its kind allows, because that is harmless.
	retried recovery = iota
	// adopted: the next server continues the job without beginning anything again. If it cannot continue, it writes the
	// result.
	adopted
)

// kinds lists all kinds of jobs.
var kinds = []kind{
	{commandArgs{}.Kind(), commands, adopted, func(w *river.Workers, d *Dispatcher) { river.AddWorker(w, &commandWorker{Dispatcher: d}) }},
	{turnArgs{}.Kind(), turns, adopted, func(w *river.Workers, d *Dispatcher) { river.AddWorker(w, &turnWorker{Dispatcher: d}) }},
	{reapArgs{}.Kind(), reaps, retried, func(w *river.Workers, d *Dispatcher) { river.AddWorker(w, &reapWorker{Dispatcher: d}) }},
	{sweepArgs{}.Kind(), maintenance, retried, func(w *river.Workers, d *Dispatcher) { river.AddWorker(w, &sweepWorker{Dispatcher: d}) }},
	{periodicTaskArgs{}.Kind(), maintenance, retried, func(w *river.Workers, d *Dispatcher) { river.AddWorker(w, &periodicTaskWorker{Dispatcher: d}) }},
}

// kindOf returns a kind by its name. A kind that only another version of this program knows is retried, in case a
// server of that version is there.
func kindOf(name string) kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	return kind{name: name}
}

// queue is a queue with its own workers, so that no job waits for those of another queue.
type queue struct {
	name    string
	workers int
	// person, house and thread are how many jobs of each may run at once; zero takes jobs in the order of their arrival.
	person, house, thread int
	// poll is how often a server searches it without a notification, in case one is lost. Each search takes three round
	// trips.
	poll time.Duration
}

// queues returns all queues.
func queues(l Limits) []queue {
	return []queue{
		{commands, commandWorkers, l.PersonRunning, l.HouseRunning, l.ThreadRunning, time.Second},
		{turns, turnWorkers, l.PersonTurns, l.HouseTurns, l.ThreadTurns, time.Second},
		{reaps, reapWorkers, reapWorkers / 2, reapWorkers / 2, reapWorkers / 2, 5 * time.Second},
		{maintenance, maintenanceWorkers, 0, 0, 0, 5 * time.Second},
	}
}

// interruptTx queues a job again on which a server no longer works, unless another server works on it by now.
func (k kind) interruptTx(ctx context.Context, tx pgx.Tx, job int64, server string) error {
	var queue string
	err := tx.QueryRow(ctx, `
		update `+db.JobSchema+`.river_job set
		  state = case when $2 or attempt < max_attempts then 'available' else 'discarded' end::`+db.JobSchema+`.river_job_state,
		  attempt = case when $2 then greatest(attempt - 1, 0) else attempt end,
		  scheduled_at = now(),
		  finalized_at = case when $2 or attempt < max_attempts then null else now() end
		where id = $1 and state = 'running' and `+holder+` = $3
		returning queue`, job, k.recovery == adopted, server).Scan(&queue)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	return wakeTx(ctx, tx, cmp.Or(k.queue, queue))
}

// handOver queues a job again for another server: one of the given machine, or any if machine is empty. The worker must
// return what handOver returns. A job that another server has taken over stays as it is. If the job was cancelled
// meanwhile, that server handles it, because the queue itself would end the job without writing a result.
func (d *Dispatcher) handOver(ctx context.Context, job int64, machine string) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(d.resultCtx, cancel)()
	err := persist(ctx, func() error {
		return d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `
				update `+db.JobSchema+`.river_job set metadata = metadata - 'cancel_attempted_at'
				  || case when metadata ? 'cancel_attempted_at' then '{"cancelled": true}' else '{}' end::jsonb
				  || case when $2 = '' then '{}' else jsonb_build_object('machine', $2::text) end
				where id = $1 and `+holder+` = $3`, job, machine, d.liveness.name())
			return err
		})
	})
	if err != nil {
		d.logger.Warn("cannot record what the next server needs to know about a job", "job", job, "error", err)
	}
	return river.JobSnooze(0)
}
