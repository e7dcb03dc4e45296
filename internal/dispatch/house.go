package dispatch

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// DeleteHouseTx queues the deletion of everything that the scope's house owns. The house must be closed, so that nobody adds
// to it.
func (d *Dispatcher) DeleteHouseTx(ctx context.Context, tx pgx.Tx, scope db.Scope) error {
	_, err := d.Jobs.InsertTx(ctx, tx, deleteHouseArgs{House: scope.House}, jobs.Options{})
	return err
}

// deleteHouseArgs are the arguments of a job that deletes what a house owns, and then the house.
type deleteHouseArgs struct {
	House string `json:"house"`
}

// Kind is the job's kind.
func (deleteHouseArgs) Kind() string { return "delete_house" }

// threadsAtOnce is how many threads of a deleted house are listed at once. Each is deleted in its own transaction, because a
// thread may have a long log.
const threadsAtOnce = 100

// deleteHouse deletes the threads of a house, which ends what runs in them, then its sandboxes, and then the rest in one
// transaction. After a failure, the job is retried with increasing pauses, and continues where it stopped.
func (d *Dispatcher) deleteHouse(ctx context.Context, job *jobs.Job[deleteHouseArgs]) error {
	scope := db.Scope{House: job.Args.House}
	if err := d.deleteThreads(ctx, scope); err != nil {
		return err
	}
	err := d.boxes.RemoveAll(ctx, scope)
	if away, ok := errors.AsType[*sandbox.OtherMachineError](err); ok {
		return job.HandOver(ctx, away.Machine)
	} else if err != nil {
		return err
	}
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := d.Jobs.DeleteOfHouseTx(ctx, tx, scope.House, job.ID); err != nil {
			return err
		}
		return queries.ForgetHouse(ctx, tx)
	})
	if err == nil {
		d.logger.InfoContext(ctx, "a deleted house is gone", "house", scope.House)
	}
	return err
}

// deleteThreads deletes the threads of a house, some at a time.
func (d *Dispatcher) deleteThreads(ctx context.Context, scope db.Scope) error {
	for {
		var threads []string
		err := d.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
			threads, err = queries.ThreadsToDelete(ctx, tx, scope.House, threadsAtOnce)
			return err
		})
		if err != nil || len(threads) == 0 {
			return err
		}
		for _, id := range threads {
			if err := d.DeleteThread(ctx, scope, id); err != nil {
				return err
			}
		}
	}
}
