package httpd

import (
	"net"
	"sync"
)

// Listener returns a listener that accepts at most most connections at a time and closes further ones at once. A
// connection counts until it is closed, even if a handler takes it over.
func Listener(l net.Listener, most int) net.Listener {
	return &listener{Listener: l, free: make(chan struct{}, most)}
}

type listener struct {
	net.Listener
	// free holds a token for each connection.
	free chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		// Once, because a connection may be closed more than once.
		counted := counted{conn, sync.OnceFunc(func() { <-l.free })}
		if tcp, ok := conn.(*net.TCPConn); ok {
			return &countedTCP{tcp, counted.once}, nil
		}
		return &counted, nil
	}
}

// counted is a connection that frees its slot when it is closed.
type counted struct {
	net.Conn
	once func()
}

func (c *counted) Close() error {
	defer c.once()
	return c.Conn.Close()
}

// countedTCP keeps the further methods of a TCP connection, because a handler that takes it over may write to its
// socket.
type countedTCP struct {
	*net.TCPConn
	once func()
}

func (c *countedTCP) Close() error {
	defer c.once()
	return c.TCPConn.Close()
}
