package command

import (
	"context"
	"io"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

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
		cmd.Stdin = completeInput{in.reader(over), end, over.Done()}
	}
	cmd.Complete, cmd.Input = false, false // only Launch needs these; here Stdout and Stdin do the same
	got, err := p.Exec(running, cmd)
	stop()
	if in != nil {
		err = in.ran(err, context.Cause(running))
	}
	if err == nil && w.to.feed != nil {
		_ = w.to.feed.close(ctx) // an error must not fail the command: a reader that was too slow gets the error itself
	}
	return got, err
}

// ran closes the input after the command that reads it ran on this server, and returns the error of the command.
func (i *input) ran(err, stopped error) error {
	switch gone := fault.CodeOf(err) == fault.NotFound; {
	case err != nil && stopped == errInputCut:
		err = errInputCut
	case gone && i.untouched():
		return err // the input stays open, because the caller runs the command in another sandbox
	case gone:
		err = errInputCut // the input read so far is lost with the sandbox
	}
	i.close()
	return err
}

// feedWriter writes one output of a command to its feed.
type feedWriter struct {
	ctx     context.Context
	feed    *feed
	channel Channel
}

func (w feedWriter) Write(p []byte) (int, error) {
	if err := w.feed.write(w.ctx, w.channel, p, 0); err != nil {
		return 0, err
	}
	return len(p), nil
}

// completeInput ends the command if its input is interrupted, so that the command never mistakes a part of the input for
// all of it.
type completeInput struct {
	io.Reader
	end  context.CancelCauseFunc
	over <-chan struct{} // closed when the command has ended
}

func (w completeInput) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err == errInputCut {
		w.end(err)
		<-w.over
	}
	return n, err
}
