package run

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Cancel stops the run of a driven thread, or its queued run. The log asks a runner to stop, and the server that
// follows it gives it time to end. A run that no server follows ends at once. It returns false if there was nothing to
// stop. A chat is a [fault.Precondition].
func (r *Runs) Cancel(ctx context.Context, scope db.Scope, threadID string) (stopped bool, err error) {
	err = r.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := r.lockDrivenTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		stopped, err = r.cancelTx(ctx, tx, th, scope.Agent)
		return err
	})
	return stopped, err
}

// cancelTx stops the run of a thread whose row is locked, as an agent.
func (r *Runs) cancelTx(ctx context.Context, tx pgx.Tx, th thread.Thread, by string) (stopped bool, err error) {
	epoch := th.Run.Epoch
	running := th.Status == thread.Running
	if !running {
		epoch++
	}
	stopped, followed, err := r.cancelLaunchesTx(ctx, tx, th, epoch)
	if err != nil {
		return false, err
	}
	switch {
	case running && followed: // the server that follows the run ends the runner, and then the run
		_, err = r.config.Log.AppendTx(ctx, tx, th.Stream(), entry.NewDraft("", by, entry.CancelRequested{Epoch: epoch}))
		return true, err
	case running:
		return true, r.endTx(ctx, tx, th, cancelled())
	case stopped && !followed: // the run was queued, and its job has ended with it
		if th, err = r.config.Threads.BeginRunTx(ctx, tx, th, policyOf(th)); err == nil {
			err = r.endTx(ctx, tx, th, cancelled())
		}
	}
	return stopped, err
}

// cancelLaunchesTx cancels the jobs of a run. stopped reports that there is one, and followed that a server works on it.
func (r *Runs) cancelLaunchesTx(ctx context.Context, tx pgx.Tx, th thread.Thread, epoch int64) (stopped, followed bool, err error) {
	rows, err := r.launchesTx(ctx, tx, th.ID)
	if err != nil {
		return false, false, err
	}
	for _, row := range rows {
		var a launchArgs
		if row.Args(&a) != nil || a.Epoch != epoch {
			continue
		}
		ended, err := r.config.Jobs.CancelTx(ctx, tx, row.ID())
		if err != nil {
			return false, false, err
		}
		stopped, followed = true, followed || !ended
	}
	return stopped, followed, nil
}

// CancelBelowTx stops the runs of a thread and of all its descendants, in the transaction that deletes them. It must be
// called before that transaction locks a log.
func (r *Runs) CancelBelowTx(ctx context.Context, tx pgx.Tx, threadID string) error {
	running, err := r.config.Threads.RunningBelowTx(ctx, tx, threadID)
	if err != nil {
		return err
	}
	for _, id := range running {
		rows, err := r.launchesTx(ctx, tx, id)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if _, err := r.config.Jobs.CancelTx(ctx, tx, row.ID()); err != nil {
				return err
			}
		}
	}
	return nil
}
