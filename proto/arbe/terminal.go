package arbe

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Terminal is a terminal of the caller, as [WithTerminal] and [Client.Join] use it.
type Terminal struct {
	// In is what is typed, byte by byte: the terminal must be in raw mode. Its end ends nothing. A goroutine reads it, which
	// ends after Run only when In returns.
	In io.Reader
	// Out shows what the command's terminal shows.
	Out io.Writer
	// Size is the terminal's size, and Resized receives each later one. Resized may be nil.
	Size    *arbev1.TerminalSize
	Resized <-chan *arbev1.TerminalSize
	// Kind is what TERM says; empty means the sandbox's.
	Kind string
	// Keep keeps the command running while nobody is connected to it. Otherwise it is ended after a minute.
	Keep bool
}

// WithTerminal gives the command a terminal that is connected to the caller's. When connections break or the server
// restarts, nothing that the command prints is lost, nothing is typed twice, and only what was being typed may be lost.
func WithTerminal(t Terminal) RunOption { return runOption(func(r *run) { r.terminal = &t }) }

// Join connects the caller's terminal to that of a command that runs already, whose entry is given, and is then like
// [Client.Run]. It begins to show the output where it is now. If another caller was connected, that one's call ends with
// an [*OutputError].
func (c *Client) Join(ctx context.Context, thread string, command *arbev1.Entry, t Terminal, opts ...RunOption) (*Result, error) {
	req := &arbev1.RunCommandRequest{ThreadId: thread, Id: command.GetId()}
	r := newRun(c, req, append(opts, WithTerminal(t)))
	r.joins, r.reader = true, strings.ToLower(rand.Text())
	return r.attend(ctx, &arbev1.RunCommandResponse{Entry: command, ResultId: command.GetId() + resultSuffix})
}

// Await returns how a command that was run earlier ends, and is otherwise like [Client.Run].
func (c *Client) Await(ctx context.Context, thread string, command *arbev1.Entry, opts ...RunOption) (*Result, error) {
	r := newRun(c, &arbev1.RunCommandRequest{ThreadId: thread, Id: command.GetId()}, opts)
	r.separate, r.stdin = false, nil // they belong to the one who ran it
	return r.attend(ctx, &arbev1.RunCommandResponse{Entry: command, ResultId: command.GetId() + resultSuffix})
}

// resultSuffix follows the id of a command in that of its result.
const resultSuffix = ".result"

// mostTyped limits the keys of one call.
const mostTyped = 64 << 10

// typeKeys sends what is typed, and the terminal's sizes, until ctx ends or the command does.
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
		if len(req.Data) > 0 { // more is there than the server had room for
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

// appendWaiting appends what else was typed, so that a paste takes few calls.
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

// sendKeys sends a request until the server has answered it, and removes from it what the server has taken. It reports
// whether nothing more can be typed.
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
