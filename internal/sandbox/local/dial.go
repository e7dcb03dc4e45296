//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Asleep reports whether a box does not run; see [sandbox.Dialer].
func (d *Driver) Asleep(_ context.Context, ref string) (bool, error) {
	b, err := d.find(ref)
	if err != nil {
		return false, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.meterLocked().Power == sandbox.PowerOff, nil
}

// Meter says whether a box runs; see [sandbox.Metered]. It costs nothing.
func (d *Driver) Meter(_ context.Context, ref string) (sandbox.Meter, error) {
	b, err := d.find(ref)
	if err != nil {
		return sandbox.Meter{}, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.meterLocked(), nil
}

func (b *box) meterLocked() sandbox.Meter {
	if b.running == nil || !b.running.alive() {
		return sandbox.Meter{Power: sandbox.PowerOff}
	}
	return sandbox.Meter{Power: sandbox.PowerOn}
}

// Dial connects to a port of a box; see [sandbox.Dialer]. It opens the socket in the network namespace of the box, so
// that it cannot reach the machine.
func (d *Driver) Dial(ctx context.Context, ref string, port uint16) (sandbox.Conn, error) {
	b, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	if port == gatePort || port == namesPort { // the server's own; no program of a box can listen on a port below 1024
		return nil, sandbox.ErrNobodyListens
	}
	var conn *net.TCPConn
	err = b.use(ctx, func(c *container) (err error) {
		if c.ownKernel {
			return fault.New(fault.Precondition, "the ports of sandboxes cannot be reached with gVisor, whose network is its own", "ask the operator for runc")
		}
		conn, err = dialInside(ctx, c.process.Pid, port)
		return err
	})
	switch {
	case err == nil:
		return &boxConn{conn, b}, nil
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, os.ErrDeadlineExceeded):
		return nil, sandbox.ErrNobodyListens
	}
	return nil, readable(ctx, err, "the sandbox cannot be connected to")
}

// dialInside connects to a port in the network namespace of a process.
func dialInside(ctx context.Context, pid int, port uint16) (conn *net.TCPConn, err error) {
	if !asRoot() {
		return dialAsUser(ctx, pid, port)
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	err = inNetwork(int(namespace.Fd()), func() (err error) {
		conn, err = dialLoopback(ctx, port)
		return err
	})
	return conn, err
}

// boxConn is a connection to a box. Its traffic keeps the box from being idle.
type boxConn struct {
	*net.TCPConn
	box *box
}

func (c *boxConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.box.touch()
	return n, err
}

func (c *boxConn) Write(p []byte) (int, error) {
	c.box.touch()
	return c.TCPConn.Write(p)
}
