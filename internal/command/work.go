package command

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
)

const (
	// interrupted is the error of a command that was ended with its server.
	interrupted = "the server stopped while the command was running; what it has done stays, so run it again only if you need the rest"
	// inputCut is the error of a command whose input ended early. The end of the input would have told it that the
	// input was complete.
	inputCut = "the command's input ended early because its writer or its server was gone, so the command was ended; run it again"
	// hungUp is the error of a command to whose terminal nobody was connected.
	hungUp = "nobody was connected to the command's terminal for a minute, so the command was ended"
	// outcomeUnknown is the error of a command whose end is unknown.
	outcomeUnknown = "it is not known how the command ended, or whether it began; look at what it has done before you run it again"
)

// work runs the command of a job and writes its result. If an earlier server began the command, this one follows it. If
// the server stops before the command begins, or while a command runs that outlives the server, the job is left to another
// server or to the next start of this one.
func (d *Commands) work(ctx context.Context, job *jobs.Job[jobArgs]) error {
	ctx = logging.With(ctx, slog.String("house", job.Args.House), slog.String("thread", job.Args.Thread), slog.String("command", job.Args.Command))
	d.config.Output.Ask(job.Args.House)
	w := &work{Commands: d, job: job}
	job.Note(&w.note)
	err := db.Persist(ctx, func() error { return w.find(ctx) })
	switch {
	case err == nil && w.said.ID == "":
		return w.end(ctx, nil)
	case err == nil:
		switch w.run(ctx); {
		case w.takenByOther:
			job.AwaitEnd(ctx)
			return jobs.Left
		case w.handOver, w.machine != "":
			return job.HandOver(ctx, w.machine)
		}
	case jobs.Cancelled(ctx):
		w.ended = entry.CommandResult{ExitCode: -1, Cancelled: true, CancelledBy: w.cancellation().By}
	case jobs.Stopped(ctx):
		return job.HandOver(ctx, "")
	default:
		failure := fault.From(err)
		d.config.Logger.ErrorContext(ctx, "a command could not be started", "error", failure.Detail())
		w.ended = entry.CommandResult{ExitCode: -1, Error: failure.Error()}
	}
	d.config.Logger.DebugContext(ctx, "a command ended", "exit_code", w.ended.ExitCode, "took_ms", w.ended.DurationMS, "sandbox", w.ended.SandboxID)
	return w.finish(ctx)
}

// work is this server's work on one command.
type work struct {
	*Commands
	job *jobs.Job[jobArgs]
	// note is what was noted of the job when this server took it.
	note note
	// said is the command's entry, and command what it says.
	said    entry.Entry
	command entry.Command
	// out collects what it prints, for those whom to names, too.
	out *output
	to  *attachment
	// received are the secrets that it receives.
	received secret.Received

	ended entry.CommandResult
	whole *kept // its output, if ended does not hold all of it
	// handle is the sandbox in which it was launched; nil if it was not.
	handle *sandbox.Handle
	// handOver: it has not ended or not begun, and the next server continues it. machine is the machine whose servers
	// must, if any.
	handOver bool
	machine  string
	// takenByOther: another server works on it.
	takenByOther bool
}

// find finds the job's command. It finds none if there is nothing to do, because its thread was deleted or another server,
// which took this one for dead, wrote the result.
func (w *work) find(ctx context.Context) error {
	args := w.job.Args
	// A previous server may have ended it, or the same command was asked for again long after it ended.
	_, err := w.config.Log.Get(ctx, args.log(), entry.ResultID(args.Command))
	if fault.CodeOf(err) != fault.NotFound {
		return err
	}
	said, err := w.config.Log.Get(ctx, args.log(), args.Command)
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	} else if err == nil {
		w.said = said
	}
	return err
}

// run runs the command in the thread's sandbox and publishes its output.
func (w *work) run(ctx context.Context) {
	args := w.job.Args
	var ok bool
	if w.command, ok = entry.As[entry.Command](w.said); !ok {
		w.ended = entry.CommandResult{ExitCode: -1, Error: "this command cannot be read; run it again"}
		return
	}
	w.out = newOutput(ctx, w.config.Log, args.log(), entry.ResultID(w.said.ID))
	w.out.shows = func(n int) int { return w.config.Output.Shows(args.House, n) }
	detach := w.attach()
	defer func() { detach(w.handOver || w.takenByOther || w.machine != "") }()
	if w.config.Artifacts != nil {
		w.out.spool = newSpool(w.config.SpoolDir, w.config.Artifacts.MaxSize, args.House, w.spools)
		defer w.out.spool.close()
	}
	if w.job.Cancelled() {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		cancel(jobs.ErrCancelled)
	}
	start := time.Now()
	var on string // the sandbox that it ran in, or may have
	var got sandbox.Result
	var err error
	if w.note.Begun == nil {
		on, got, err = w.begin(ctx, &start)
	} else {
		on, got, err = w.adopt(ctx)
	}
	w.ended = w.out.close()
	away, elsewhere := errors.AsType[*sandbox.OtherMachineError](err)
	switch {
	case elsewhere:
		w.machine = away.Machine
	case errors.Is(err, jobs.ErrTakenByOther):
		w.takenByOther = true
	case errors.Is(err, errHandedOver), on == "" && jobs.Stopped(ctx):
		w.handOver = true
	default:
		w.describe(ctx, on, got, start, err)
	}
}

// begin runs the command for the first time. It returns the sandbox that it runs in, and sets start to its beginning.
func (w *work) begin(ctx context.Context, start *time.Time) (on string, got sandbox.Result, err error) {
	scope := db.Scope{House: w.job.Args.House, Agent: w.said.Author}
	err = w.config.Boxes.Use(ctx, scope, w.job.Args.Thread, w.command.EnvironmentID, func(p sandbox.Handle) (err error) {
		w.handle = nil
		cmd := program(w.command, p)
		limit, err := w.limit(p)
		if err != nil {
			return err
		}
		if w.received, err = w.receive(ctx, p.Secrets()); err != nil {
			return err
		}
		cmd.Env = environment(w.command, w.received)
		w.out.receives(w.received)
		launcher, launches := p.Launcher()
		if err := w.noteBegun(ctx, p, launches); err != nil {
			return err
		}
		on, *start = p.ID, time.Now()
		if _, terminals := launcher.(sandbox.Terminals); w.command.Terminal != nil && (!launches || !terminals) {
			on = ""
			return fault.Newf(fault.Precondition, "run a command without a terminal, or in another environment", "sandboxes of the driver %s have no terminals", p.Provider)
		}
		if launches {
			w.handle = &p
			w.remember(p)
			if got, err = w.attend(ctx, launcher, p.Ref, cmd, limit); errors.Is(err, errSandboxEnded) {
				err = nil
			}
			return err
		}
		cmd.Timeout = limit
		got, err = w.exec(ctx, p, cmd)
		return err
	})
	return on, got, err
}

// describe completes the result with how the command ended.
func (w *work) describe(ctx context.Context, on string, got sandbox.Result, start time.Time, err error) {
	r := &w.ended
	if w.to.feed != nil {
		r.RawBytes = w.to.feed.printed()
	}
	if r.Truncated && w.out.spool != nil {
		w.whole = w.keep(ctx)
	}
	r.SandboxID, r.ExitCode, r.TimedOut, r.OutOfMemory = on, got.ExitCode, got.TimedOut, got.OutOfMemory
	r.DurationMS, r.Terminal = got.Duration.Milliseconds(), w.command.Terminal != nil
	if err == nil {
		return
	}
	r.ExitCode = -1
	if r.DurationMS == 0 && w.note.Begun == nil {
		r.DurationMS = time.Since(start).Milliseconds()
	}
	switch {
	case jobs.Cancelled(ctx):
		r.Cancelled, r.CancelledBy = true, w.cancellation().By
		if c, ok := errors.AsType[*cancelledError](err); ok {
			r.ExitCode, r.Signal = got.ExitCode, string(c.sent)
		}
	case errors.Is(err, errInputCut) && w.command.Terminal != nil:
		r.Error = hungUp
	case errors.Is(err, errInputCut):
		r.Error = inputCut
	case errors.Is(err, errCutOff), jobs.Stopped(ctx):
		r.Error = interrupted
	case errors.Is(err, errOutcomeUnknown):
		w.config.Logger.WarnContext(ctx, "the outcome of a command is unknown", "error", err)
		r.Error = outcomeUnknown
	default:
		failure := fault.From(err)
		w.config.Logger.WarnContext(ctx, "a command could not run", "error", failure.Detail())
		if r.Error = w.received.Redactor.String(failure.Error()); w.handle != nil || failure.Code != fault.Unavailable && failure.Code != fault.Internal {
			r.SandboxID = "" // nothing has run
		}
	}
}

// receive returns the secrets that the command receives. It retries while the database or a KMS is unreachable.
func (w *work) receive(ctx context.Context, bindings []secret.Binding) (got secret.Received, err error) {
	err = db.Persist(ctx, func() error {
		got, err = w.config.Secrets.Receive(ctx, w.job.Args.House, bindings)
		return err
	})
	return got, err
}

// program returns what to run for a command. Both outputs are one pipe, so that the log has the lines in the order in
// which they were written. A terminal instead of the pipe would also keep the order, but programs write more to a
// terminal: colours, progress bars, questions, and \r before each line break. With Separate there are two pipes.
//
// The command waits for this server when it prints faster than its output is read, because otherwise a part of the
// output would be missing in its artifact.
func program(c entry.Command, in sandbox.Handle) sandbox.Command {
	cmd := sandbox.Command{Argv: c.Program(), Dir: in.Directory(c.Directory), Merged: !c.Separate, Complete: true, Input: c.Written()}
	if t := c.Terminal; t != nil {
		cmd.Terminal = &sandbox.Terminal{TerminalSize: sandbox.TerminalSize{Rows: t.Rows, Columns: t.Columns}, Kind: t.Kind}
	}
	return cmd
}

// environment returns the variables of a command. Those of its environment hold in any case.
func environment(c entry.Command, received secret.Received) map[string]string {
	if len(c.Env) == 0 {
		return received.Env
	}
	env := maps.Clone(c.Env)
	maps.Copy(env, received.Env)
	return env
}

// noteBegun records that the command may begin from now on, and where, so that no other server begins it.
func (w *work) noteBegun(ctx context.Context, p sandbox.Handle, launched bool) error {
	machine := ""
	if launched {
		machine = p.Machine // other machines' servers cannot follow it, so the queue must not give it to them
	}
	return w.job.SetNote(ctx, note{Begun: &begun{Sandbox: p.ID, Launched: launched, Secrets: w.received.Revisions}}, &machine)
}

// finish writes the result of a command that has ended.
func (w *work) finish(ctx context.Context) error {
	if w.whole != nil {
		err := w.endKept(ctx)
		if err == nil {
			w.forget()
			return nil
		}
		// Write the result without the artifact, because the result matters more. If another server has written one,
		// writing it again does nothing.
		if !errors.Is(err, errAlreadyEnded) {
			w.notKept(ctx, err)
		}
	}
	err := w.end(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := w.config.Log.AppendTx(ctx, tx, w.job.Args.log(), result(w.job.Args.Command, w.ended))
		return err
	})
	if fault.CodeOf(err) == fault.NotFound { // the thread was deleted meanwhile, so the job must not fail
		err = w.end(ctx, nil)
	}
	if err == nil {
		w.forget()
	}
	return err
}

// end ends the job and lets write record how its command ended, in one transaction; a nil write records nothing. Then
// servers look for a job to run instead. end works also while the server is stopping, and retries however long the
// database is unreachable, because nobody else would write the result of the command.
func (w *work) end(ctx context.Context, write func(context.Context, pgx.Tx) error) error {
	ctx, cancel := w.config.Jobs.Lasting(ctx)
	defer cancel()
	return db.Persist(ctx, func() error {
		return w.config.DB.In(ctx, db.Scope{House: w.job.Args.House}, func(tx pgx.Tx) error {
			if err := lockTx(ctx, tx, w.job.Args.House); err != nil {
				return err
			}
			// If another server ended the job, it also wrote the result. If another one runs it now, that one ends it, and
			// finds the result.
			if err := w.job.EndTx(ctx, tx); err != nil {
				return err
			}
			if write != nil {
				if err := write(ctx, tx); err != nil {
					return err
				}
			}
			return jobs.WakeTx(ctx, tx, w.queue.Name)
		})
	})
}
