package arbe

import (
	"context"
	"io"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// stayEvery is how often a reader or writer that waits for something else reports that it is still there. The server
// takes one that does not call for a minute to be gone.
const stayEvery = 10 * time.Second

// RunOption changes how [Client.Run] behaves.
type RunOption interface{ applyRun(*run) }

type runOption func(*run)

func (o runOption) applyRun(r *run) { o(r) }

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
	terminal       *Terminal
	joins          bool   // the command is already running
	reader         string // the id of this reader, if it joins
}

// again repeats a call until it succeeds, ctx ends, or repeating it cannot help. It must be harmless to repeat the call,
// because a call that failed may have had its effect.
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

// Terminal is the caller's terminal, for [WithTerminal] and [Client.Join].
type Terminal struct {
	// In delivers the typed bytes, so the terminal must be in raw mode. EOF ends nothing. A goroutine reads In. If a Read
	// blocks, that goroutine may end after Run has returned: when the Read returns.
	In io.Reader
	// Out receives the output of the command's terminal.
	Out io.Writer
	// Size is the terminal's size at first, and Resized delivers each later size. Resized may be nil.
	Size    *arbev1.TerminalSize
	Resized <-chan *arbev1.TerminalSize
	// Kind is the value of TERM. Defaults to the sandbox's.
	Kind string
	// Keep keeps the command running while nobody is connected to it. Otherwise the server ends it after a minute.
	Keep bool
}
