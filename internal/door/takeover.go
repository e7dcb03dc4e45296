package door

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// stallAfter is how long a client may take nothing, or half of that, before it is let go.
const stallAfter = 30 * time.Second

// outlet is where a body without end goes.
type outlet interface {
	// send sends text at once.
	send(text []byte) error
	// attend runs tell, and meanwhile calls gone when the client goes away. It may return at once.
	attend(gone, tell func())
	// close ends the body.
	close()
}

// open answers with a body without end.
//
// Whoever follows mostly waits, and in thousands: a connection is taken over from the HTTP server, which then
// lets go of the request, of its buffers and of a large stack. That of HTTP/2 belongs to other requests too,
// and stays where it is.
func (d *Door) open(w http.ResponseWriter, r *http.Request) outlet {
	conn, err := takeOver(w, r)
	if err != nil {
		w.WriteHeader(http.StatusOK)
		o := &response{w, http.NewResponseController(w), r.Context()}
		o.control.Flush()
		return o
	}
	c := &connection{Conn: conn, taken: &d.taken}
	switch conn := conn.(type) {
	case *net.TCPConn:
		c.raw, _ = conn.SyscallConn()
	case *net.UnixConn:
		c.raw, _ = conn.SyscallConn()
	}
	d.taken.add(conn)
	return c
}

// takeOver takes a request's connection from the HTTP server. The head of the response is written; its body
// ends with the connection.
func takeOver(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	head := http.Response{
		StatusCode: http.StatusOK, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: w.Header(), ContentLength: -1, Close: true,
	}
	conn.SetWriteDeadline(time.Now().Add(stallAfter))
	head.Write(buffered)
	buffered.Flush() // who went away is noticed soon
	return conn, nil
}

// awaitEnd returns when nothing can come from the client any more. What it says meanwhile is of no interest:
// it was told that this is the connection's last response.
func awaitEnd(conn net.Conn) {
	var ignored [64]byte
	for {
		if _, err := conn.Read(ignored[:]); err != nil {
			return
		}
	}
}

// connection is one that was taken over.
type connection struct {
	net.Conn
	taken *taken
	// raw is the connection's socket; nil when text does not go there as it is, but encrypted, say.
	raw syscall.RawConn
	// until is the end of its patience with the client.
	until time.Time
}

func (c *connection) send(text []byte) error {
	if now := time.Now(); c.until.Sub(now) < stallAfter/2 { // to set it costs as much as half of a write
		c.until = now.Add(stallAfter)
		c.SetWriteDeadline(c.until)
	}
	_, err := c.Write(text)
	return err
}

// attend leaves the HTTP server's goroutine.
func (c *connection) attend(gone, tell func()) {
	go func() {
		awaitEnd(c.Conn)
		gone()
	}()
	go tell()
}

func (c *connection) close() { c.taken.end(c.Conn) }

// attempt writes a text to connections that take it at once. The zero value is ready.
type attempt struct {
	text  []byte
	n     int
	err   error
	write func(socket uintptr)
}

// on writes as much of a text as a connection takes at once, and returns how much that is. The connection has a
// socket.
func (a *attempt) on(c *connection, text []byte) (n int, err error) {
	a.text = text
	if a.write == nil { // once: it is kept in memory
		a.write = func(socket uintptr) {
			for a.err = syscall.EINTR; a.err == syscall.EINTR; {
				a.n, a.err = syscall.Write(int(socket), a.text)
			}
		}
	}
	// Control, unlike Write, knows nothing of deadlines: it costs less, and this does not wait anyway.
	switch err := c.raw.Control(a.write); {
	case err != nil:
		return 0, err
	case a.err == syscall.EAGAIN:
		return 0, nil
	}
	return a.n, a.err
}

// response is one on a connection that cannot be taken over.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // the request's
}

func (r *response) send(text []byte) error {
	r.control.SetWriteDeadline(time.Now().Add(stallAfter))
	if _, err := r.Write(text); err != nil {
		return err
	}
	return r.control.Flush()
}

func (r *response) attend(gone, tell func()) {
	defer context.AfterFunc(r.ctx, gone)()
	tell()
}

func (r *response) close() {} // its handler returns

// taken are the connections that were taken over: nobody else knows them.
type taken struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	all    sync.WaitGroup
}

// add takes a connection in, or closes it when there may be no more.
func (t *taken) add(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		conn.Close()
		return
	}
	if t.conns == nil {
		t.conns = map[net.Conn]struct{}{}
	}
	t.conns[conn] = struct{}{}
	t.all.Add(1)
}

func (t *taken) end(conn net.Conn) {
	conn.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.conns[conn]; there {
		delete(t.conns, conn)
		t.all.Done()
	}
}

// Close waits until all who follow over HTTP/1 were let go, as they are once the Log closes: the HTTP server's
// own end does not wait for them. Those who are there still when ctx ends are cut off, and its error is
// returned. From now on nobody follows.
func (d *Door) Close(ctx context.Context) error {
	t := &d.taken
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	none := make(chan struct{})
	go func() { t.all.Wait(); close(none) }()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn := range t.conns {
		conn.Close()
	}
	return ctx.Err()
}
