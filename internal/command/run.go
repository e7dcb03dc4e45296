package command

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/trace"
)

// perform runs the command of a job and writes its result. If an earlier server began the command, this one follows it. If
// the server stops before the command begins, or while a command runs that outlives the server, the job is left to another
// server or to the next start of this one.
func (d *Commands) perform(ctx context.Context, job *jobs.Job[jobArgs]) error {
	ctx = logging.With(ctx, slog.String("house", job.Args.House), slog.String("thread", job.Args.Thread), slog.String("command", job.Args.Command))
	d.config.Output.Ask(job.Args.House)
	w := &work{Commands: d, job: job}
	job.Note(&w.note)
	err := db.Persist(ctx, func() error { return w.find(ctx) })
	switch {
	case err == nil && w.said.ID == "":
		return w.end(ctx, nil)
	case err == nil:
		running, span := trace.Start(ctx, trace.Client, "command")
		w.run(running)
		w.endSpan(span)
		switch {
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

// endSpan ends the span of a command: with its exit code, or as failed if it did not run or goes on on another server.
func (w *work) endSpan(span trace.Span) {
	switch {
	case w.takenByOther, w.handOver, w.machine != "":
		span.Set(trace.String("arbe.command.continues", "on another server"))
	case w.ended.SandboxID == "":
		span.Fail("not_run")
	case w.ended.TimedOut:
		span.Fail("timeout")
	case w.ended.Cancelled:
		span.Fail("cancelled")
	}
	span.Set(trace.Int("process.exit.code", w.ended.ExitCode), trace.String("arbe.sandbox", w.ended.SandboxID))
	span.End(nil)
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
	w.to = newAttachment(w.command, w.out, w.note.Begun != nil)
	remove := w.attached.add(attachmentKey{args.House, args.Thread, args.Command}, w.to)
	defer func() {
		remove()
		w.to.over(w.handOver || w.takenByOther || w.machine != "")
	}()
	if w.config.Artifacts != nil {
		w.out.spool = newSpool(w.config.SpoolDir, w.config.Artifacts.MaxSize, args.House, w.spools)
		defer w.out.spool.close()
	}
	ctx = w.cancellable(ctx)
	start := time.Now()
	var on string // the sandbox that it ran in, or may have run in
	var got sandbox.Result
	var err error
	if w.note.Begun == nil {
		on, got, err = w.begin(ctx, &start)
	} else {
		on, got, err = w.adopt(ctx)
	}
	w.ended = w.out.close()
	w.conclude(ctx, on, got, start, err)
}

// cancellable returns a context that has ended if the command was cancelled before it began.
func (w *work) cancellable(ctx context.Context) context.Context {
	if !w.job.Cancelled() {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(jobs.ErrCancelled)
	return ctx
}

// conclude describes how the command ended, or notes who continues it.
func (w *work) conclude(ctx context.Context, on string, got sandbox.Result, start time.Time, err error) {
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
		w.launched = nil
		cmd, limit, err := w.prepare(ctx, scope, p)
		if err != nil {
			return err
		}
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
			if got, err = w.attend(ctx, p, launcher, cmd, limit); errors.Is(err, errSandboxEnded) {
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

// prepare returns the command for a sandbox, with its secrets and what else it needs, and its time limit.
func (w *work) prepare(ctx context.Context, scope db.Scope, p sandbox.Handle) (cmd sandbox.Command, limit time.Duration, err error) {
	cmd = program(w.command, p)
	if limit, err = timeLimit(w.command, p); err != nil {
		return cmd, 0, err
	}
	if w.received, err = w.receive(ctx, p.Secrets()); err != nil {
		return cmd, 0, err
	}
	cmd.Env, cmd.Secrets = environment(w.command, p, w.received), w.received.Files
	w.to.receives(w.received)
	w.missing = p.Missing()
	if w.config.Provide != nil {
		err = w.config.Provide(ctx, scope, p, w.command)
	}
	return cmd, limit, err
}

// describe completes the result with how the command ended.
func (w *work) describe(ctx context.Context, on string, got sandbox.Result, start time.Time, err error) {
	r := &w.ended
	if w.to.feed != nil {
		r.RawBytes = w.to.feed.printed()
	}
	if r.Truncated && w.out.spool != nil {
		w.kept = w.keep(ctx)
	}
	r.SandboxID, r.ExitCode, r.TimedOut, r.OutOfMemory = on, got.ExitCode, got.TimedOut, got.OutOfMemory
	r.DurationMS, r.Terminal, r.MissingFiles = got.Duration.Milliseconds(), w.command.Terminal != nil, w.missing
	if err == nil {
		return
	}
	r.ExitCode = -1
	if r.DurationMS == 0 && w.note.Begun == nil {
		r.DurationMS = time.Since(start).Milliseconds()
	}
	w.explain(ctx, got, err)
}

// explain completes the result of a command that did not end by itself.
func (w *work) explain(ctx context.Context, got sandbox.Result, err error) {
	r := &w.ended
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
		if r.Error = w.received.Redactor.String(failure.Error()); w.launched != nil || failure.Code != fault.Unavailable && failure.Code != fault.Internal {
			r.SandboxID = "" // nothing has run
		}
	}
}

// finish writes the result of a command that has ended.
func (w *work) finish(ctx context.Context) error {
	err := w.record(ctx)
	if err != nil {
		return err
	}
	w.forget()
	if w.config.Observe != nil && w.said.ID != "" {
		ran := time.Duration(w.ended.DurationMS) * time.Millisecond
		w.config.Observe(w.ended, max(time.Since(w.said.Time)-ran, 0), ran)
	}
	return nil
}

func (w *work) record(ctx context.Context) error {
	if w.kept != nil {
		err := w.endKept(ctx)
		if err == nil {
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
	if fault.CodeOf(err) == fault.NotFound { // the thread was deleted in the meantime, so the job must not fail
		err = w.end(ctx, nil)
	}
	return err
}
