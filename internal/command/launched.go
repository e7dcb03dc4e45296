package command

import (
	"context"
	"io"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// launched is a command that was launched in a sandbox under a name. Its methods are those of [sandbox.Launcher].
type launched struct {
	launcher sandbox.Launcher
	sandbox  string // the sandbox's id
	ref      string // what the launcher calls the sandbox
	id       string // the command's name there
}

func (l launched) follow(ctx context.Context, from int64, record func(sandbox.Record) error) error {
	return l.launcher.Follow(ctx, l.ref, l.id, from, record)
}

func (l launched) input(ctx context.Context) (io.WriteCloser, error) {
	return l.launcher.Input(ctx, l.ref, l.id)
}

func (l launched) extend(ctx context.Context, limit int64) error {
	return l.launcher.Extend(ctx, l.ref, l.id, limit)
}

func (l launched) release(ctx context.Context, position int64) error {
	return l.launcher.Release(ctx, l.ref, l.id, position)
}

func (l launched) interrupt(ctx context.Context) error {
	return l.launcher.Interrupt(ctx, l.ref, l.id)
}

func (l launched) end(ctx context.Context, grace time.Duration) error {
	return l.launcher.End(ctx, l.ref, l.id, grace)
}

func (l launched) forget(ctx context.Context) error {
	return l.launcher.Forget(ctx, l.ref, l.id)
}

// resize changes the size of the command's terminal. Without a terminal it does nothing.
func (l launched) resize(ctx context.Context, size sandbox.TerminalSize) error {
	if t, ok := l.launcher.(sandbox.Terminals); ok {
		return t.Resize(ctx, l.ref, l.id, size)
	}
	return nil
}

// hangUp hangs up the command's terminal. ok is false if its driver has no terminals.
func (l launched) hangUp(ctx context.Context) (ok bool, err error) {
	t, ok := l.launcher.(sandbox.Terminals)
	if !ok {
		return false, nil
	}
	return true, t.HangUp(ctx, l.ref, l.id)
}
