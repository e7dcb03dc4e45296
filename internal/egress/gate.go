// Package egress is the only way out of a sandbox: it answers the names that programs ask for, accepts their
// connections, and forwards those that a [Policy] allows. It runs in the server, on sockets in the sandbox's network to
// which the kernel redirects every connection. No part of it is in the sandbox, and programs need no settings for it.
//
// Each name gets its own address (names.go). The gate checks the name and the port of a connection to that address. The
// server then looks up the name and connects, to public addresses only. What the program sends must fit the name: the
// server name of TLS (hello.go), and the Host of each request at port 80 (web.go). If a program uses an address instead
// of a name, the gate checks only what it sends. The gate cannot see what a host does with the data that it receives.
//
// One name leads to the server itself instead of the internet, whatever the policy (door_name.go, door.go).
package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/wait"
)

const (
	// maxConnections is how many connections of a sandbox are forwarded at once. Each takes two descriptors of the
	// server.
	maxConnections = 256
	// acceptPause is how long the gate waits after it could not accept a connection, such as for want of descriptors.
	acceptPause = 50 * time.Millisecond
	// defaultHelloTime is the default of [Config].HelloTime.
	defaultHelloTime = 10 * time.Second
)

// Config configures a [Gate].
type Config struct {
	// Policy is the first policy.
	Policy Policy
	// Destination returns the address that a connection had before it was redirected. Required.
	Destination func(net.Conn) (netip.AddrPort, error)
	// Refused is called before a connection is refused, by several goroutines at once. Defaults to nil.
	Refused func(Refusal)
	// Dial connects to a host, as host:port, but never to an address that is not public. Defaults to [outbound.Dial].
	Dial Dialer
	// Door handles and closes each connection to port 80 of [DoorHost], whatever the policy. Defaults to nil: such
	// connections are refused.
	Door func(net.Conn)
	// HelloTime is how long a program may take to begin, and then to complete, the hello in which it names the host of its
	// connection. A program that does not begin in time may still do so later, if it connected to a name. Defaults to 10 seconds.
	HelloTime time.Duration
}

// Refusal is a connection that was refused.
type Refusal struct {
	// Host is a name, or an address if the program used one. Port is its port.
	Host string
	Port uint16
	// Private: the policy allows the host, but its address is not public.
	Private bool
	// From is the program's end of the connection.
	From net.Addr
}

func (r Refusal) String() string { return net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port))) }

// explain returns the reason, for the program's user.
func (r Refusal) explain() string {
	if r.Private {
		return fmt.Sprintf("arbe: %s has no public address, and sandboxes reach no other", r)
	}
	return fmt.Sprintf("arbe: the environment of this sandbox does not allow %s; add it to the environment's hosts", r)
}

// Sockets are the sockets in a sandbox's network to which its connections are redirected.
type Sockets struct {
	// Connections accepts all TCP connections, NameStreams those for questions about names, and Names receives packets with
	// such questions.
	Connections, NameStreams []net.Listener
	Names                    []net.PacketConn
}

// Close closes the sockets.
func (s Sockets) Close() (err error) {
	for _, l := range s.Connections {
		err = errors.Join(err, l.Close())
	}
	for _, l := range s.NameStreams {
		err = errors.Join(err, l.Close())
	}
	for _, c := range s.Names {
		err = errors.Join(err, c.Close())
	}
	return err
}

// web forwards connections to port 80, request by request, because each request may name another host.
type web struct {
	gate   *Gate
	server *http.Server
	proxy  *httputil.ReverseProxy
	conns  chan *webConn
}

// webConn is a connection to port 80.
type webConn struct {
	*passage
	host string // the intended host; empty if the program used an address
	addr string
	once sync.Once
	done chan struct{} // closed when the server has closed it
}

// Gate forwards the connections of one sandbox. It is safe for concurrent use.
type Gate struct {
	config  Config
	sockets Sockets
	rules   atomic.Pointer[rules]
	names   *names
	free    chan struct{} // its capacity is the number of connections that may be forwarded at once
	web     *web
	done    context.Context
	end     context.CancelFunc
	group   sync.WaitGroup

	mu     sync.Mutex
	passed map[*passage]bool
}

// passage is a connection of the sandbox.
type passage struct {
	net.Conn // the program's end
	// host and port are the connection's destination. They are empty until it is known, and for connections to several hosts.
	host string
	port uint16
	door bool // the destination is the server's doors
}

// New begins to forward the connections of a sandbox, until [Gate.Close].
func New(c Config, s Sockets) *Gate {
	if c.Dial == nil {
		c.Dial = outbound.Dial
	}
	c.Dial = limited(c.Dial)
	c.HelloTime = cmp.Or(c.HelloTime, defaultHelloTime)
	g := &Gate{config: c, sockets: s, names: newNames(), free: make(chan struct{}, maxConnections), passed: map[*passage]bool{}}
	g.done, g.end = context.WithCancel(context.Background())
	g.rules.Store(newRules(c.Policy))
	g.web = g.newWeb()
	g.group.Go(g.web.run)
	for _, l := range s.Connections {
		g.group.Go(func() { g.accept(l, g.pass) })
	}
	for _, l := range s.NameStreams {
		g.group.Go(func() { g.accept(l, func(p *passage) { g.names.answerStream(p) }) })
	}
	for _, c := range s.Names {
		g.group.Go(func() { g.names.answerPackets(c) })
	}
	return g
}

// Close ends all connections and closes the sockets.
func (g *Gate) Close() error {
	g.end()
	err := errors.Join(g.sockets.Close(), g.web.close())
	g.mu.Lock()
	for p := range g.passed {
		p.Conn.Close()
	}
	g.mu.Unlock()
	g.group.Wait()
	return err
}

// SetPolicy replaces the policy. It applies to new connections at once, and ends connections that it does not allow.
func (g *Gate) SetPolicy(p Policy) {
	now := newRules(p)
	g.rules.Store(now)
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.passed {
		if !p.door && (p.host == "" || !now.allow(p.host, p.port)) {
			p.Conn.Close()
		}
	}
}

// accept handles the connections of a listener, each in its own goroutine. Excess connections wait in the listener.
func (g *Gate) accept(l net.Listener, handle func(*passage)) {
	for {
		select {
		case g.free <- struct{}{}:
		case <-g.done.Done():
			return
		}
		conn, err := l.Accept()
		if err != nil {
			<-g.free
			if errors.Is(err, net.ErrClosed) {
				return
			}
			wait.For(g.done, acceptPause)
			continue
		}
		p := &passage{Conn: conn}
		g.mu.Lock()
		g.passed[p] = true
		g.mu.Unlock()
		g.group.Go(func() {
			defer g.leave(p)
			handle(p)
		})
	}
}

// leave closes a connection, and forgets it.
func (g *Gate) leave(p *passage) {
	p.Close()
	g.mu.Lock()
	delete(g.passed, p)
	g.mu.Unlock()
	<-g.free
}

// heads records the destination of a connection. It returns false if the policy, which may have changed meanwhile, does
// not allow it.
func (g *Gate) heads(p *passage, host string, port uint16) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.host, p.port = host, port
	return g.rules.Load().allow(host, port)
}

// pass forwards a connection or refuses it, and returns when it has ended.
func (g *Gate) pass(p *passage) {
	to, err := g.config.Destination(p.Conn)
	if err != nil {
		return
	}
	addr, port := to.Addr().Unmap(), to.Port()
	host := g.names.name(addr)
	open := g.rules.Load().mode == Open
	switch {
	case host == DoorHost:
		g.enter(p, port)
		return
	case port == 80 && !open:
		g.web.serve(p, host, addr.String())
		return
	case port == 443 && !open:
		g.passTLS(p, host, addr.String())
		return
	case host == "" && open && !pool.Contains(addr):
		host = addr.String()
	}
	if host == "" || !g.heads(p, host, port) {
		if host == "" {
			host = addr.String()
		}
		g.refuse(p, Refusal{Host: host, Port: port, From: p.RemoteAddr()})
		return
	}
	g.connect(p, host, nil)
}

// passTLS forwards or refuses a connection to port 443. If the program used an address, passTLS checks the name in its
// hello.
func (g *Gate) passTLS(p *passage, host, addr string) {
	if host != "" && !g.heads(p, host, 443) {
		g.refuse(p, Refusal{Host: host, Port: 443, From: p.RemoteAddr()})
		return
	}
	h := readHello(p.Conn, g.config.HelloTime, g.config.HelloTime)
	switch {
	case host != "" && h.broken:
		g.deny(p, Refusal{Host: host, Port: 443})
	case host != "" && !h.fits(host):
		g.refuse(p, Refusal{Host: h.server, Port: 443, From: p.RemoteAddr()})
	case host == "" && (h.server == "" || !g.heads(p, h.server, 443)):
		g.refuse(p, Refusal{Host: addr, Port: 443, From: p.RemoteAddr()})
	default:
		g.connect(p, cmp.Or(host, h.server), h.said)
	}
}

// connect connects a program with its host, and copies in both directions until both have ended. said holds the bytes that
// the program has already sent.
func (g *Gate) connect(p *passage, host string, said []byte) {
	ctx, cancel := context.WithTimeout(g.done, dialTime)
	defer cancel()
	there, err := g.config.Dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(p.port))))
	if err != nil {
		if _, private := errors.AsType[*outbound.RefusedError](err); private {
			g.refuse(p, Refusal{Host: host, Port: p.port, Private: true, From: p.RemoteAddr()})
			return
		}
		reset(p.Conn)
		return
	}
	defer there.Close()
	defer context.AfterFunc(g.done, func() { there.Close() })()
	back := make(chan struct{})
	go func() {
		defer close(back)
		copyAll(p.Conn, there)
	}()
	if said == nil && g.rules.Load().mode != Open {
		// This may take long, because in some protocols the host speaks first.
		h := readHello(p.Conn, 0, g.config.HelloTime)
		if !h.fits(host) {
			if !h.broken {
				g.report(Refusal{Host: h.server, Port: p.port, From: p.RemoteAddr()})
			}
			reset(p.Conn)
			there.Close()
			<-back
			return
		}
		said = h.said
	}
	if _, err := there.Write(said); err == nil {
		copyAll(there, p.Conn)
	}
	<-back
}

// copyAll copies until from ends, and then closes to for writing. If it fails, it ends both.
func copyAll(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		if half.CloseWrite() == nil {
			return
		}
	}
	to.Close()
	from.Close()
}

// reset ends a connection so that the program reads an error instead of EOF.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // otherwise the program reads EOF
	}
	conn.Close()
}

func (g *Gate) report(r Refusal) {
	if g.config.Refused != nil {
		g.config.Refused(r)
	}
}

// refuse reports a refused connection and ends it, with a message of its protocol if there is one.
func (g *Gate) refuse(p *passage, r Refusal) {
	g.report(r)
	g.deny(p, r)
}

// deny is refuse without a report. It is for what no policy could allow.
func (g *Gate) deny(p *passage, r Refusal) {
	_ = p.SetDeadline(time.Now().Add(time.Second)) // so that a program that does not read cannot block this
	switch r.Port {
	case 443:
		_, _ = p.Write(accessDenied)
	case 22:
		_, _ = p.Write(sshDisconnect(r.explain()))
	default:
		reset(p.Conn)
		return
	}
	// Unread data would turn the end into a reset, which can overtake the message.
	_, _ = io.Copy(io.Discard, io.LimitReader(p.Conn, 1<<20))
}

// refuseWeb reports a refused request and answers it.
func (g *Gate) refuseWeb(w http.ResponseWriter, r Refusal) {
	g.report(r)
	http.Error(w, r.explain(), http.StatusForbidden)
}
