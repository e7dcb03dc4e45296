package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// commandArgs asks to run the command of a command entry.
type commandArgs struct {
	House   string `json:"house"`
	Thread  string `json:"thread"`
	Stream  string `json:"stream"`
	Command string `json:"command"` // the entry's id
}

// Kind names the job.
func (commandArgs) Kind() string { return "run_command" }

// InsertOpts: a command is run once, never again by itself.
func (commandArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

func (a commandArgs) log() stream.Ref { return stream.Ref{House: a.House, Name: a.Stream} }

// RunCommand writes a command to a thread's log and queues it, as one, and returns its entry. id makes a
// retry harmless; empty chooses one. The sandbox is resolved, and made if need be, when the command is
// taken up; what goes wrong there is told by the command's result. An id that a fork inherited is not one to
// use again: that command belongs to the source, and is a [fault.Exists].
func (d *Dispatcher) RunCommand(ctx context.Context, scope db.Scope, threadID, id string, c entry.Command) (said entry.Entry, err error) {
	if err := c.Validate(); err != nil {
		return entry.Entry{}, err
	}
	if c.EnvironmentID != "" {
		if _, err := d.boxes.Environment(ctx, scope, c.EnvironmentID); err != nil {
			return entry.Entry{}, err
		}
	}
	if id == "" {
		id = uuid.NewString()
	}
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.threads.GetTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		c.SandboxID = th.Sandbox
		draft := entry.NewDraft(id, scope.Agent, c)
		if err := entry.Check(draft, entry.Server); err != nil {
			return err
		}
		entries, err := d.log.AppendTx(ctx, tx, th.Stream(), draft)
		if err != nil {
			return err
		}
		if said = entries[0]; said.Type != draft.Type {
			return fault.Newf(fault.Exists, "choose another id", "the entry %q is there already and is no command", id)
		}
		if th.Inherited(said.Seq) {
			return fault.Newf(fault.Exists, "choose another id", "the command %q was run in the thread that this one is a fork of", id)
		}
		_, err = d.queue.InsertTx(ctx, tx, commandArgs{House: scope.House, Thread: th.ID, Stream: th.StreamID, Command: id}, nil)
		return err
	})
	return said, err
}

// CancelCommand stops a command with everything it started. One that has ended is left as it is; a thread
// without such a command is a [fault.NotFound], and one that a fork inherited without its end a
// [fault.Precondition]: it is cancelled where it runs.
func (d *Dispatcher) CancelCommand(ctx context.Context, scope db.Scope, threadID, commandID string) error {
	var th thread.Thread
	var found bool
	err := d.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		if th, err = d.threads.GetTx(ctx, tx, threadID); err != nil {
			return err
		}
		jobs, err := d.queue.JobListTx(ctx, tx, river.NewJobListParams().Kinds(commandArgs{}.Kind()).
			States(rivertype.JobStateAvailable, rivertype.JobStateScheduled, rivertype.JobStateRunning).
			Where("args->>'stream' = @stream and args->>'command' = @command", river.NamedArgs{"stream": th.StreamID, "command": commandID}).First(1))
		if err != nil || len(jobs.Jobs) == 0 {
			return err
		}
		found = true
		job, err := d.queue.JobCancelTx(ctx, tx, jobs.Jobs[0].ID)
		if err != nil || job.State != rivertype.JobStateCancelled {
			return err // its worker tells the end
		}
		_, err = d.log.AppendTx(ctx, tx, th.Stream(), result(commandID, entry.CommandResult{ExitCode: -1, Cancelled: true}))
		return err
	})
	if err != nil || found {
		return err
	}
	said, err := d.log.Get(ctx, th.Stream(), commandID)
	switch {
	case err != nil:
		return err
	case said.Type != (entry.Command{}).Type():
		return fault.New(fault.NotFound, "this entry is no command", "give the id of a command entry")
	case !th.Inherited(said.Seq):
		return nil
	}
	_, err = d.log.Get(ctx, th.Stream(), entry.ResultID(commandID))
	if fault.CodeOf(err) == fault.NotFound {
		return fault.New(fault.Precondition, "this command belongs to the thread that this one is a fork of", "cancel it there, if it still runs")
	}
	return err
}

// result is the draft of a command's end. Its id is derived, so a command has one, whoever writes it first.
func result(commandID string, r entry.CommandResult) entry.Draft {
	r.CommandID = commandID
	return entry.NewDraft(entry.ResultID(commandID), "", r)
}

type commandWorker struct {
	river.WorkerDefaults[commandArgs]
	*Dispatcher
}

// Timeout is none of the queue's: the command has its own.
func (w *commandWorker) Timeout(*river.Job[commandArgs]) time.Duration { return -1 }

// Work runs the command and writes how it ended. What stops it before the command began leaves it to
// another server, or to the next start of this one.
func (w *commandWorker) Work(ctx context.Context, job *river.Job[commandArgs]) error {
	var said entry.Entry
	err := persist(ctx, func() (err error) {
		said, err = w.unanswered(ctx, job.Args)
		return err
	})
	var ended entry.CommandResult
	switch {
	case err == nil:
		if said.ID == "" {
			return nil
		}
		var begun bool
		if ended, begun = w.run(ctx, job.Args, said); !begun && stopped(ctx) {
			return river.JobSnooze(0)
		}
	case cancelled(ctx):
		ended = entry.CommandResult{ExitCode: -1, Cancelled: true}
	case stopped(ctx):
		return river.JobSnooze(0)
	default:
		told := fault.From(err)
		w.logger.Error("a command could not be taken up", "thread", job.Args.Thread, "command", job.Args.Command, "error", told.Detail())
		ended = entry.CommandResult{ExitCode: -1, Error: told.Error()}
	}
	return w.tell(job.Args.log(), result(job.Args.Command, ended))
}

// cancelled tells whether a person ended the job, stopped whether its server did.
func cancelled(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely)
}
func stopped(ctx context.Context) bool { return ctx.Err() != nil && !cancelled(ctx) }

// unanswered is the job's command; the zero Entry when there is nothing to do: its thread was deleted, or
// its end was told already, because its server was thought dead.
func (w *commandWorker) unanswered(ctx context.Context, args commandArgs) (entry.Entry, error) {
	_, err := w.log.Get(ctx, args.log(), entry.ResultID(args.Command))
	if fault.CodeOf(err) != fault.NotFound {
		return entry.Entry{}, err
	}
	said, err := w.log.Get(ctx, args.log(), args.Command)
	if fault.CodeOf(err) == fault.NotFound {
		return entry.Entry{}, nil
	}
	return said, err
}

// run runs a command on the thread's sandbox, publishing its output as it comes. It was begun when there
// was a sandbox to run it on.
func (w *commandWorker) run(ctx context.Context, args commandArgs, said entry.Entry) (r entry.CommandResult, begun bool) {
	c, ok := entry.As[entry.Command](said)
	if !ok {
		return entry.CommandResult{ExitCode: -1, Error: "this command cannot be read; run it again"}, false
	}
	out := newOutput(ctx, w.log, args.log(), entry.ResultID(said.ID))
	scope := db.Scope{House: args.House, Agent: said.Author}
	started := time.Now()
	box, got, err := w.boxes.Exec(ctx, scope, args.Thread, c.EnvironmentID, func(sandbox.Sandbox) sandbox.Command {
		begun, started = true, time.Now() // what came before was making the sandbox
		return sandbox.Command{Argv: c.Program(), Stdout: out, Stderr: out, Timeout: time.Duration(c.TimeoutMS) * time.Millisecond}
	})
	r = out.close()
	r.SandboxID, r.ExitCode, r.TimedOut, r.OutOfMemory = box.ID, got.ExitCode, got.TimedOut, got.OutOfMemory
	r.DurationMS = got.Duration.Milliseconds()
	if err == nil {
		return r, begun
	}
	r.ExitCode, r.DurationMS = -1, time.Since(started).Milliseconds()
	switch {
	case cancelled(ctx):
		r.Cancelled = true
	case stopped(ctx):
		r.Error = brokenOff
	default:
		told := fault.From(err)
		w.logger.Warn("a command could not run", "thread", args.Thread, "command", said.ID, "error", told.Detail())
		r.Error = told.Error()
	}
	return r, begun
}

// brokenOff is what is said of a command whose server went away.
const brokenOff = "the server stopped while the command was running; what it had done so far stays, run it again if you need the rest"

// tell writes how a command ended, also while the server is stopping, and however long the database is
// away: a command without an end would never be heard of again.
func (w *commandWorker) tell(ref stream.Ref, d entry.Draft) error {
	err := persist(w.telling, func() error {
		_, err := w.log.Append(w.telling, ref, d)
		return err
	})
	if fault.CodeOf(err) == fault.NotFound {
		return nil // the thread was deleted meanwhile
	}
	return err
}

// persist tries again while the database is away or full, until ctx ends.
func persist(ctx context.Context, f func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f()
		if code := fault.CodeOf(err); code != fault.Unavailable && code != fault.Exhausted {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
