package dbtest

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy is a proxy to Postgres whose connections can be silenced or cut, even between a commit and its answer. A test
// can show with it what happens when the outcome of a commit is unknown. It is safe for concurrent use.
type Proxy struct {
	// URL is the URL of the database through the proxy.
	URL string

	mu    sync.Mutex
	conns map[*proxied]struct{}
	shut  bool
	// refused, if not nil, receives a token for each refused connection. A token for which there is no room is dropped,
	// so that the proxy never waits for a reader.
	refused chan struct{}
	// unanswered, if not nil, waits for the next commit.
	unanswered *unanswered
}

// unanswered is a commit whose answer will be lost.
type unanswered struct {
	meanwhile func()
	lost      chan struct{}
}

// proxied is one connection through the proxy.
type proxied struct {
	client, server net.Conn
	// greeting is the client's first message, which has the name of its application.
	greeting []byte
	// silent, if not nil, holds back everything that Postgres sends until it is closed.
	silent chan struct{}
	// commit, if not nil, is a commit requested over this connection.
	commit *unanswered
}

// NewProxy starts a proxy, which ends with the test.
func NewProxy(t testing.TB, databaseURL string) *Proxy {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	upstream := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.Host = listener.Addr().String()
	p := &Proxy{URL: u.String(), conns: map[*proxied]struct{}{}}
	t.Cleanup(func() {
		listener.Close()
		// Otherwise a connection that begins after the cut would stay.
		p.Shut(true)
		p.Cut("")
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.pass(client, upstream)
		}
	}()
	return p
}

// Silence holds back forever everything that Postgres sends over the present connections of an application, or of all
// applications if the name is empty.
func (p *Proxy) Silence(t testing.TB, application string) {
	p.each(application, func(c *proxied) {
		if c.silent == nil {
			silent := make(chan struct{})
			c.silent = silent
			t.Cleanup(func() { close(silent) })
		}
	})
}

// Cut breaks the present connections of an application, or of all applications if the name is empty.
func (p *Proxy) Cut(application string) {
	p.each(application, func(c *proxied) {
		c.client.Close()
		c.server.Close()
	})
}

// Shut refuses new connections, or lets them through again.
func (p *Proxy) Shut(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = yes
}

// Refused returns a channel that receives a token for each connection that [Proxy.Shut] refuses from now on.
func (p *Proxy) Refused() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil {
		p.refused = make(chan struct{}, 100)
	}
	return p.refused
}

// LoseCommit makes the next commit, or statement whose name contains commit, lose its answer: after Postgres has
// answered, it calls meanwhile (unless nil) and cuts the connection. Then it closes the channel.
func (p *Proxy) LoseCommit(meanwhile func()) (lost <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unanswered = &unanswered{meanwhile, make(chan struct{})}
	return p.unanswered.lost
}

func (p *Proxy) each(application string, do func(*proxied)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if bytes.Contains(c.greeting, []byte(application)) {
			do(c)
		}
	}
}

func (p *Proxy) pass(client net.Conn, upstream string) {
	defer client.Close()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	defer server.Close()
	c := &proxied{client: client, server: server}
	p.mu.Lock()
	shut, refused := p.shut, p.refused
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}()
	if shut {
		select {
		case refused <- struct{}{}:
		default: // nobody is counting
		}
		return
	}
	go copyWhile(client, server, func([]byte) (pass bool) {
		p.mu.Lock()
		silent, commit := c.silent, c.commit
		p.mu.Unlock()
		if silent != nil {
			<-silent
		}
		if commit == nil {
			return true
		}
		if commit.meanwhile != nil {
			commit.meanwhile()
		}
		close(commit.lost)
		return false
	})
	copyWhile(server, client, func(said []byte) (pass bool) { // before the message is passed on, because the answer may come at once
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case c.greeting == nil:
			c.greeting = bytes.Clone(said)
		case p.unanswered != nil && bytes.Contains(said, []byte("commit")):
			c.commit, p.unanswered = p.unanswered, nil
		}
		return true
	})
}

// copyWhile copies until one side ends or pass returns false. It calls pass with everything before it copies it.
func copyWhile(to, from net.Conn, pass func([]byte) bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !pass(buf[:n]) {
			return
		}
		if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}
