// Package port connects clients to the TCP ports of programs in sandboxes: as WebSockets, for `arbe port` and other programs,
// and as previews, for browsers.
//
// Anybody who may run commands in a thread may connect to the ports of its sandbox. A connection leads only from a client
// to a program of the sandbox: the program answers, and can open no connection to a client.
//
// From bottom to top: port.go has the connections and their limits; door.go the WebSockets; ticket.go the credentials with
// which a browser sees a preview; page.go the error page; preview.go the previews.
package port

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// The limits of connections.
const (
	// maxOfThread and maxOfHouse limit the connections at one time to the sandbox of a thread, and to all sandboxes of a
	// house.
	maxOfThread, maxOfHouse = 100, 400
	// maxIdle is how long a connection may be idle before it is closed.
	maxIdle = time.Hour
)

// Config configures [Ports].
type Config struct {
	Auth  *auth.Auth
	Boxes *sandbox.Resolver
	// House is the address of the web app, without a slash at the end.
	House string
	// Previews is the address below which each preview has a host of its own: https://preview.example.com for
	// https://ID.preview.example.com. Defaults to nil, which means no previews.
	Previews *url.URL
	// Key signs the tickets and passes with which browsers see previews. Servers that share a database must share it.
	Key    []byte
	Logger *slog.Logger
}

// Ports connects to ports of sandboxes. It is safe for concurrent use.
type Ports struct {
	Config
	threads, houses httpd.Crowd
}

// New returns Ports.
func New(c Config) *Ports { return &Ports{Config: c} }

// dial connects to a port of the thread's sandbox. The connection is closed after it has been idle for maxIdle.
func (p *Ports) dial(ctx context.Context, scope db.Scope, threadID string, port uint16) (*conn, error) {
	leaveThread, ok := p.threads.Enter(threadID, maxOfThread)
	if !ok {
		return nil, full("the sandbox of this thread", maxOfThread)
	}
	leaveHouse, ok := p.houses.Enter(scope.House, maxOfHouse)
	if !ok {
		leaveThread()
		return nil, full("the sandboxes of this house", maxOfHouse)
	}
	leave := sync.OnceFunc(func() { leaveThread(); leaveHouse() })
	to, err := p.Boxes.Dial(ctx, scope, threadID, port)
	if err != nil {
		leave()
		return nil, err
	}
	c := &conn{Conn: to, leave: leave}
	c.idle = time.AfterFunc(maxIdle, func() { c.Close() })
	return c, nil
}

func full(to string, limit int) error {
	return fault.Newf(fault.Exhausted, "close some of them", "there are already %d connections to ports of %s, the most allowed", limit, to).WithReason(fault.LimitReached)
}

// conn is a connection that counts against the limits until it is closed.
type conn struct {
	sandbox.Conn
	idle  *time.Timer
	leave func()
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.idle.Reset(maxIdle)
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.idle.Reset(maxIdle)
	}
	return n, err
}

func (c *conn) Close() error {
	defer c.leave()
	c.idle.Stop()
	return c.Conn.Close()
}
