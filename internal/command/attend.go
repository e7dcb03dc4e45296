package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
)

// This file runs commands that outlive the server. Such a command is launched under a name derived from its entry, and
// its output is read from the record that its sandbox keeps. The next server launches it under the same name, which
// does nothing if it was already launched, and reads the same record from the beginning. It therefore gets the same
// result and the same offsets of the live output.

const (
	// endGrace is how long a command that is ended with its server has to end by itself. It is short, because the
	// server waits for it while it stops.
	endGrace = 3 * time.Second
	// endTimeout limits how long ending a command takes after that, in case its sandbox does not answer.
	endTimeout = 10 * time.Second
	// exitNotBegun is the exit code of a command whose server was killed just before it began. Other commands may
	// return it too.
	exitNotBegun = 125
	// exitTimedOut is the exit code of a command that reached its time limit.
	exitTimedOut = 124
	// forgetTimeout limits the deletion of a record, because the worker waits for it.
	forgetTimeout = 10 * time.Second
)

var (
	// errHandedOver reports that a command is running or waiting, and that the next server continues it.
	errHandedOver = errors.New("the command is left to the next server")
	// errCutOff reports that a command was ended with its server or its sandbox.
	errCutOff = errors.New("the command was interrupted")
	// errSandboxEnded reports that the sandbox of a command ended while it ran. For the server that started the
	// command, it was killed.
	errSandboxEnded = errors.New("the sandbox ended while the command was running")
	// errOutcomeUnknown reports that it is unknown what happened to a command that may have begun.
	errOutcomeUnknown = errors.New("the outcome of the command is unknown")
)

// launchID returns the name of a command in its sandbox. It is a hash, because an entry's id may be longer than a
// launcher's id, and may have other characters. The stream is a part of it, because threads can share a sandbox.
func (a jobArgs) launchID() string {
	sum := sha256.Sum256([]byte(a.Stream + "\x00" + a.Command))
	return hex.EncodeToString(sum[:16])
}

// adopt continues the command, which an earlier server began. It returns the sandbox that the command ran in, or may have
// run in.
func (w *work) adopt(ctx context.Context) (on string, got sandbox.Result, err error) {
	from := *w.note.Begun
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
	limit, err := w.limit(p)
	if err != nil { // the operator has lowered the limit since
		limit, _ = p.Timeout(0)
	}
	w.config.Logger.InfoContext(ctx, "continuing a command of an earlier server")
	cmd := program(w.command, p)
	var received secret.Received
	if len(from.Secrets) > 0 {
		err := db.Persist(w.config.Jobs.Results(), func() (err error) {
			received, err = w.config.Secrets.ReceiveAgain(w.config.Jobs.Results(), w.job.Args.House, from.Secrets)
			return err
		})
		if err != nil {
			return from.Sandbox, got, fmt.Errorf("%w: %v", errOutcomeUnknown, err)
		}
		w.out.receives(received)
	}
	cmd.Env = environment(w.command, received)
	w.handle = &p
	w.remember(p)
	got, err = w.attend(ctx, launcher, p.Ref, cmd, limit)
	switch {
	case errors.Is(err, errSandboxEnded), fault.CodeOf(err) == fault.NotFound:
		err = errCutOff
	case err == nil && got.ExitCode == exitNotBegun && got.Duration < time.Second && w.out.empty():
		err = errOutcomeUnknown
	}
	return from.Sandbox, got, err
}

// reach returns the sandbox in which an earlier server launched the command, even for a cancelled command, because it may
// be running.
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
// error is a fault, the command did not begin.
//
// The limit applies twice: to the start in the sandbox, which includes starting the sandbox if it was stopped, and to
// the command from its start on. Creating or building a sandbox is done before and does not count.
func (w *work) attend(ctx context.Context, l sandbox.Launcher, ref string, cmd sandbox.Command, limit time.Duration) (sandbox.Result, error) {
	begin := time.Now()
	launching, stop := ctx, func() {}
	if limit > 0 {
		// Something in the sandbox may keep commands from starting, and a launch repeats many steps that each have a
		// long limit of their own.
		launching, stop = context.WithTimeout(ctx, limit)
	}
	defer stop()
	for range 3 {
		if err := l.Launch(launching, ref, w.job.Args.launchID(), cmd); err != nil { // nothing has run
			switch {
			case jobs.Stopped(ctx):
				err = errHandedOver
			case launching.Err() != nil && ctx.Err() == nil:
				return sandbox.Result{ExitCode: exitTimedOut, TimedOut: true, Duration: time.Since(begin)}, nil
			}
			return sandbox.Result{}, err
		}
		got, began, err := w.follow(ctx, l, ref, limit)
		if began || err != nil {
			return got, err
		}
		// A server that was killed while it launched the command left a record without a beginning. The command has
		// not run, so launching it again is safe.
	}
	return sandbox.Result{}, errOutcomeUnknown
}

// exec runs a command that ends with this server.
func (w *work) exec(ctx context.Context, p sandbox.Handle, cmd sandbox.Command) (sandbox.Result, error) {
	house := w.job.Args.House
	stdout, stderr := w.config.Output.Writer(ctx, house, w.out.stdout), w.config.Output.Writer(ctx, house, w.out.stderr)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if cmd.Merged {
		cmd.Stderr = nil
	}
	if feed := w.to.feed; feed != nil {
		cmd.Stdout = io.MultiWriter(stdout, feedWriter{ctx, feed, Stdout})
		cmd.Stderr = io.MultiWriter(stderr, feedWriter{ctx, feed, Stderr})
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	in := w.to.input
	over, stop := context.WithCancel(context.Background())
	defer stop()
	if in != nil {
		cmd.Stdin = wholeInput{in.reader(over), end, over.Done()}
	}
	cmd.Complete, cmd.Input = false, false // these are for Launch; here Stdout and Stdin do the same
	got, err := p.Exec(running, cmd)
	stop()
	if in != nil {
		switch gone := fault.CodeOf(err) == fault.NotFound; {
		case err != nil && context.Cause(running) == errInputCut:
			err = errInputCut
		case gone && in.untouched():
			return got, err // the input stays open, because the caller runs the command in another sandbox
		case gone:
			err = errInputCut // what was read is lost with the sandbox
		}
		in.close()
	}
	if err == nil && w.to.feed != nil {
		_ = w.to.feed.close(ctx) // must not fail the command: a reader that was too slow gets an error itself
	}
	return got, err
}

// wholeInput is input that ends the command if it is interrupted, so that the command never takes a part for the whole.
type wholeInput struct {
	io.Reader
	end  context.CancelCauseFunc
	over <-chan struct{} // closed when the command has ended
}

func (w wholeInput) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err == errInputCut {
		w.end(err)
		<-w.over
	}
	return n, err
}

// forget deletes the record of the command whose result is in the log. It must not run earlier, because until then the
// next server needs the record.
func (w *work) forget() {
	if w.handle == nil {
		return
	}
	l, ok := w.handle.Launcher()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(w.config.Jobs.Results(), forgetTimeout)
	defer cancel()
	if err := l.Forget(ctx, w.handle.Ref, w.job.Args.launchID()); err != nil && fault.CodeOf(err) != fault.NotFound {
		w.config.Logger.Warn("cannot delete the record of a command that has ended", "sandbox", w.handle.ID, "error", err)
	}
}
