package server

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// boxConn is a connection from inside a box.
type boxConn struct {
	net.Conn
	from sandbox.Labels
}

// SyscallConn serves handlers that take over the connection and write to its socket.
func (c *boxConn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

type boxKey struct{}

// markBox marks the requests of a connection from inside a box, so that boxOf recognizes them.
func markBox(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*boxConn); ok {
		return context.WithValue(ctx, boxKey{}, c.from)
	}
	return ctx
}

// boxOf returns the labels of the box from which a request comes, or false if the request comes from the network.
func boxOf(ctx context.Context) (sandbox.Labels, bool) {
	labels, ok := ctx.Value(boxKey{}).(sandbox.Labels)
	return labels, ok
}
