package egress

import (
	"net"
	"sync"
)

// doorConn is a connection to [DoorHost]. Its receiver closes it.
type doorConn struct {
	*net.TCPConn
	once sync.Once
	done chan struct{} // closed when the connection is
}

func (c *doorConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.TCPConn.Close()
}

// enter passes a connection to [DoorHost] to the server's doors, and returns when they have closed it.
func (g *Gate) enter(p *passage, port uint16) {
	tcp, ok := p.Conn.(*net.TCPConn)
	if !ok || port != 80 || g.config.Door == nil {
		reset(p.Conn)
		return
	}
	g.mu.Lock()
	p.door = true
	g.mu.Unlock()
	c := &doorConn{TCPConn: tcp, done: make(chan struct{})}
	go g.config.Door(c) // it may wait until the server is ready
	select {
	case <-c.done:
	case <-g.done.Done():
	}
}
