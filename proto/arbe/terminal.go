package arbe

import (
	"context"
	"crypto/rand"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

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
