package command

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// mostCancelled limits the commands cancelled at once. It exceeds the default number of a thread's commands that may run and
// wait, so that all of them are found.
const mostCancelled = 10_000

// Cancel cancels a command. The command gets the signal now, and the stronger ones later if it does not end. Cancelling it
// again with a stronger signal sends that one at once. A command that has not begun never begins. If the command has ended,
// Cancel does nothing. If the thread has no such command, the error is a [fault.NotFound]. If a fork inherited the command,
// which may still run in the source, the error is a [fault.Precondition]. In a sandbox whose commands end with their server,
// every signal is [Kill].
func (d *Commands) Cancel(ctx context.Context, scope db.Scope, threadID, commandID string, with Signal) error {
	var th thread.Thread
	var found []string
	err := d.config.DB.In(ctx, scope, func(tx pgx.Tx) (err error) {
		if th, err = d.config.Threads.GetTx(ctx, tx, threadID); err == nil {
			found, err = d.cancelTx(ctx, tx, scope, th, jobs.Filter{Args: map[string]string{"command": commandID}}, with)
		}
		return err
	})
	if err != nil || len(found) > 0 {
		return err
	}
	said, err := d.config.Log.Get(ctx, th.Stream(), commandID)
	switch {
	case err != nil:
		return err
	case said.Type != (entry.Command{}).Type():
		return fault.New(fault.NotFound, "this entry is not a command", "give the id of a command entry")
	case !th.Inherited(said.Seq):
		return nil
	}
	_, err = d.config.Log.Get(ctx, th.Stream(), entry.ResultID(commandID))
	if fault.CodeOf(err) == fault.NotFound {
		return fault.New(fault.Precondition, "this command belongs to the thread from which this one was forked", "cancel it there, if it still runs")
	}
	return err
}

// CancelAll is [Commands.Cancel] for all running and waiting commands of a thread. It returns their ids.
func (d *Commands) CancelAll(ctx context.Context, scope db.Scope, threadID string, with Signal) (found []string, err error) {
	err = d.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.config.Threads.GetTx(ctx, tx, threadID)
		if err == nil {
			found, err = d.cancelTx(ctx, tx, scope, th, jobs.Filter{Args: map[string]string{}}, with)
		}
		return err
	})
	return found, err
}

// CancelOfCalls is [Commands.CancelAll] for the commands that the tool calls of a turn began.
func (d *Commands) CancelOfCalls(ctx context.Context, scope db.Scope, threadID, turnID string, with Signal) error {
	return d.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.config.Threads.GetTx(ctx, tx, threadID)
		if err == nil {
			ofTurn := jobs.Filter{Args: map[string]string{}, Argument: "command", Prefix: entry.TurnPrefix + turnID + "."}
			_, err = d.cancelTx(ctx, tx, scope, th, ofTurn, with)
		}
		return err
	})
}

// cancelTx cancels the commands of a thread that a filter selects, if they run or wait. It returns their ids.
func (d *Commands) cancelTx(ctx context.Context, tx pgx.Tx, scope db.Scope, th thread.Thread, which jobs.Filter, with Signal) (found []string, err error) {
	if err := lockTx(ctx, tx, scope.House); err != nil {
		return nil, err
	}
	which.Kind, which.Most = Kind, mostCancelled
	which.Args["stream"] = th.StreamID
	rows, err := d.config.Jobs.FindTx(ctx, tx, which)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		// Its server may have handed it over since, or another one may have taken it.
		job, ok, err := d.config.Jobs.LockTx(ctx, tx, row)
		if err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		id, err := d.cancelJobTx(ctx, tx, scope, th.Stream(), job, with)
		if err != nil {
			return nil, err
		}
		found = append(found, id)
	}
	return found, nil
}

// cancelJobTx cancels the command of a locked job, and returns the command's id.
func (d *Commands) cancelJobTx(ctx context.Context, tx pgx.Tx, scope db.Scope, log stream.Ref, job jobs.Row, with Signal) (string, error) {
	var args jobArgs
	if err := job.Args(&args); err != nil {
		return "", err
	}
	var before note
	job.Note(&before)
	how := cancellation{By: scope.Agent, Signal: with}
	if before.Cancel != nil {
		how = cancellation{By: before.Cancel.By, Signal: stronger(before.Cancel.Signal, with)}
	}
	// It may be running although no server follows it. The queue would cancel the job and leave the command running, so
	// the job stays, and the next server ends the command.
	if before.Begun != nil && before.Begun.Launched && !job.Running() {
		return args.Command, errors.Join(d.config.Jobs.NoteTx(ctx, tx, job.ID(), note{Cancel: &how}), d.config.Jobs.LeaveCancelledTx(ctx, tx, job.ID()))
	}
	if err := d.config.Jobs.NoteTx(ctx, tx, job.ID(), note{Cancel: &how}); err != nil {
		return args.Command, err
	}
	ended, err := d.config.Jobs.CancelTx(ctx, tx, job.ID())
	if err == nil && ended { // otherwise its worker writes the result
		_, err = d.config.Log.AppendTx(ctx, tx, log, result(args.Command, entry.CommandResult{ExitCode: -1, Cancelled: true, CancelledBy: how.By}))
	}
	return args.Command, err
}
