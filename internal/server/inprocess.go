package server

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// inProcess is a [net.Listener] for connections from this process. They come from its client, through which the web app calls
// the services by the same contract as every other client, or were accepted elsewhere.
type inProcess struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInProcess() *inProcess {
	return &inProcess{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// client returns a client whose requests all reach the server on this listener, whatever host they name. It does not
// compress, because the bytes stay in memory.
func (n *inProcess) client() *http.Client {
	return &http.Client{Transport: identifying{&http.Transport{
		DialContext:         n.dial,
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true,
	}}}
}

func (n *inProcess) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	if err := n.give(ctx, there); err != nil {
		return nil, err
	}
	return here, nil
}

// give passes a connection to Accept.
func (n *inProcess) give(ctx context.Context, conn net.Conn) error {
	select {
	case n.conns <- conn:
		return nil
	case <-n.closed:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Accept waits for a connection.
func (n *inProcess) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close refuses further connections.
func (n *inProcess) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr returns a placeholder, because the listener has no address.
func (n *inProcess) Addr() net.Addr { return inProcessAddr{} }

type inProcessAddr struct{}

func (inProcessAddr) Network() string { return "in-process" }
func (inProcessAddr) String() string  { return "in-process" }
