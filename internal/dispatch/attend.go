package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
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
func (a commandArgs) launchID() string {
	sum := sha256.Sum256([]byte(a.Stream + "\x00" + a.Command))
	return hex.EncodeToString(sum[:16])
}

// adopt continues a command that an earlier server began. It returns the sandbox that the command ran in, or may have
// run in.
func (w *commandWorker) adopt(ctx context.Context, scope db.Scope, job *river.Job[commandArgs], notes note, c entry.Command, out *output) (string, sandbox.Result, *sandbox.Handle, error) {
	from := *notes.Begun
	if !from.Launched {
		return from.Sandbox, sandbox.Result{}, nil, errCutOff
	}
	if stopped(ctx) {
		return from.Sandbox, sandbox.Result{}, nil, errHandedOver
	}
	var p sandbox.Handle
	err := persist(w.resultCtx, func() (err error) { // even for a cancelled command, because it may be running
		p, err = w.boxes.Handle(w.resultCtx, scope, from.Sandbox)
		return err
	})
	_, elsewhere := errors.AsType[*sandbox.OtherMachineError](err)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return from.Sandbox, sandbox.Result{}, nil, errCutOff // ended with its sandbox or machine
	case err != nil && !elsewhere:
		err = fmt.Errorf("%w: %v", errOutcomeUnknown, err)
		fallthrough
	case err != nil:
		return from.Sandbox, sandbox.Result{}, nil, err
	}
	launcher, launches := p.Launcher()
	if !launches {
		return from.Sandbox, sandbox.Result{}, nil, errCutOff
	}
	limit, err := p.Timeout(time.Duration(c.TimeoutMS) * time.Millisecond)
	if err != nil { // the operator has lowered the limit since
		limit, _ = p.Timeout(0)
	}
	w.logger.InfoContext(ctx, "continuing a command of an earlier server")
	cmd := program(c)
	if len(from.Secrets) > 0 {
		var received secret.Received
		err := persist(w.resultCtx, func() (err error) {
			received, err = w.config.Secrets.ReceiveAgain(w.resultCtx, scope.House, from.Secrets)
			return err
		})
		if err != nil {
			return from.Sandbox, sandbox.Result{}, nil, fmt.Errorf("%w: %v", errOutcomeUnknown, err)
		}
		cmd.Env = received.Env
		out.receives(received)
	}
	got, err := w.attend(ctx, launcher, p.Ref, job, cmd, limit, out)
	switch {
	case errors.Is(err, errSandboxEnded), fault.CodeOf(err) == fault.NotFound:
		err = errCutOff
	case err == nil && got.ExitCode == exitNotBegun && got.Duration < time.Second && out.empty():
		err = errOutcomeUnknown
	}
	return from.Sandbox, got, &p, err
}

// attend launches a command unless it was already launched, and follows it until it has ended or is handed over. If the
// error is a fault, the command did not begin.
//
// The limit applies twice: to the start in the sandbox, which includes starting the sandbox if it was stopped, and to
// the command from its start on. Creating or building a sandbox is done before and does not count.
func (w *commandWorker) attend(ctx context.Context, l sandbox.Launcher, ref string, job *river.Job[commandArgs], cmd sandbox.Command, limit time.Duration, out *output) (sandbox.Result, error) {
	id := job.Args.launchID()
	begin := time.Now()
	launching, stop := ctx, func() {}
	if limit > 0 {
		// Something in the sandbox may keep commands from starting, and a launch repeats many steps that each have a
		// long limit of their own.
		launching, stop = context.WithTimeout(ctx, limit)
	}
	defer stop()
	for range 3 {
		if err := l.Launch(launching, ref, id, cmd); err != nil { // nothing has run
			switch {
			case stopped(ctx):
				err = errHandedOver
			case launching.Err() != nil && ctx.Err() == nil:
				return sandbox.Result{ExitCode: exitTimedOut, TimedOut: true, Duration: time.Since(begin)}, nil
			}
			return sandbox.Result{}, err
		}
		got, began, err := w.follow(ctx, l, ref, job, limit, out)
		if began || err != nil {
			return got, err
		}
		// A server that was killed while it launched the command left a record without a beginning. The command has
		// not run, so launching it again is safe.
	}
	return sandbox.Result{}, errOutcomeUnknown
}

// follow follows a launched command until it has ended or is handed over. began is false if it never began.
func (w *commandWorker) follow(ctx context.Context, l sandbox.Launcher, ref string, job *river.Job[commandArgs], limit time.Duration, out *output) (got sandbox.Result, began bool, err error) {
	id, feed := job.Args.launchID(), out.to.feed
	// A cancelled command is followed to its end, because what it prints meanwhile is part of its output.
	following, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer leave(nil)
	var mu sync.Mutex
	var ended error // why this server ended it; nil if it did not
	var endedAt time.Time
	end := func(why error, patience time.Duration) {
		mu.Lock()
		ended, endedAt = why, time.Now()
		mu.Unlock()
		if feed != nil {
			feed.rush()
		}
		ctx, cancel := context.WithTimeout(following, patience+endTimeout)
		defer cancel()
		if err := l.End(ctx, ref, id, patience); err != nil && following.Err() == nil {
			leave(fmt.Errorf("%w: it could not be ended: %v", errOutcomeUnknown, err)) // must not be a fault; see attend
		}
	}
	cancel := func() {
		if feed != nil {
			feed.rush()
		}
		ctx, stop := context.WithCancel(following)
		defer stop()
		err := w.escalate(ctx, l, ref, id, job.ID, func(sent Signal) {
			mu.Lock()
			ended = &cancelledError{sent}
			mu.Unlock()
		})
		if err != nil && following.Err() == nil {
			leave(fmt.Errorf("%w: it could not be ended: %v", errOutcomeUnknown, err))
		}
	}
	defer context.AfterFunc(ctx, func() {
		switch {
		case cancelled(ctx):
			cancel()
		case w.config.EndCommands:
			end(errCutOff, endGrace)
		default:
			leave(errHandedOver)
		}
	})()
	pace := newPace()
	if feed != nil {
		go w.release(following, l, ref, id, feed)
	} else {
		go w.keepPace(following, l, ref, id, pace, out)
	}
	if out.to.input != nil {
		go func() {
			if w.pass(following, l, ref, job, out.to.input) != nil {
				end(errInputCut, 0)
			}
		}()
	}
	errTimedOut := errors.New("timed out")
	var start, exit time.Time
	boxEnded := false
	var timer *time.Timer
	write := func(t *text, data []byte) {
		defer w.shares.begin(following, job.Args.House, len(data))()
		_, _ = t.Write(data) // never fails, because it waits for no watcher
	}
	err = l.Follow(following, ref, id, 0, func(r sandbox.Record) error {
		defer pace.passed(r.Next)
		switch r.Kind {
		case sandbox.RecordStart:
			began, start = true, r.Time
			if limit > 0 {
				timer = time.AfterFunc(time.Until(start.Add(limit)), func() { end(errTimedOut, 0) })
			}
		case sandbox.RecordStdout:
			write(out.stdout, r.Data)
			if feed != nil {
				return feed.write(following, Stdout, r.Data, r.Next)
			}
		case sandbox.RecordStderr:
			write(out.stderr, r.Data)
			if feed != nil {
				return feed.write(following, Stderr, r.Data, r.Next)
			}
		case sandbox.RecordGap:
			out.skip(r.Dropped)
			if feed != nil {
				feed.gap(following, r.Dropped)
			}
		case sandbox.RecordExit:
			w.shares.asks(job.Args.House) // for its result to be written
			exit, got.ExitCode, got.OutOfMemory, boxEnded = r.Time, r.ExitCode, r.OutOfMemory, r.BoxEnded
			if began {
				got.Duration = max(r.Time.Sub(start), 0)
			}
		}
		return nil
	})
	if err == nil && began && out.to.input != nil {
		out.to.input.close()
	}
	if err == nil && began && feed != nil {
		err = feed.close(following)
	}
	if timer != nil {
		timer.Stop()
	}
	if err == nil && cancelled(ctx) {
		// A signal that ended it may have left what it started: SIGINT is not even sent to all of that.
		ending, stop := context.WithTimeout(following, endTimeout)
		_ = l.End(ending, ref, id, 0)
		stop()
	}
	if err != nil {
		if why := context.Cause(following); why != nil {
			return got, true, why
		}
		return got, true, fmt.Errorf("%w: %v", errOutcomeUnknown, err)
	}
	mu.Lock()
	defer mu.Unlock()
	switch {
	case ended == errTimedOut && exit.Before(start.Add(limit)):
		return got, began, nil // it ended in time, and the timer fired only because no server watched meanwhile
	case ended == errInputCut && exit.Before(endedAt):
		return got, began, nil // it ended before the input did, so it would not have read the rest
	case ended == errTimedOut:
		got.ExitCode, got.TimedOut = exitTimedOut, true
		return got, began, nil
	case ended == nil && cancelled(ctx):
		ended = ctx.Err() // cancelled as it ended
	case ended == nil && boxEnded && began:
		ended = errSandboxEnded
	}
	return got, began, ended
}

// releaseEvery is how many bytes of a record are released together, because each release is a message to the sandbox.
const releaseEvery = 1 << 20

// release releases the parts of the record that the reader has, until ctx ends, so that the command can write more.
func (w *commandWorker) release(ctx context.Context, l sandbox.Launcher, ref, id string, feed *feed) {
	for before := int64(0); ; {
		position, changed := feed.released()
		var again <-chan time.Time
		if position-before >= releaseEvery {
			if err := l.Release(ctx, ref, id, position); err != nil && ctx.Err() == nil {
				again = time.After(time.Second)
				w.logger.WarnContext(ctx, "output that was read cannot be released in the sandbox; the command may have to wait", "error", err)
			} else {
				before = position
			}
		}
		select {
		case <-changed:
		case <-again: // without a change too, because the command may wait for it
		case <-ctx.Done():
			return
		}
	}
}

// pass passes input on to a command. It returns when the command has all of it or reads no more. The error is that the
// input ended early.
func (w *commandWorker) pass(ctx context.Context, l sandbox.Launcher, ref string, job *river.Job[commandArgs], in *input) error {
	// An earlier server may have passed on a part of it, and what was in its memory is lost. The command would take the
	// rest for the whole.
	if len(job.AttemptedBy) > 1 && noted(job.JobRow).Begun != nil {
		if !noted(job.JobRow).InputEnded {
			return errInputCut
		}
		return nil
	}
	to, err := l.Input(ctx, ref, job.Args.launchID())
	if err != nil { // the command has ended
		in.close()
		return nil
	}
	switch _, err := io.Copy(to, in.reader(ctx)); {
	case err == nil:
		if err := to.Close(); err != nil {
			w.logger.WarnContext(ctx, "the end of the input cannot be passed on to the command's sandbox", "error", err)
			return errInputCut
		}
		if err := w.noteInputEnded(w.resultCtx, job.ID); err != nil {
			w.logger.WarnContext(ctx, "cannot record that a command got all of its input; the next server would end it", "error", err)
		}
	case errors.Is(err, errInputCut):
		return err
	case ctx.Err() == nil:
		in.close() // the command reads no more
	}
	return nil
}

// exec runs a command that ends with this server.
func (w *commandWorker) exec(ctx context.Context, house string, p sandbox.Handle, cmd sandbox.Command, out *output) (sandbox.Result, error) {
	stdout, stderr := sharedWriter{ctx, w.shares, house, out.stdout}, sharedWriter{ctx, w.shares, house, out.stderr}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if cmd.Merged {
		cmd.Stderr = nil
	}
	if feed := out.to.feed; feed != nil {
		cmd.Stdout = io.MultiWriter(stdout, feedWriter{ctx, feed, Stdout})
		cmd.Stderr = io.MultiWriter(stderr, feedWriter{ctx, feed, Stderr})
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	in := out.to.input
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
	if err == nil && out.to.feed != nil {
		_ = out.to.feed.close(ctx) // must not fail the command: a reader that was too slow gets an error itself
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

// forget deletes the record of a command whose result is in the log. It must not run earlier, because until then the
// next server needs the record.
func (w *commandWorker) forget(job *river.Job[commandArgs], ran run) {
	if ran.handle == nil {
		return
	}
	l, ok := ran.handle.Launcher()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(w.resultCtx, forgetTimeout)
	defer cancel()
	if err := l.Forget(ctx, ran.handle.Ref, job.Args.launchID()); err != nil && fault.CodeOf(err) != fault.NotFound {
		w.logger.Warn("cannot delete the record of a command that has ended", "sandbox", ran.handle.ID, "error", err)
	}
}
