package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// This file runs commands that outlive the server. Such a command is launched under a name derived from its entry, and
// its output is read from the record that its sandbox keeps. The next server launches it under the same name, which
// does nothing if it was already launched, and reads the same record from the beginning. It therefore gets the same
// result and the same offsets of the live output.

// forgetTimeout limits the deletion of a record, because the worker waits for it.
const forgetTimeout = 10 * time.Second

// adopt continues the command, which an earlier server began. It returns the sandbox that the command ran in, or may have
// run in.
func (w *work) adopt(ctx context.Context) (on string, got sandbox.Result, err error) {
	from := *w.note.Begun
	w.missing = from.Missing
	if !from.Launched {
		return from.Sandbox, got, errCutOff
	}
	if jobs.Stopped(ctx) {
		return from.Sandbox, got, errHandedOver
	}
	p, launcher, err := w.reach(from.Sandbox)
	if err != nil {
		return from.Sandbox, got, err
	}
	limit, err := timeLimit(w.command, p)
	if err != nil { // the operator has lowered the limit since
		limit, _ = p.Timeout(0)
	}
	w.config.Logger.InfoContext(ctx, "continuing a command of an earlier server")
	cmd := program(w.command, p)
	if err := w.receiveAgain(from); err != nil {
		return from.Sandbox, got, err
	}
	cmd.Env, cmd.Secrets = environment(w.command, p, w.received), w.received.Files
	defer w.config.Boxes.KeepUsed(ctx, db.Scope{House: w.job.Args.House}, p.ID)()
	got, err = w.attend(ctx, p, launcher, cmd, limit)
	return from.Sandbox, got, w.adopted(got, err)
}

// receiveAgain receives the values of the secrets that the earlier server gave to the command.
func (w *work) receiveAgain(from begun) error {
	if len(from.Secrets) == 0 {
		return nil
	}
	err := db.Persist(w.config.Jobs.Results(), func() (err error) {
		w.received, err = w.config.Secrets.ReceiveAgain(w.config.Jobs.Results(), w.job.Args.House, from.Secrets, from.SecretFiles)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %v", errOutcomeUnknown, err)
	}
	w.to.receives(w.received)
	return nil
}

// adopted returns the error of a command that this server continued.
func (w *work) adopted(got sandbox.Result, err error) error {
	switch {
	case errors.Is(err, errSandboxEnded), fault.CodeOf(err) == fault.NotFound:
		return errCutOff
	case err == nil && got.ExitCode == exitNotBegun && got.Duration < time.Second && w.out.empty():
		return errOutcomeUnknown
	}
	return err
}

// reach returns the sandbox in which an earlier server launched the command. It returns it even for a cancelled command,
// which may still be running.
func (w *work) reach(id string) (p sandbox.Handle, l sandbox.Launcher, err error) {
	ctx := w.config.Jobs.Results()
	err = db.Persist(ctx, func() (err error) {
		p, err = w.config.Boxes.Handle(ctx, db.Scope{House: w.job.Args.House, Agent: w.said.Author}, id)
		return err
	})
	_, elsewhere := errors.AsType[*sandbox.OtherMachineError](err)
	switch {
	case elsewhere:
		return p, nil, err
	case fault.CodeOf(err) == fault.NotFound:
		return p, nil, errCutOff // ended with its sandbox or machine
	case err != nil:
		return p, nil, fmt.Errorf("%w: %v", errOutcomeUnknown, err)
	}
	l, launches := p.Launcher()
	if !launches {
		return p, nil, errCutOff
	}
	return p, l, nil
}

// attend launches the command unless it was already launched, and follows it until it has ended or is handed over. If the
// error is a [fault.Error], the command did not begin.
//
// The limit applies twice: to the start in the sandbox, which includes starting the sandbox if it was stopped, and to the
// command from its start on. Creating or building a sandbox happens before and does not count.
func (w *work) attend(ctx context.Context, p sandbox.Handle, l sandbox.Launcher, cmd sandbox.Command, limit time.Duration) (sandbox.Result, error) {
	w.launched = &launched{launcher: l, sandbox: p.ID, ref: p.Ref, id: w.job.Args.launchID()}
	w.refusals.remember(w.job.Args, p, w.received.Redactor)
	begin := time.Now()
	launching, stop := ctx, func() {}
	if limit > 0 {
		// Something in the sandbox may keep commands from starting, and a launch repeats many steps that each have a
		// long limit of their own.
		launching, stop = context.WithTimeout(ctx, limit)
	}
	defer stop()
	for range 3 {
		if err := l.Launch(launching, p.Ref, w.launched.id, cmd); err != nil {
			if jobs.Stopped(ctx) {
				return sandbox.Result{}, errHandedOver // it may run, and the next server launches it under the same name
			}
			if launching.Err() == nil {
				return sandbox.Result{}, err // nothing has run
			}
			w.endUnwanted()
			if ctx.Err() == nil {
				return sandbox.Result{ExitCode: exitTimedOut, TimedOut: true, Duration: time.Since(begin)}, nil
			}
			return sandbox.Result{}, err
		}
		got, began, err := w.follow(ctx, limit)
		if began || err != nil {
			return got, err
		}
		// A server that was killed while it launched the command left a record without a beginning. The command has
		// not run, so launching it again is safe.
	}
	return sandbox.Result{}, errOutcomeUnknown
}

// endUnwanted ends a command whose launch took too long or was cancelled. It may run all the same.
func (w *work) endUnwanted() {
	ctx, cancel := context.WithTimeout(w.config.Jobs.Results(), endTimeout)
	defer cancel()
	if err := w.launched.end(ctx, 0); err != nil && fault.CodeOf(err) != fault.NotFound {
		w.config.Logger.Warn("a command whose launch was given up may run", "sandbox", w.launched.sandbox, "error", err)
	}
}

// forget deletes the record of the command whose result is in the log. It must not run earlier, because until then the
// next server needs the record.
func (w *work) forget() {
	if w.launched == nil {
		return
	}
	ctx, cancel := context.WithTimeout(w.config.Jobs.Results(), forgetTimeout)
	defer cancel()
	if err := w.launched.forget(ctx); err != nil && fault.CodeOf(err) != fault.NotFound {
		w.config.Logger.Warn("cannot delete the record of a command that has ended", "sandbox", w.launched.sandbox, "error", err)
	}
}
