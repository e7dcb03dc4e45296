package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/wait"
)

const (
	// endGrace is how long a command that ends with its server has to exit before it is killed. It is short, because the
	// stopping server waits for it.
	endGrace = 3 * time.Second
	// endTimeout limits how long ending a command takes after that, in case its sandbox does not answer.
	endTimeout = 10 * time.Second
	// askAgain is the pause after a provider did not answer a server that follows a command.
	askAgain = 5 * time.Second
	// hangUpGrace is how long programs have to save their data when their terminal is gone.
	hangUpGrace = 5 * time.Second
)

// following follows a launched command until it has ended or is handed over.
type following struct {
	*work
	limit time.Duration
	// ctx is not the job's context: a cancelled command is followed to its end, because its output until then counts. leave
	// ends it.
	ctx   context.Context
	leave context.CancelCauseFunc
	pace  *pace

	// These describe the record so far. The next part begins at next, unless the last one was refused.
	next            int64
	refused         bool
	began, boxEnded bool
	start, exit     time.Time
	got             sandbox.Result
	timer           *time.Timer

	mu sync.Mutex
	// stopped is the reason why this server ended the command, at stoppedAt; nil if it did not.
	stopped   error
	stoppedAt time.Time
}

// follow follows the launched command until it has ended or is handed over. began is false if it never began.
func (w *work) follow(ctx context.Context, limit time.Duration) (got sandbox.Result, began bool, err error) {
	f := &following{work: w, limit: limit, pace: newPace()}
	f.ctx, f.leave = context.WithCancelCause(context.WithoutCancel(ctx))
	defer f.leave(nil)
	defer context.AfterFunc(ctx, func() { f.leaveWith(ctx) })()
	f.serve()
	if w.to.screen != nil {
		w.to.screen.show(f.ctx, w.launched)
		defer w.to.screen.show(f.ctx, nil)
	}
	err = f.read()
	if err == nil && f.began && w.to.input != nil {
		w.to.input.close()
	}
	if err == nil && f.began && w.to.feed != nil {
		err = w.to.feed.close(f.ctx)
	}
	if f.timer != nil {
		f.timer.Stop()
	}
	if err == nil && jobs.Cancelled(ctx) {
		// The signal that ended it may have left descendants: SIGINT is not even sent to all of them.
		ending, stop := context.WithTimeout(f.ctx, endTimeout)
		_ = w.launched.end(ending, 0)
		stop()
	}
	if err != nil {
		return f.got, true, f.lost(err)
	}
	return f.outcome(ctx)
}

// read delivers the command's record to its end. A provider that does not answer for a while changes nothing about the command.
func (f *following) read() error {
	for {
		err := f.launched.follow(f.ctx, f.next, f.record)
		if fault.CodeOf(err) != fault.Unavailable || f.refused || !wait.For(f.ctx, askAgain) {
			return err
		}
	}
}

// leaveWith does what the end of ctx means for the command: it is cancelled, ended, or left to another server.
func (f *following) leaveWith(ctx context.Context) {
	switch {
	case jobs.Cancelled(ctx):
		f.cancel()
	case f.config.End:
		f.stop(errCutOff, endGrace)
	default:
		f.leave(errHandedOver)
	}
}

// serve passes on output and input in the background.
func (f *following) serve() {
	if f.to.feed != nil {
		go f.release()
	} else {
		go f.pace.keep(f.ctx, *f.launched, f.out.reserve, f.config.Logger)
	}
	if f.to.input == nil {
		return
	}
	go func() {
		if f.pass() != nil {
			f.endInput()
		}
	}()
}

// lost returns why the command could not be followed to its end.
func (f *following) lost(err error) error {
	if why := context.Cause(f.ctx); why != nil {
		return why
	}
	return fmt.Errorf("%w: %v", errOutcomeUnknown, err)
}

// cancel sends the command increasingly strong signals until it has ended.
func (f *following) cancel() {
	if f.to.feed != nil {
		f.to.feed.rush()
	}
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	err := f.launched.escalate(ctx, func() Signal { return f.cancellation().Signal }, func(sent Signal) {
		f.mu.Lock()
		f.stopped = &cancelledError{sent}
		f.mu.Unlock()
	})
	if err != nil && f.ctx.Err() == nil {
		f.leave(fmt.Errorf("%w: it could not be ended: %v", errOutcomeUnknown, err))
	}
}

// record receives a part of the record of the command.
func (f *following) record(r sandbox.Record) error {
	err := f.take(r)
	f.next, f.refused = r.Next, err != nil
	f.pace.passed(r.Next)
	return err
}

func (f *following) take(r sandbox.Record) error {
	switch r.Kind {
	case sandbox.RecordStart:
		f.began, f.start = true, r.Time
		if f.limit > 0 {
			f.timer = time.AfterFunc(time.Until(f.start.Add(f.limit)), func() { f.stop(errTimedOut, 0) })
		}
	case sandbox.RecordStdout:
		return f.write(f.out.stdout, Stdout, r)
	case sandbox.RecordStderr:
		return f.write(f.out.stderr, Stderr, r)
	case sandbox.RecordGap:
		f.out.skip(r.Dropped)
		if f.to.feed != nil {
			f.to.feed.gap(f.ctx, r.Dropped)
		}
	case sandbox.RecordExit:
		f.config.Output.Ask(f.job.Args.House) // for the time to write its result
		f.exit, f.got.ExitCode, f.got.OutOfMemory, f.boxEnded = r.Time, r.ExitCode, r.OutOfMemory, r.BoxEnded
		if f.began {
			f.got.Duration = max(r.Time.Sub(f.start), 0)
		}
	}
	return nil
}

// write receives output.
func (f *following) write(to *text, channel Channel, r sandbox.Record) error {
	func() {
		defer f.config.Output.Begin(f.ctx, f.job.Args.House, len(r.Data))()
		_, _ = to.Write(r.Data) // never fails, because it waits for no watcher
	}()
	if f.to.feed == nil {
		return nil
	}
	return f.to.feed.write(f.ctx, channel, r.Data, r.Next)
}

// release releases the parts of the record that the reader has, so that the command can write more. It runs while the command
// is followed.
func (f *following) release() {
	for before := int64(0); ; {
		position, changed := f.to.feed.released()
		var again <-chan time.Time
		if position-before >= releaseEvery {
			if err := f.launched.release(f.ctx, position); err != nil && f.ctx.Err() == nil {
				again = time.After(time.Second)
				f.config.Logger.WarnContext(f.ctx, "cannot release output in the sandbox that was read; the command may have to wait", "error", err)
			} else {
				before = position
			}
		}
		select {
		case <-changed:
		case <-again: // even without a change, because the command may be waiting
		case <-f.ctx.Done():
			return
		}
	}
}

// pass passes input on to a command. It returns when the command has all of it or reads no more. It fails only if the input
// ended early.
func (f *following) pass() error {
	in := f.to.input
	// An earlier server may have passed on a part of the input, and lost another part with its memory. The command would
	// mistake the rest for the whole input.
	if f.job.Continued() && f.note.Begun != nil && f.command.Terminal == nil {
		if !f.note.InputEnded {
			return errInputCut
		}
		return nil
	}
	to, err := f.launched.input(f.ctx)
	if err != nil { // the command has ended
		in.close()
		return nil
	}
	if f.command.Terminal != nil {
		defer to.Close()
	}
	switch _, err := io.Copy(to, in.reader(f.ctx)); {
	case err == nil:
		return f.passedAll(to)
	case errors.Is(err, errInputCut):
		return err
	case f.ctx.Err() == nil:
		in.close() // the command reads no more
	}
	return nil
}

// passedAll ends the command's input after all of it was passed on.
func (f *following) passedAll(to io.Closer) error {
	if err := to.Close(); err != nil {
		f.config.Logger.WarnContext(f.ctx, "the end of the input cannot be passed on to the command's sandbox", "error", err)
		return errInputCut
	}
	err := f.job.SetNote(f.config.Jobs.Results(), note{InputEnded: true}, nil)
	if err != nil && !errors.Is(err, jobs.ErrTakenByOther) {
		f.config.Logger.WarnContext(f.ctx, "cannot record that a command got all of its input; the next server would end it", "error", err)
	}
	return nil
}

// endInput ends the command because the writer of its input is gone.
func (f *following) endInput() {
	if f.command.Terminal == nil {
		f.stop(errInputCut, 0)
		return
	}
	ctx, cancel := context.WithTimeout(f.ctx, endTimeout)
	heard, _ := f.launched.hangUp(ctx) // stop ends the programs that ignore it
	cancel()
	if !heard {
		f.stop(errInputCut, 0)
		return
	}
	f.stop(errInputCut, hangUpGrace)
}

// stop ends the command.
func (f *following) stop(why error, patience time.Duration) {
	f.mu.Lock()
	f.stopped, f.stoppedAt = why, time.Now()
	f.mu.Unlock()
	if f.to.feed != nil {
		f.to.feed.rush()
	}
	ctx, cancel := context.WithTimeout(f.ctx, patience+endTimeout)
	defer cancel()
	if err := f.launched.end(ctx, patience); err != nil && f.ctx.Err() == nil {
		f.leave(fmt.Errorf("%w: it could not be ended: %v", errOutcomeUnknown, err)) // must not be a fault; see attend
	}
}

// outcome returns how a command with a complete record ended. ctx is the context of its job.
func (f *following) outcome(ctx context.Context) (got sandbox.Result, began bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stopped == errTimedOut && f.exit.Before(f.start.Add(f.limit)):
		return f.got, f.began, nil // it ended in time; the timer fired only because no server was watching
	case f.stopped == errInputCut && f.exit.Before(f.stoppedAt):
		return f.got, f.began, nil // it ended before the input did, so it would not have read the rest
	case f.stopped == errTimedOut:
		f.got.ExitCode, f.got.TimedOut = exitTimedOut, true
		return f.got, f.began, nil
	case f.stopped == nil && jobs.Cancelled(ctx):
		return f.got, f.began, ctx.Err() // cancelled as it ended
	case f.stopped == nil && f.boxEnded && f.began:
		return f.got, f.began, errSandboxEnded
	}
	return f.got, f.began, f.stopped
}
