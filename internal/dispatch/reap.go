package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// reaps is the queue of sandboxes to delete. It is separate, because providers may be slow and must not delay other jobs.
const reaps = "reaps"

var reapQueue = jobs.Queue{
	Name: reaps, Workers: 8, Limits: jobs.Limits{ThreadRunning: 4, HouseRunning: 4, PersonRunning: 4}, Poll: 5 * time.Second,
}

// reapTimeout limits the wait for a provider that does not answer, because it occupies a worker.
const reapTimeout = 5 * time.Minute

// DeleteThread deletes a thread with its log and children. It also queues the deletion of sandboxes that no other thread
// uses. Deleting a thread that does not exist succeeds.
func (d *Dispatcher) DeleteThread(ctx context.Context, scope db.Scope, id string) error {
	return d.db.In(ctx, scope, func(tx pgx.Tx) error { return d.DeleteThreadTx(ctx, tx, scope, id) })
}

// DeleteThreadTx is [Dispatcher.DeleteThread] in the caller's transaction, which must not have locked a log.
func (d *Dispatcher) DeleteThreadTx(ctx context.Context, tx pgx.Tx, scope db.Scope, id string) error {
	if err := d.Runs.CancelBelowTx(ctx, tx, id); err != nil {
		return err
	}
	boxes, err := d.threads.DeleteTx(ctx, tx, id)
	if err != nil {
		return err
	}
	for _, box := range boxes {
		if _, err := d.Jobs.InsertTx(ctx, tx, reapArgs{House: scope.House, Sandbox: box}, jobs.Options{}); err != nil {
			return err
		}
	}
	return nil
}

// DestroySandbox is [sandbox.Reaper.Destroy] or, with discard, [sandbox.Reaper.Discard]. For a sandbox on another machine,
// that machine's servers do it. Commands and turns that were waiting for that machine may then run anywhere, because the
// sandbox that bound them to it is dead.
func (d *Dispatcher) DestroySandbox(ctx context.Context, scope db.Scope, id string, discard bool) (sandbox.Sandbox, error) {
	destroy := d.boxes.Destroy
	if discard {
		destroy = d.boxes.Discard
	}
	box, err := destroy(ctx, scope, id)
	away, elsewhere := errors.AsType[*sandbox.OtherMachineError](err)
	if err != nil && !elsewhere || box.Machine == "" {
		return box, err
	}
	return box, d.db.In(ctx, scope, func(tx pgx.Tx) error {
		on, err := d.threads.OnSandboxTx(ctx, tx, id)
		if err == nil {
			err = d.Jobs.UnbindTx(ctx, tx, scope.House, box.Machine, on, command.NotedOn(id))
		}
		if err == nil && elsewhere {
			_, err = d.Jobs.InsertTx(ctx, tx, reapArgs{House: scope.House, Sandbox: id}, jobs.Options{Machine: away.Machine})
		}
		return err
	})
}

// reapArgs are the arguments of a job that destroys a sandbox if no thread uses it.
type reapArgs struct {
	House   string `json:"house"`
	Sandbox string `json:"sandbox"`
}

// Kind is the job's kind.
func (reapArgs) Kind() string { return "reap_sandbox" }

// reap destroys the sandbox. If the provider does not answer, the queue retries with increasing pauses.
func (d *Dispatcher) reap(ctx context.Context, job *jobs.Job[reapArgs]) error {
	err := d.boxes.Reap(ctx, db.Scope{House: job.Args.House}, job.Args.Sandbox)
	if away, ok := errors.AsType[*sandbox.OtherMachineError](err); ok {
		return job.HandOver(ctx, away.Machine)
	}
	return err
}
