package arbe

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

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

// WithTerminal gives the command a terminal and connects it to the caller's. When connections break or the server restarts,
// no output is lost and no key is typed twice. Only keys that are being sent at that moment may be lost.
func WithTerminal(t Terminal) RunOption { return runOption(func(r *run) { r.terminal = &t }) }

// Join connects the caller's terminal to the terminal of a running command, given by its entry, and then works like
// [Client.Run]. It shows the output from now on. If another caller was connected, that caller's call ends with an
// [*OutputError].
func (c *Client) Join(ctx context.Context, thread string, command *arbev1.Entry, t Terminal, opts ...RunOption) (*Result, error) {
	req := &arbev1.RunCommandRequest{ThreadId: thread, Id: command.GetId()}
	r := newRun(c, req, append(opts, WithTerminal(t)))
	r.joins, r.reader = true, strings.ToLower(rand.Text())
	return r.attend(ctx, &arbev1.RunCommandResponse{Entry: command, ResultId: command.GetId() + resultSuffix})
}

// Await waits for the end of a command that was started earlier, and otherwise works like [Client.Run].
func (c *Client) Await(ctx context.Context, thread string, command *arbev1.Entry, opts ...RunOption) (*Result, error) {
	r := newRun(c, &arbev1.RunCommandRequest{ThreadId: thread, Id: command.GetId()}, opts)
	r.separate, r.stdin = false, nil // these belong to the caller who started the command
	return r.attend(ctx, &arbev1.RunCommandResponse{Entry: command, ResultId: command.GetId() + resultSuffix})
}

// resultSuffix follows the id of a command in the id of its result.
const resultSuffix = ".result"

// mostTyped limits the keys of one call.
const mostTyped = 64 << 10

// typeKeys sends the typed keys and the terminal's sizes until ctx or the command ends.
func (r *run) typeKeys(ctx context.Context) {
	t := r.terminal
	keys := make(chan []byte)
	go func() {
		for {
			typed := make([]byte, 4096)
			n, err := t.In.Read(typed)
			if n > 0 {
				select {
				case keys <- typed[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(stayEvery)
	defer tick.Stop()
	req := &arbev1.WriteInputRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id, Size: t.Size, Join: r.joins}
	for closed := r.sendKeys(ctx, req); !closed; closed = r.sendKeys(ctx, req) {
		req.Size = nil
		if len(req.Data) > 0 { // the server did not have room for all of it
			continue
		}
		select {
		case req.Data = <-keys:
			req.Data = appendWaiting(req.Data, keys)
		case req.Size = <-t.Resized:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// appendWaiting appends the other keys that were typed, so that a paste takes few calls.
func appendWaiting(data []byte, keys <-chan []byte) []byte {
	for len(data) < mostTyped {
		select {
		case more := <-keys:
			data = append(data, more...)
		default:
			return data
		}
	}
	return data
}

// sendKeys sends a request until the server has answered it, and removes the data that the server has taken. closed reports
// that nothing more can be typed.
func (r *run) sendKeys(ctx context.Context, req *arbev1.WriteInputRequest) (closed bool) {
	req.Again = false
	var got *arbev1.WriteInputResponse
	err := r.again(ctx, func() (err error) {
		got, err = r.client.Threads.WriteInput(ctx, req)
		req.Again = req.Again || err != nil
		return err
	})
	if err != nil || got.GetClosed() {
		return true
	}
	if req.Join {
		req.Join, req.Position = false, got.GetPosition()
		return false
	}
	taken := min(max(got.GetPosition()-req.Position, 0), int64(len(req.Data)))
	req.Position, req.Data = req.Position+taken, req.Data[taken:]
	return false
}
