package remote

import (
	"context"
	"maps"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

var _ sandbox.Terminals = (*Driver)(nil)

// addTerminal gives the command of a request a terminal.
func addTerminal(r *protocol.Request, like sandbox.Terminal) {
	r.Terminal = &protocol.Size{Rows: like.Rows, Columns: like.Columns}
	if _, set := r.Env["TERM"]; like.Kind != "" && !set {
		env := map[string]string{"TERM": like.Kind}
		maps.Copy(env, r.Env)
		r.Env = env
	}
}

// noTerminal explains why a request that concerns a terminal failed.
func noTerminal(r protocol.Request) *fault.Error {
	if r.Op == protocol.Launch {
		return fault.New(fault.Exhausted, "the sandbox could not open a terminal", "end commands that have one, or use an image with /dev/ptmx and /dev/pts")
	}
	return fault.New(fault.Precondition, "the command has no terminal, or has ended", "run it again")
}

// Resize changes the size of a command's terminal.
func (d *Driver) Resize(ctx context.Context, ref, id string, size sandbox.TerminalSize) error {
	return d.tell(ctx, ref, protocol.Request{Op: protocol.Resize, ID: id, Terminal: &protocol.Size{Rows: size.Rows, Columns: size.Columns}})
}

// HangUp sends SIGHUP to a command.
func (d *Driver) HangUp(ctx context.Context, ref, id string) error {
	return d.tell(ctx, ref, protocol.Request{Op: protocol.HangUp, ID: id})
}
