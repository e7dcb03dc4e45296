package command

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

const (
	// reportWaitAfter is how long a command may wait for a server before an entry says so. Shorter waits get no entry, so
	// that the log does not fill with them.
	reportWaitAfter = 5 * time.Second
	// maxWaitReports is how many waiting commands one sweep reports, so that a sweep with a long queue ends in time.
	maxWaitReports = 500
)

// Run writes a command to a thread's log and queues it in one transaction, and returns its entry. id makes a
// retry harmless; if it is empty, one is generated. The sandbox is resolved, and created if necessary, when the command
// starts; errors from that are in the command's result. If the command must wait for others of its thread or house, an entry
// in the log says so. If too many are waiting already, the error is a [fault.Exhausted]. An id that belongs to a different
// entry, or to an entry that a fork inherited, is a [fault.Exists].
func (d *Commands) Run(ctx context.Context, scope db.Scope, threadID, id string, c entry.Command) (said entry.Entry, err error) {
	if err := entry.CheckID(id, entry.Anyone); err != nil {
		return entry.Entry{}, err
	}
	return d.run(ctx, scope, threadID, id, c)
}

// RunForCall is Run for a call of a bot's tool. Repeating the call is harmless.
func (d *Commands) RunForCall(ctx context.Context, scope db.Scope, threadID, call string, c entry.Command) (entry.Entry, error) {
	return d.run(ctx, scope, threadID, entry.CallCommandID(call), c)
}

func (d *Commands) run(ctx context.Context, scope db.Scope, threadID, id string, c entry.Command) (said entry.Entry, err error) {
	if err := c.Validate(); err != nil {
		return entry.Entry{}, err
	}
	if c.EnvironmentID != "" {
		if _, err := d.config.Boxes.Environment(ctx, scope, c.EnvironmentID); err != nil {
			return entry.Entry{}, err
		}
	}
	if id == "" {
		id = uuid.NewString()
	}
	draft := entry.NewDraft(id, scope.Agent, c)
	if err := entry.Check(draft, entry.Server); err != nil {
		return entry.Entry{}, err
	}
	err = d.WriteTx(ctx, scope, threadID, []entry.Draft{draft}, func(tx pgx.Tx, to stream.Ref, drafts []entry.Draft) ([]entry.Entry, error) {
		entries, err := d.config.Log.AppendTx(ctx, tx, to, drafts...)
		if err != nil {
			return nil, err
		}
		said = entries[0]
		return entries, entry.Repeated(drafts[0], said)
	})
	return said, err
}

// WriteTx writes drafts, some of which are commands, and queues the commands in the same transaction. write returns the
// entries of the drafts in their order, or nothing.
func (d *Commands) WriteTx(ctx context.Context, scope db.Scope, threadID string, drafts []entry.Draft, write func(pgx.Tx, stream.Ref, []entry.Draft) ([]entry.Entry, error)) error {
	d.config.Output.Ask(scope.House)
	return d.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		if err := lockTx(ctx, tx, scope.House); err != nil {
			return err
		}
		th, err := d.config.Threads.GetTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		before, err := d.queue.LoadTx(ctx, tx, scope.House, th.ID)
		if err != nil {
			return err
		}
		entries, err := write(tx, th.Stream(), onSandbox(drafts, th.Sandbox))
		if err != nil {
			return err
		}
		return d.enqueueAllTx(ctx, tx, th, commandsIn(drafts, entries), before)
	})
}

// commandsIn returns the entries of drafts that are commands.
func commandsIn(drafts []entry.Draft, entries []entry.Entry) (commands []entry.Entry) {
	for i, said := range entries {
		if isCommand := (entry.Command{}).Type(); drafts[i].Type == isCommand && said.Type == isCommand {
			commands = append(commands, said)
		}
	}
	return commands
}

// enqueueAllTx queues the commands of a thread. before is the load of the queue before the first one.
func (d *Commands) enqueueAllTx(ctx context.Context, tx pgx.Tx, th thread.Thread, commands []entry.Entry, before jobs.Load) (err error) {
	for i, said := range commands {
		if th.Inherited(said.Seq) {
			return fault.Newf(fault.Exists, "choose another id", "the command %q ran in the thread from which this one was forked", said.ID).WithReason(fault.IDTaken)
		}
		if i > 0 {
			if before, err = d.queue.LoadTx(ctx, tx, th.House, th.ID); err != nil {
				return err
			}
		}
		if err := d.enqueueTx(ctx, tx, jobArgs{House: th.House, Thread: th.ID, Stream: th.StreamID, Command: said.ID}, before); err != nil {
			return err
		}
	}
	return nil
}

// onSandbox records in commands the thread's sandbox at the time of the request.
func onSandbox(drafts []entry.Draft, sandbox string) []entry.Draft {
	noted := make([]entry.Draft, len(drafts))
	for i, draft := range drafts {
		var c entry.Command
		if draft.Type == c.Type() && json.Unmarshal(draft.Payload, &c) == nil {
			c.SandboxID = sandbox
			draft = entry.NewDraft(draft.ID, draft.Author, c)
		}
		noted[i] = draft
	}
	return noted
}

// enqueueTx queues a command unless it was queued before. before is the load of its house without it.
func (d *Commands) enqueueTx(ctx context.Context, tx pgx.Tx, args jobArgs, before jobs.Load) error {
	waiting, waits := d.waits(before)
	machine, err := d.config.Boxes.ThreadMachineTx(ctx, tx, args.Thread)
	if err != nil {
		return err
	}
	queued, err := d.config.Jobs.InsertTx(ctx, tx, args, jobs.Options{Machine: machine, Note: note{WaitReported: waits}})
	if err != nil || !queued {
		return err
	}
	if err := d.refuses(before); err != nil {
		return err
	}
	if waits {
		return d.reportWaitTx(ctx, tx, args, waiting)
	}
	return nil
}

// refuses returns an error if one more command may not even wait.
func (d *Commands) refuses(l jobs.Load) error {
	const next = "wait until some have ended, or cancel some"
	switch most := d.config.Limits; {
	case l.Thread >= most.ThreadRunning+most.ThreadWaiting:
		return fault.Newf(fault.Exhausted, next, "%d commands of this thread have not ended, and no more may wait", l.Thread).WithReason(fault.LimitReached)
	case l.House >= most.HouseRunning+most.HouseWaiting:
		return fault.Newf(fault.Exhausted, next, "%d commands of this house have not ended, and no more may wait", l.House).WithReason(fault.LimitReached)
	case l.Person >= most.PersonRunning+most.PersonWaiting:
		return fault.Newf(fault.Exhausted, next, "%d commands of the houses of the person who owns this one have not ended, and no more may wait", l.Person).WithReason(fault.LimitReached)
	}
	return nil
}

// waits returns the reason why one more command would wait. ok is false if it waits only for a server.
func (d *Commands) waits(l jobs.Load) (w entry.CommandWaiting, ok bool) {
	switch {
	case l.Thread >= d.config.Limits.ThreadRunning:
		return entry.CommandWaiting{For: entry.WaitThread, Limit: d.config.Limits.ThreadRunning}, true
	case l.Admitted >= d.config.Limits.HouseRunning:
		return entry.CommandWaiting{For: entry.WaitHouse, Limit: d.config.Limits.HouseRunning}, true
	}
	return w, false
}

// reportWaits appends entries to threads with commands that no server has started. It waits longer for a command that needs a
// machine, because a machine's absence is known only after a while.
func (d *Commands) reportWaits(ctx context.Context) error {
	list, err := d.config.Jobs.Unstarted(ctx, Kind, reportWaitAfter, sandbox.MachineAwayAfter, note{WaitReported: true}, maxWaitReports)
	for _, w := range list {
		var args jobArgs
		if failed := json.Unmarshal(w.Args, &args); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		err = errors.Join(err, d.config.DB.In(ctx, db.Scope{House: args.House}, func(tx pgx.Tx) error {
			if err := lockTx(ctx, tx, args.House); err != nil {
				return err
			}
			noted, err := d.config.Jobs.NoteWaitingTx(ctx, tx, w.ID, note{WaitReported: true})
			if err != nil || !noted {
				return err // it is running, or another server reported it
			}
			waits := entry.CommandWaiting{For: entry.WaitServer}
			if w.Away {
				waits.For = entry.WaitMachine
			}
			err = d.reportWaitTx(ctx, tx, args, waits)
			if fault.CodeOf(err) == fault.NotFound {
				return nil // the thread was deleted
			}
			return err
		}))
	}
	return err
}

// reportWaitTx appends an entry that says what a command waits for.
func (d *Commands) reportWaitTx(ctx context.Context, tx pgx.Tx, args jobArgs, w entry.CommandWaiting) error {
	w.CommandID = args.Command
	_, err := d.config.Log.AppendTx(ctx, tx, args.log(), entry.NewDraft("", "", w))
	return err
}
