package door

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// stallTimeout is the longest time for which a client may receive nothing before it is disconnected. The time may also
// be half of that, because deadlines are set rarely.
const stallTimeout = 30 * time.Second

// bodyWriter writes a response body that has no defined end.
type bodyWriter interface {
	// send writes text and flushes it.
	send(text []byte) error
	// serve calls run, and calls gone if the client disconnects meanwhile. It may return at once.
	serve(gone, run func())
	// close ends the body.
	close()
}

// takeOver takes a request's connection from the HTTP server and writes the head of the response. The body ends with
// the connection.
func takeOver(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	// The HTTP server would have set it.
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	head := http.Response{
		StatusCode: http.StatusOK, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: w.Header(), ContentLength: -1, Close: true,
	}
	// The connection has no deadline any more, and a client that reads nothing must not block this.
	conn.SetWriteDeadline(time.Now().Add(stallTimeout))
	head.Write(buffered)
	buffered.Flush() // a failure is noticed soon, when reading
	return conn, nil
}

// maxIgnored is how many bytes of a client's input are read and ignored.
const maxIgnored = 64 << 10

// awaitEnd returns once the client has disconnected or has sent too much. Its input is ignored, because the response's
// header says that it is the connection's last.
func awaitEnd(conn net.Conn) {
	var ignored [64]byte
	for read := 0; read < maxIgnored; {
		n, err := conn.Read(ignored[:])
		if err != nil {
			return
		}
		read += n
	}
}

// connection is a connection that was taken over.
type connection struct {
	net.Conn
	taken *taken
	// raw is the connection's socket; nil if text cannot be written to it directly, for example because it is
	// encrypted.
	raw syscall.RawConn
	// until is the current write deadline.
	until time.Time
}

func (c *connection) send(text []byte) error {
	for {
		// Not for every write, because setting a deadline costs half as much as a write.
		if now := time.Now(); c.until.Sub(now) < stallTimeout/2 {
			c.until = now.Add(stallTimeout)
			c.SetWriteDeadline(c.until)
		}
		part := text[:min(len(text), maxFrame)] // so that a slow client has time for a large entry
		if _, err := c.Write(part); err != nil {
			return err
		}
		if text = text[len(part):]; len(text) == 0 {
			return nil
		}
	}
}

// serve frees the HTTP server's goroutine.
func (c *connection) serve(gone, run func()) {
	go func() {
		awaitEnd(c.Conn)
		gone()
	}()
	go run()
}

func (c *connection) close() { c.taken.end(c.Conn) }

// attempt writes to connections without blocking. The zero value is ready to use.
type attempt struct {
	text  []byte
	n     int
	err   error
	write func(socket uintptr)
}

// on writes as much of a text as the connection accepts at once, and returns how much that is. The connection must have
// a socket.
func (a *attempt) on(c *connection, text []byte) (n int, err error) {
	a.text = text
	if a.write == nil { // allocated once, because it escapes to the heap
		a.write = func(socket uintptr) {
			for a.err = syscall.EINTR; a.err == syscall.EINTR; {
				a.n, a.err = syscall.Write(int(socket), a.text)
			}
		}
	}
	// Control instead of Write, because it ignores deadlines and costs less, and this write does not wait anyway.
	switch err := c.raw.Control(a.write); {
	case err != nil:
		return 0, err
	case a.err == syscall.EAGAIN:
		return 0, nil
	}
	return a.n, a.err
}

// response writes to a connection that cannot be taken over.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // the request's
}

func (r *response) send(text []byte) error {
	if _, err := r.Write(text); err != nil {
		return err
	}
	return r.control.Flush()
}

func (r *response) serve(gone, run func()) {
	defer context.AfterFunc(r.ctx, gone)()
	run()
}

func (r *response) close() {} // the handler returns

// taken holds the connections that were taken over, because the HTTP server no longer knows them.
type taken struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	all    sync.WaitGroup
}

// add registers a connection, or closes it if the door is closed.
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
