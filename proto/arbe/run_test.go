package arbe_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// An endlessCommand is a command that has printed something and does not end.
type endlessCommand struct {
	arbev1connect.UnimplementedThreadServiceHandler
	cancelled chan struct{}
}

func (c *endlessCommand) RunCommand(context.Context, *arbev1.RunCommandRequest) (*arbev1.RunCommandResponse, error) {
	return &arbev1.RunCommandResponse{Entry: &arbev1.Entry{}, ResultId: "result"}, nil
}

func (c *endlessCommand) ReadOutput(ctx context.Context, req *arbev1.ReadOutputRequest) (*arbev1.ReadOutputResponse, error) {
	if req.GetPosition() > 0 && !req.GetStay() && !req.GetLeave() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	piece := &arbev1.OutputPiece{Stream: arbev1.OutputStream_OUTPUT_STREAM_STDOUT, Data: []byte("some output")}
	return &arbev1.ReadOutputResponse{Pieces: []*arbev1.OutputPiece{piece}, Position: int64(len(piece.Data))}, nil
}

func (c *endlessCommand) CancelCommand(context.Context, *arbev1.CancelCommandRequest) (*arbev1.CancelCommandResponse, error) {
	close(c.cancelled)
	return &arbev1.CancelCommandResponse{}, nil
}

// patience is how long a test waits for an expected event.
const patience = 3 * time.Minute

// A writer may block forever, like a pipe that nobody reads.
func TestRunReturnsWhenItsContextEndsAlthoughAWriterBlocks(t *testing.T) {
	t.Parallel()
	command := &endlessCommand{cancelled: make(chan struct{})}
	client := serve(t, &scriptedServer{threads: command})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pipe, stdout := io.Pipe()
	defer pipe.Close()
	writing, wrote := make(chan struct{}), make(chan struct{})
	returned := make(chan error, 1)
	go func() {
		_, err := client.Run(ctx, &arbev1.RunCommandRequest{ThreadId: "thread"}, arbe.WithOutput(writerFunc(func(p []byte) (int, error) {
			close(writing)
			defer close(wrote)
			return stdout.Write(p)
		}), nil))
		returned <- err
	}()
	<-writing
	cancel()
	select {
	case err := <-returned:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want %v", err, context.Canceled)
		}
	case <-time.After(patience):
		t.Error("it has not returned")
	}
	// The caller frees its writer, whose error is no reason to cancel the command, because Run said that it continues.
	pipe.Close()
	<-wrote
	select {
	case <-command.cancelled:
		t.Error("the command was cancelled")
	case <-time.After(time.Second):
	}
}

func TestRunCancelsTheCommandWhenAWriterFails(t *testing.T) {
	t.Parallel()
	command := &endlessCommand{cancelled: make(chan struct{})}
	client := serve(t, &scriptedServer{threads: command})
	_, err := client.Run(t.Context(), &arbev1.RunCommandRequest{ThreadId: "thread"}, arbe.WithOutput(writerFunc(func([]byte) (int, error) {
		return 0, io.ErrShortWrite
	}), nil))
	if failed := (*arbe.WriteError)(nil); !errors.As(err, &failed) || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("the error is %v, want a WriteError for %v", err, io.ErrShortWrite)
	}
	<-command.cancelled
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A deafCommand is an endless command that takes no keys.
type deafCommand struct{ endlessCommand }

func (c *deafCommand) WriteInput(ctx context.Context, _ *arbev1.WriteInputRequest) (*arbev1.WriteInputResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// The keys of a terminal may tell its owner to leave, also while the server takes none.
func TestATerminalIsReadWhileTheServerTakesNoKeys(t *testing.T) {
	t.Parallel()
	client := serve(t, &scriptedServer{threads: &deafCommand{endlessCommand{cancelled: make(chan struct{})}}})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	keys := []string{"l", "s", "\r", "~", "."}
	in := readerFunc(func(p []byte) (int, error) {
		if len(keys) == 0 {
			leave()
			return 0, io.EOF
		}
		n := copy(p, keys[0])
		keys = keys[1:]
		return n, nil
	})
	returned := make(chan error, 1)
	go func() {
		_, err := client.Run(ctx, &arbev1.RunCommandRequest{ThreadId: "thread"}, arbe.WithTerminal(arbe.Terminal{In: in, Out: io.Discard}))
		returned <- err
	}()
	select {
	case err := <-returned:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want %v", err, context.Canceled)
		}
	case <-time.After(patience):
		t.Error("it does not read what was typed")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
