package server

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// inProcess is a network of this process only: what serves on it can be reached through its client, and
// by nobody else. It is how the web app calls the services without leaving the process, yet by the same
// contract as every other client.
type inProcess struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInProcess() *inProcess {
	return &inProcess{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// client reaches the handler that is served here, at any host name.
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

// Accept, Close and Addr make it a [net.Listener].
func (n *inProcess) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the network.
func (n *inProcess) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr names it.
func (n *inProcess) Addr() net.Addr { return inProcessAddr{} }

type inProcessAddr struct{}

func (inProcessAddr) Network() string { return "in-process" }
func (inProcessAddr) String() string  { return "in-process" }
