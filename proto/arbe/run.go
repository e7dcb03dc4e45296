package arbe

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// inputPiece is how many bytes of input one call sends.
	inputPiece = 1 << 20
	// writeGrace is how long Run waits for a writer after its context has ended. A writer that is a pipe may block forever,
	// and Run must not.
	writeGrace = time.Second
)

// Result says how a command ended.
type Result struct {
	// Entry is the command_result entry.
	Entry *arbev1.Entry `json:"-"`
	// ExitCode is the command's own. It is 124 if the command timed out, 128+n if signal n ended it, and -1 if it did not
	// run or its end is unknown.
	ExitCode int `json:"exit_code"`
	// Output is the command's output, as text. If the output is large, Output is its beginning and OutputTail its end.
	Output     string `json:"output"`
	OutputTail string `json:"output_tail"`
	// Truncated reports that the part between them is missing. ArtifactID is the artifact that contains it, or empty.
	Truncated  bool   `json:"truncated"`
	ArtifactID string `json:"artifact_id"`
	// Cancelled, TimedOut and OutOfMemory say why the command was ended.
	Cancelled   bool `json:"cancelled"`
	TimedOut    bool `json:"timed_out"`
	OutOfMemory bool `json:"out_of_memory"`
	// Error says why the command could not run, or why its end is unknown. Otherwise it is empty.
	Error string `json:"error"`
}

// OutputError is the error of [Client.Run] if a part of the output did not arrive.
type OutputError struct {
	Position int64 // how many bytes of the output arrived
	Err      error
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("the command's output is incomplete after byte %d: %v", e.Position, e.Err)
}

// Unwrap returns the cause.
func (e *OutputError) Unwrap() error { return e.Err }

// WriteError is the error of [Client.Run] if a writer of [WithOutput] failed. The command is then cancelled.
type WriteError struct{ Err error }

func (e *WriteError) Error() string {
	return "the command's output cannot be written: " + e.Err.Error()
}

// Unwrap returns the writer's error.
func (e *WriteError) Unwrap() error { return e.Err }

// WithStdin gives the command an input. Bytes that Run has read from stdin are lost if the command does not read them. A
// goroutine reads stdin. If stdin blocks, that goroutine may end after Run has returned: when stdin returns. By default, the
// command's input is empty.
func WithStdin(stdin io.Reader) RunOption { return runOption(func(r *run) { r.stdin = stdin }) }

// WithOutput writes every byte of the command's two outputs as it arrives, each output to its own writer. The command waits
// for a slow writer. A nil writer drops its output. One goroutine calls both writers. If a writer blocks when the context of
// Run ends, its Write continues after Run has returned. By default, the outputs are merged, and only the [Result] has them.
func WithOutput(stdout, stderr io.Writer) RunOption {
	return runOption(func(r *run) { r.separate, r.stdout, r.stderr = true, stdout, stderr })
}

// Unlogged keeps standard output out of the thread's log: only the writer of [WithOutput] gets it. The log and the [Result] have
// only standard error. Use it for large output that nobody reads in the log. By default, the log keeps a part of all output.
func Unlogged() RunOption { return runOption(func(r *run) { r.req.Unlogged = true }) }

// OnStart calls f when the command is in the log.
func OnStart(f func(*arbev1.RunCommandResponse)) RunOption {
	return runOption(func(r *run) { r.started = f })
}

// OnEvent calls f for every event of the thread after the command, up to the command's result, in order. The deltas of the
// result are the command's live output. If f returns an error, Run returns it.
func OnEvent(f func(*arbev1.TailResponse) error) RunOption {
	return runOption(func(r *run) { r.event = f })
}

// WithTail changes how Run follows the thread.
func WithTail(opts ...TailOption) RunOption { return runOption(func(r *run) { r.tail = opts }) }

// newRun returns a run with the given options.
func newRun(c *Client, req *arbev1.RunCommandRequest, opts []RunOption) *run {
	r := &run{
		client: c, req: proto.CloneOf(req),
		started: func(*arbev1.RunCommandResponse) {}, event: func(*arbev1.TailResponse) error { return nil },
	}
	for _, o := range opts {
		o.applyRun(r)
	}
	if r.terminal != nil {
		r.separate, r.stdin, r.stdout = false, nil, r.terminal.Out
	}
	return r
}

// Run runs a command and returns how it ended, even if connections break and servers restart meanwhile. The command starts
// only once, because Run chooses an id if the request has none. An exit code other than 0 is not an error.
//
// When ctx ends, Run returns its error, within a second even if a writer blocks, and the command continues. To end the
// command, call Threads.CancelCommand. Other errors are those of Threads.RunCommand and of [Client.Tail], a [*WriteError]
// and an [*OutputError]. If the command has ended, Run returns its Result with the error.
func (c *Client) Run(ctx context.Context, req *arbev1.RunCommandRequest, opts ...RunOption) (*Result, error) {
	r := newRun(c, req, opts)
	if r.req.Id == "" {
		r.req.Id = strings.ToLower(rand.Text())
	}
	r.req.Separate, r.req.Input = r.separate, r.stdin != nil
	if t := r.terminal; t != nil {
		r.req.Terminal = &arbev1.Terminal{Size: t.Size, Kind: t.Kind, Keep: t.Keep}
	}
	started, err := c.Threads.RunCommand(ctx, r.req)
	if err != nil {
		return nil, err
	}
	return r.attend(ctx, started)
}

// attend passes on the output and the input of a command, and returns how it ended.
func (r *run) attend(ctx context.Context, started *arbev1.RunCommandResponse) (*Result, error) {
	r.started(started)

	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	output := make(chan error, 1)
	if r.separate || r.terminal != nil {
		go func() {
			err := r.readOutput(ctx)
			// After the end of ctx a writer may fail because its caller closes it, and the command continues.
			if w := (*WriteError)(nil); errors.As(err, &w) && ctx.Err() == nil {
				r.cancel(ctx)
				leave(w)
			}
			if r.terminal != nil && err != nil && ctx.Err() == nil {
				leave(err) // a terminal that shows nothing is of no use
			}
			output <- err
		}()
	} else {
		output <- nil
	}
	if r.stdin != nil {
		go r.writeInput(ctx)
	}
	if r.terminal != nil {
		go r.typeKeys(ctx)
	}
	result, err := r.follow(ctx, started)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		leave(err)
	}
	select {
	case failed := <-output:
		if failed != nil && ctx.Err() != nil { // otherwise chance would decide which of the two errors is reported
			failed = context.Cause(ctx)
		}
		return result, cmp.Or(err, failed)
	case <-ctx.Done():
	}
	// Wait for the writers, so that Run does not return before a writer that is not blocked.
	select {
	case <-output:
	case <-time.After(writeGrace):
	}
	return result, cmp.Or(err, context.Cause(ctx))
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
	return nil, ctx.Err() // not reached, because a tail ends only with an error
}

// cancel cancels the command because its output cannot be written.
func (r *run) cancel(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), stayEvery)
	defer stop()
	if r.separate || r.terminal != nil { // otherwise the end of the command would wait for its reader
		_, _ = r.client.Threads.ReadOutput(ctx, &arbev1.ReadOutputRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id, Reader: r.reader, Leave: true})
	}
	_, _ = r.client.Threads.CancelCommand(ctx, &arbev1.CancelCommandRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id})
}

// readOutput reads the output to its end. It fetches the next part while it writes the previous one, so that neither
// the network nor the writer waits for the other.
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
			if ctx.Err() != nil {
				return ctx.Err() // the writers must not be called, because Run may have returned
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
	var position int64
	if r.joins {
		err := r.again(ctx, func() error {
			got, err := r.client.Threads.ReadOutput(ctx, &arbev1.ReadOutputRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id, Reader: r.reader, Join: true})
			position = got.GetPosition()
			return err
		})
		if err != nil {
			return &OutputError{position, err}
		}
	}
	for {
		var got *arbev1.ReadOutputResponse
		err := r.again(ctx, func() (err error) {
			got, err = r.client.Threads.ReadOutput(ctx, &arbev1.ReadOutputRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id, Reader: r.reader, Position: position})
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
				// The error is ignored, because the next call fails too, and reports it.
				_, _ = r.client.Threads.ReadOutput(ctx, &arbev1.ReadOutputRequest{
					ThreadId: r.req.ThreadId, CommandId: r.req.Id, Reader: r.reader, Position: position, Stay: true,
				})
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		position = got.GetPosition()
	}
}

// input is a part of a command's input.
type input struct {
	data []byte
	err  error // the error of stdin after the data
}

// writeInput sends the input to its end, or until the command stops reading. If writeInput stops earlier, the server ends
// the command, and the result says so.
func (r *run) writeInput(ctx context.Context) {
	pieces := make(chan input)
	go func() {
		var buffers [2][]byte // two, so that one is filled while the other is sent
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
		case <-tick.C: // the empty piece reports that there may be more
		case <-ctx.Done():
			return
		}
		if piece.err != nil && piece.err != io.EOF { // the command must not take a part of the input for the whole
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
