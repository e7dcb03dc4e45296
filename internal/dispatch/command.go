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
)

// tellWithin is how long a worker tries to write how its command ended, whatever stops it.
const tellWithin = 20 * time.Second

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
// taken up; what goes wrong there is told by the command's result.
func (d *Dispatcher) RunCommand(ctx context.Context, scope db.Scope, threadID, id string, c entry.Command) (said entry.Entry, err error) {
	if err := c.Validate(); err != nil {
		return entry.Entry{}, err
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
		_, err = d.queue.InsertTx(ctx, tx, commandArgs{House: scope.House, Thread: th.ID, Stream: th.StreamID, Command: id}, nil)
		return err
	})
	return said, err
}

// CancelCommand stops a command with everything it started. One that has ended, or was never there, is
// left as it is; a thread without such a command is a [fault.NotFound].
func (d *Dispatcher) CancelCommand(ctx context.Context, scope db.Scope, threadID, commandID string) error {
	return d.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.threads.GetTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		jobs, err := d.queue.JobListTx(ctx, tx, river.NewJobListParams().Kinds(commandArgs{}.Kind()).
			States(rivertype.JobStateAvailable, rivertype.JobStateScheduled, rivertype.JobStateRunning).
			Where("args->>'stream' = @stream and args->>'command' = @command", river.NamedArgs{"stream": th.StreamID, "command": commandID}).First(1))
		if err != nil {
			return err
		}
		if len(jobs.Jobs) == 0 {
			_, err := d.log.Get(ctx, th.Stream(), commandID)
			return err
		}
		job, err := d.queue.JobCancelTx(ctx, tx, jobs.Jobs[0].ID)
		if err != nil || job.State == rivertype.JobStateRunning {
			return err // its worker tells the end
		}
		_, err = d.log.AppendTx(ctx, tx, th.Stream(), result(commandID, entry.CommandResult{ExitCode: -1, Cancelled: true}))
		return err
	})
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

// Work runs the command and writes how it ended. It returns an error only when it could not write that.
func (w *commandWorker) Work(ctx context.Context, job *river.Job[commandArgs]) error {
	ref := job.Args.log()
	said, err := w.log.Get(ctx, ref, job.Args.Command)
	if fault.CodeOf(err) == fault.NotFound {
		return nil // the thread was deleted
	} else if err != nil {
		return err
	}
	command, ok := entry.As[entry.Command](said)
	if !ok {
		return errors.New("not a command entry: " + said.ID)
	}
	if _, err := w.log.Get(ctx, ref, entry.ResultID(said.ID)); err == nil {
		return nil // told already: its server was thought dead
	}
	ended := w.run(ctx, job.Args, said, command)
	return w.tell(ctx, ref, result(said.ID, ended))
}

// run runs a command on the thread's sandbox, publishing its output as it comes.
func (w *commandWorker) run(ctx context.Context, args commandArgs, said entry.Entry, c entry.Command) entry.CommandResult {
	out := newOutput(ctx, w.log, args.log(), entry.ResultID(said.ID))
	scope := db.Scope{House: args.House, Agent: said.Author}
	started := time.Now()
	box, got, err := w.boxes.Exec(ctx, scope, args.Thread, c.EnvironmentID, func(sandbox.Sandbox) sandbox.Command {
		started = time.Now() // what came before was making the sandbox
		return sandbox.Command{Argv: c.Program(), Stdout: out, Stderr: out, Timeout: time.Duration(c.TimeoutMS) * time.Millisecond}
	})
	r := out.close()
	r.SandboxID, r.ExitCode, r.TimedOut, r.OutOfMemory = box.ID, got.ExitCode, got.TimedOut, got.OutOfMemory
	r.DurationMS = got.Duration.Milliseconds()
	if err == nil {
		return r
	}
	r.ExitCode, r.DurationMS = -1, time.Since(started).Milliseconds()
	switch {
	case errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely):
		r.Cancelled = true
	case ctx.Err() != nil:
		r.Error = brokenOff
	default:
		told := fault.From(err)
		w.logger.Warn("a command could not run", "thread", args.Thread, "command", said.ID, "error", told.Detail())
		r.Error = told.Error()
	}
	return r
}

// brokenOff is what is said of a command whose server went away.
const brokenOff = "the server stopped while the command was running; what it had done so far stays, run it again if you need the rest"

// tell writes how a command ended, also while the server is stopping, and tries again while the
// database is away.
func (w *commandWorker) tell(ctx context.Context, ref stream.Ref, d entry.Draft) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWithin)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		_, err := w.log.Append(ctx, ref, d)
		switch fault.CodeOf(err) {
		case "", fault.NotFound: // written, or the thread was deleted meanwhile
			return nil
		case fault.Unavailable:
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
