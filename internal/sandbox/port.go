package sandbox

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Wake makes the sandbox of a thread ready for [Resolver.Dial]. It resolves the sandbox as a command does, and starts it
// if it is not running.
func (r *Resolver) Wake(ctx context.Context, scope db.Scope, threadID string) (w Woken, err error) {
	slept := r.slept(ctx, scope, threadID)
	err = r.Use(ctx, scope, threadID, "", func(h Handle) error {
		if _, err := h.Dialer(); err != nil {
			return err
		}
		w = Woken{Sandbox: h.ID, Started: h.ID == slept}
		return h.wake(ctx)
	})
	if _, elsewhere := errors.AsType[*OtherMachineError](err); elsewhere && r.elsewhere != nil {
		box, err := r.live(ctx, scope, threadID)
		if err != nil {
			return w, err
		}
		return r.elsewhere.Wake(ctx, scope, box, threadID)
	}
	return w, reachable(err, "ports")
}

// ReachElsewhere makes the resolver reach the files and ports of sandboxes of other machines. It must be called before the
// resolver is used. Without it, they are not reached.
func (r *Resolver) ReachElsewhere(e Elsewhere) { r.elsewhere = e }

// slept returns the thread's live sandbox if it is not running, or "". It ignores errors, because using the sandbox
// reports them.
func (r *Resolver) slept(ctx context.Context, scope db.Scope, threadID string) string {
	box, err := r.live(ctx, scope, threadID)
	if err != nil {
		return ""
	}
	h, err := r.handle(ctx, scope, box)
	if err != nil {
		return ""
	}
	d, err := h.Dialer()
	if err != nil {
		return ""
	}
	if asleep, err := d.Asleep(ctx, h.Ref); err != nil || !asleep {
		return ""
	}
	return box.ID
}

// Dial connects to a port of the thread's sandbox; see [Dialer]. The sandbox counts as used until the connection is
// closed. Dial neither starts nor builds a sandbox: if none is running, the error has the reason [fault.NoSandbox].
func (r *Resolver) Dial(ctx context.Context, scope db.Scope, threadID string, port uint16) (Conn, error) {
	box, err := r.live(ctx, scope, threadID)
	if err != nil {
		return nil, reachable(err, "ports")
	}
	h, err := r.handle(ctx, scope, box)
	if err != nil {
		return nil, err
	}
	conn, err := r.dial(ctx, scope, h, port)
	if fault.CodeOf(err) != fault.NotFound {
		return conn, err
	}
	if alive, err := r.Reaper.Confirm(ctx, scope, box.ID); err != nil || alive != Gone {
		return nil, errors.Join(err, fault.New(fault.Unavailable, "the sandbox does not answer", "try again"))
	}
	return nil, noSandbox()
}

func (r *Resolver) dial(ctx context.Context, scope db.Scope, h Handle, port uint16) (Conn, error) {
	d, err := h.Dialer()
	if err != nil {
		return nil, err
	}
	if asleep, err := d.Asleep(ctx, h.Ref); err != nil {
		return nil, err
	} else if asleep {
		return nil, notRunning("the sandbox is stopped, and what ran in it has ended", "start it, or run a command in the thread, which does")
	}
	ended := r.Sandboxes.KeepUsed(ctx, scope, h.ID)
	conn, err := d.Dial(ctx, h.Ref, port)
	if err != nil {
		ended()
		return nil, err
	}
	return &usedConn{conn, sync.OnceFunc(ended)}, nil
}

// live returns a thread's live sandbox, for handle.
func (r *Resolver) live(ctx context.Context, scope db.Scope, threadID string) (Sandbox, error) {
	box, err := r.current(ctx, scope, threadID)
	if err == nil && box.Status != StatusLive {
		err = noSandbox()
	}
	return box, err
}

// current returns a thread's sandbox, for handle; the zero Sandbox if there is none. If it is live and nothing reaches it
// from here, the error is an [*OtherMachineError].
func (r *Resolver) current(ctx context.Context, scope db.Scope, threadID string) (box Sandbox, err error) {
	err = r.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := r.threads.GetTx(ctx, tx, threadID)
		if err != nil || th.Sandbox == "" {
			return err
		}
		if box, err = r.Sandboxes.getTx(ctx, tx, th.Sandbox); err != nil {
			return err
		}
		box, err = r.Sandboxes.reachTx(ctx, tx, box)
		if _, elsewhere := errors.AsType[*OtherMachineError](err); elsewhere && r.elsewhere != nil {
			return nil
		}
		return err
	})
	return box, err
}

func notRunning(message, next string) error {
	return fault.New(fault.Precondition, message, next).WithReason(fault.NoSandbox)
}

func noSandbox() error {
	return notRunning("the thread has no sandbox", "run a command in the thread, which builds one")
}

// reachable explains why this server cannot reach a sandbox's ports or files.
func reachable(err error, what string) error {
	if other, elsewhere := errors.AsType[*OtherMachineError](err); elsewhere {
		return fault.New(fault.Unavailable, "the sandbox is on the machine of another server, and only that one reaches its "+what,
			"use the address of that server").Because(other)
	}
	return err
}

// usedConn is a connection to a sandbox that counts as used until it is closed.
type usedConn struct {
	Conn
	ended func()
}

func (c *usedConn) Close() error {
	defer c.ended()
	return c.Conn.Close()
}
