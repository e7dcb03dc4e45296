package server

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// inProcess is a [net.Listener] inside this process. A server on it is reached only through its client. The web app calls
// the services through it: without leaving the process, but by the same contract as every other client.
type inProcess struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInProcess() *inProcess {
	return &inProcess{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// client returns a client whose requests all reach the server on this listener, whatever host they name. It compresses
// nothing, because the bytes stay in memory.
func (n *inProcess) client() *http.Client {
	return &http.Client{Transport: identifying{&http.Transport{
		DialContext:         n.dial,
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true,
	}}}
}

func (n *inProcess) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case n.conns <- there:
		return here, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for a connection of the client.
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

// Addr returns a name, because there is no address.
func (n *inProcess) Addr() net.Addr { return inProcessAddr{} }

type inProcessAddr struct{}

func (inProcessAddr) Network() string { return "in-process" }
func (inProcessAddr) String() string  { return "in-process" }
