package command

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Signal is the signal with which a command is cancelled.
type Signal string

// The signals, the weakest first. A cancelled command gets the requested one. If it has not ended after
// [entry.CancelGrace], it gets the next one, because programs may ignore the weaker ones.
const (
	Interrupt Signal = "SIGINT"  // to its process group, as from Ctrl-C at a terminal
	Terminate Signal = "SIGTERM" // to everything that it started
	Kill      Signal = "SIGKILL" // to everything that it started
)

var signals = []Signal{Interrupt, Terminate, Kill}

// strength orders signals. The empty one is the weakest.
func (s Signal) strength() int { return slices.Index(signals, s) }

// stronger returns the stronger of two signals.
func stronger(a, b Signal) Signal {
	if a.strength() >= b.strength() {
		return a
	}
	return b
}

const (
	// cancelPoll is how often the worker of a cancelled command checks for a stronger signal. It polls because the queue
	// reports only the first cancellation of a job.
	cancelPoll = 250 * time.Millisecond
	// cancelLookup limits one such check, so that an unreachable database does not delay the next signal for long.
	cancelLookup = 5 * time.Second
)

// cancellation is what a job records about the cancellation of its command.
type cancellation struct {
	// By is the agent who requested it first.
	By string `json:"by,omitempty"`
	// Signal is the strongest requested signal.
	Signal Signal `json:"signal,omitempty"`
}

// cancelledError reports that a command was cancelled, and the last signal that it was sent.
type cancelledError struct{ sent Signal }

func (*cancelledError) Error() string { return "the command was cancelled" }

// Cancel cancels a command. The command gets the signal now, and the stronger ones later if it does not end.
// Cancelling it again with a stronger signal sends that one at once. A command that has not begun never begins. For one
// that has ended, Cancel does nothing. If the thread has no such command, the error is a [fault.NotFound]. If the
// command was inherited by a fork and may still run in the source, it is a [fault.Precondition]. In a sandbox whose
// commands end with their server, every signal is [Kill].
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
		return fault.New(fault.Precondition, "this command belongs to the thread that this one is a fork of", "cancel it there, if it still runs")
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

// mostCancelled limits how many commands are cancelled at once. It exceeds the default number of a thread's commands that
// may run and wait, so that all of them are found.
const mostCancelled = 10_000

// CancelOfCalls is [Commands.CancelAll] for those commands that calls of a turn's tools have begun.
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
	for _, job := range rows {
		id, err := d.cancelJobTx(ctx, tx, scope, th.Stream(), job, with)
		if err != nil {
			return nil, err
		}
		found = append(found, id)
	}
	return found, nil
}

// cancelJobTx cancels the command of a job, and returns the command's id.
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

// cancellation returns what the job records about its cancellation. If the database does not answer, it returns the zero
// value instead of an error, because the command must end in any case.
func (w *work) cancellation() cancellation {
	ctx, cancel := context.WithTimeout(w.config.Jobs.Results(), cancelLookup)
	defer cancel()
	var n note
	if w.config.Jobs.GetNote(ctx, w.job.ID, &n) != nil || n.Cancel == nil {
		return cancellation{}
	}
	return *n.Cancel
}

// escalate sends the cancelled command one signal after the other until ctx ends, which it does when the command has ended.
// Before each signal it calls sent.
func (f *following) escalate(ctx context.Context, sent func(Signal)) error {
	l, ref, id := f.launcher, f.ref, f.id
	last := Signal("")
	for began := time.Now(); ; {
		due := signals[min(int(time.Since(began)/entry.CancelGrace), len(signals)-1)]
		next := stronger(due, f.cancellation().Signal)
		if next != last {
			if last = next; ctx.Err() != nil {
				return nil
			}
			began = time.Now().Add(-time.Duration(next.strength()) * entry.CancelGrace)
			sent(next)
			var err error
			switch next {
			case Interrupt:
				err = l.Interrupt(ctx, ref, id)
			case Terminate:
				// End also kills the command after the grace, in case the loop does not get there in time. It runs in a
				// goroutine, because it returns only when the command has ended, and a stronger signal may come before.
				go func() { _ = l.End(ctx, ref, id, entry.CancelGrace) }()
			case Kill:
				return l.End(ctx, ref, id, 0)
			}
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(cancelPoll):
		}
	}
}
