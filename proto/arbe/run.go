package arbe

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// inputPiece is how many bytes of input one call sends.
	inputPiece = 256 << 10
	// stayEvery is how often a reader or writer that waits for something else says that it is still there.
	stayEvery = 10 * time.Second
)

// Result is how a command ended.
type Result struct {
	// Entry is the command_result entry.
	Entry *arbev1.Entry `json:"-"`
	// ExitCode is the command's own; 124 for one that ran out of time, 128+n for one that signal n ended, -1 when it
	// never ran or nobody knows how it ended.
	ExitCode int `json:"exit_code"`
	// Output is what it printed, as text. Of a large output it is the beginning, and OutputTail the end.
	Output     string `json:"output"`
	OutputTail string `json:"output_tail"`
	// Truncated says that something between them was left out. ArtifactID is the artifact that has it; empty for none.
	Truncated  bool   `json:"truncated"`
	ArtifactID string `json:"artifact_id"`
	// Cancelled, TimedOut and OutOfMemory say why it did not end by itself.
	Cancelled   bool `json:"cancelled"`
	TimedOut    bool `json:"timed_out"`
	OutOfMemory bool `json:"out_of_memory"`
	// Error says why it could not run, or why it is not known how it ended; else it is empty.
	Error string `json:"error"`
}

// OutputError is the error of [Client.Run] when the output did not arrive whole.
type OutputError struct {
	Position int64 // how many bytes of it arrived
	Err      error
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("the command's output is not complete behind byte %d: %v", e.Position, e.Err)
}

// Unwrap returns why.
func (e *OutputError) Unwrap() error { return e.Err }

// WriteError is the error of [Client.Run] when a writer that it was given failed, which cancels the command.
type WriteError struct{ Err error }

func (e *WriteError) Error() string {
	return "the command's output cannot be written: " + e.Err.Error()
}

// Unwrap returns the writer's error.
func (e *WriteError) Unwrap() error { return e.Err }

// RunOption changes how [Client.Run] behaves.
type RunOption interface{ applyRun(*run) }

type runOption func(*run)

func (o runOption) applyRun(r *run) { o(r) }

// WithStdin gives the command an input. What is read of it when the command ends is lost. The reader is read by a
// goroutine that ends at the reader's next answer after Run has returned. Defaults to none: the command's input is empty.
func WithStdin(stdin io.Reader) RunOption { return runOption(func(r *run) { r.stdin = stdin }) }

// WithOutput writes every byte of the command's two outputs, apart, as they come. The command waits for writers that are
// slow. Nil drops one. Defaults to none: the outputs are one, and only in the [Result].
func WithOutput(stdout, stderr io.Writer) RunOption {
	return runOption(func(r *run) { r.separate, r.stdout, r.stderr = true, stdout, stderr })
}

// OnStart calls f when the command is in the log.
func OnStart(f func(*arbev1.RunCommandResponse)) RunOption {
	return runOption(func(r *run) { r.started = f })
}

// OnEvent calls f for every event of the thread from the command on until its result, in order: the result's deltas are
// its live output. An error of f ends Run with it.
func OnEvent(f func(*arbev1.TailResponse) error) RunOption {
	return runOption(func(r *run) { r.event = f })
}

// WithTail changes how Run follows the thread.
func WithTail(opts ...TailOption) RunOption { return runOption(func(r *run) { r.tail = opts }) }

// run is one call of Run.
type run struct {
	client         *Client
	req            *arbev1.RunCommandRequest
	stdin          io.Reader
	separate       bool
	stdout, stderr io.Writer
	started        func(*arbev1.RunCommandResponse)
	event          func(*arbev1.TailResponse) error
	tail           []TailOption
}

// Run runs a command and returns how it ended, however often connections are cut and servers restart meanwhile. The
// command is not started twice: an id is chosen where the request has none. An exit code other than 0 is no error.
//
// When ctx ends, Run returns its error, and the command goes on: cancel it with Threads.CancelCommand. Other errors are
// those of Threads.RunCommand and of [Client.Tail], a [*WriteError], and with a result an [*OutputError].
func (c *Client) Run(ctx context.Context, req *arbev1.RunCommandRequest, opts ...RunOption) (*Result, error) {
	r := &run{
		client: c, req: proto.CloneOf(req),
		started: func(*arbev1.RunCommandResponse) {}, event: func(*arbev1.TailResponse) error { return nil },
	}
	for _, o := range opts {
		o.applyRun(r)
	}
	if r.req.Id == "" {
		r.req.Id = strings.ToLower(rand.Text())
	}
	r.req.Separate, r.req.Input = r.separate, r.stdin != nil
	started, err := c.Threads.RunCommand(ctx, r.req)
	if err != nil {
		return nil, err
	}
	r.started(started)

	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	var output error
	var reading sync.WaitGroup
	if r.separate {
		reading.Go(func() {
			output = r.readOutput(ctx)
			if w, ok := errors.AsType[*WriteError](output); ok {
				r.cancel(ctx)
				leave(w)
			}
		})
	}
	if r.stdin != nil {
		go r.writeInput(ctx)
	}
	result, err := r.follow(ctx, started)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		leave(err)
		reading.Wait()
		return nil, err
	}
	reading.Wait()
	return result, output
}

// follow follows the thread until the command has ended.
func (r *run) follow(ctx context.Context, started *arbev1.RunCommandResponse) (*Result, error) {
	for event, err := range r.client.Tail(ctx, r.req.ThreadId, started.GetEntry().GetSeq(), r.tail...) {
		if err == nil {
			err = r.event(event)
		}
		if err != nil {
			return nil, err
		}
		if e := event.GetEntry(); e.GetId() == started.GetResultId() {
			result := &Result{Entry: e}
			if err := json.Unmarshal([]byte(e.GetPayload()), result); err != nil {
				return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("the command's result cannot be read: %w", err))
			}
			return result, nil
		}
	}
	return nil, ctx.Err() // the tail ends with an error only
}

// cancel cancels the command, whose output nobody takes.
func (r *run) cancel(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), stayEvery)
	defer stop()
	if r.separate { // so that the end of the command does not wait for a reader
		_, _ = r.client.Threads.ReadOutput(ctx, &arbev1.ReadOutputRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id, Leave: true})
	}
	_, _ = r.client.Threads.CancelCommand(ctx, &arbev1.CancelCommandRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id})
}

// readOutput reads the output to its end. What arrived is fetched while what came before is written.
func (r *run) readOutput(ctx context.Context) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	arrived := make(chan *arbev1.ReadOutputResponse)
	failed := make(chan error, 1)
	go func() {
		defer close(arrived)
		failed <- r.fetchOutput(ctx, arrived)
	}()
	for piece := range arrived {
		for _, p := range piece.GetPieces() {
			to := r.stdout
			if p.GetStream() == arbev1.OutputStream_OUTPUT_STREAM_STDERR {
				to = r.stderr
			}
			if to == nil {
				continue
			}
			if _, err := to.Write(p.GetData()); err != nil {
				return &WriteError{err}
			}
		}
	}
	return <-failed
}

// fetchOutput sends the output as it arrives, until its end.
func (r *run) fetchOutput(ctx context.Context, arrived chan<- *arbev1.ReadOutputResponse) error {
	tick := time.NewTicker(stayEvery)
	defer tick.Stop()
	for position := int64(0); ; {
		var got *arbev1.ReadOutputResponse
		err := r.again(ctx, func() (err error) {
			got, err = r.client.Threads.ReadOutput(ctx, &arbev1.ReadOutputRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id, Position: position})
			return err
		})
		if err != nil {
			return &OutputError{position, err}
		}
		if got.GetEnded() {
			return nil
		}
		for sent := len(got.GetPieces()) == 0; !sent; {
			select {
			case arrived <- got:
				sent = true
			case <-tick.C:
				// An error shows at the next call.
				_, _ = r.client.Threads.ReadOutput(ctx, &arbev1.ReadOutputRequest{
					ThreadId: r.req.ThreadId, CommandId: r.req.Id, Position: position, Stay: true,
				})
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		position = got.GetPosition()
	}
}

// input is a part of what a command is given to read.
type input struct {
	data []byte
	err  error // behind the data
}

// writeInput sends the input to its end, or until the command reads no more. When it breaks off, the server ends the
// command, and the result says so.
func (r *run) writeInput(ctx context.Context) {
	pieces := make(chan input)
	go func() {
		var buffers [2][]byte // one is filled while the other one is sent
		for i := 0; ; i = 1 - i {
			if buffers[i] == nil {
				buffers[i] = make([]byte, inputPiece)
			}
			n, err := r.stdin.Read(buffers[i])
			select {
			case pieces <- input{buffers[i][:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(stayEvery)
	defer tick.Stop()
	var position int64
	for {
		var piece input
		select {
		case piece = <-pieces:
		case <-tick.C: // says that there may be more
		case <-ctx.Done():
			return
		}
		if piece.err != nil && piece.err != io.EOF { // the command must not take what came for all
			_, _ = r.client.Threads.CancelCommand(ctx, &arbev1.CancelCommandRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id})
			return
		}
		end := piece.err == io.EOF
		for first := true; first || len(piece.data) > 0; first = false {
			var got *arbev1.WriteInputResponse
			err := r.again(ctx, func() (err error) {
				got, err = r.client.Threads.WriteInput(ctx, &arbev1.WriteInputRequest{
					ThreadId: r.req.ThreadId, CommandId: r.req.Id, Position: position, Data: piece.data, End: end,
				})
				return err
			})
			if err != nil || got.GetClosed() {
				return
			}
			taken := min(max(got.GetPosition()-position, 0), int64(len(piece.data)))
			position, piece.data = position+taken, piece.data[taken:]
		}
		if end {
			return
		}
	}
}

// again calls until it succeeds, ctx ends, or calling again heals nothing.
func (r *run) again(ctx context.Context, call func() error) error {
	for delay := defaultMinDelay; ; delay = min(2*delay, defaultMaxDelay) {
		err := call()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case hopeless(err):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}
