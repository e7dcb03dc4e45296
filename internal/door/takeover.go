package door

import (
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// stallAfter is how long a client may take nothing, or half of that, before it is let go.
const stallAfter = 30 * time.Second

// outlet is where a body without end goes.
type outlet interface {
	// send sends text at once.
	send(text []byte) error
}

// stream answers with a body without end, which tell writes. It calls gone when the client goes away, so that
// tell returns.
//
// Whoever follows mostly waits, and in thousands: a connection is taken over from the HTTP server, which then
// lets go of the request, of its buffers and of a large stack. That of HTTP/2 belongs to other requests too,
// and stays where it is; only then this returns when tell does.
func (d *Door) stream(w http.ResponseWriter, r *http.Request, gone func(), tell func(outlet)) {
	conn, err := takeOver(w, r)
	if err != nil {
		defer context.AfterFunc(r.Context(), gone)()
		w.WriteHeader(http.StatusOK)
		o := response{w, http.NewResponseController(w)}
		o.control.Flush()
		tell(o)
		return
	}
	if !d.taken.add(conn) {
		conn.Close()
		gone()
		tell(&connection{Conn: conn}) // which goes nowhere
		return
	}
	go func() {
		awaitEnd(conn)
		gone()
	}()
	go func() {
		defer d.taken.end(conn)
		defer func() {
			if p := recover(); p != nil { // one follower's, as it would be in the HTTP server
				d.Logger.Error("following a stream panicked", "panic", p, "stack", string(debug.Stack()))
			}
		}()
		tell(&connection{Conn: conn})
	}()
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

// response is one on a connection that cannot be taken over.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (r response) send(text []byte) error {
	r.control.SetWriteDeadline(time.Now().Add(stallAfter))
	if _, err := r.Write(text); err != nil {
		return err
	}
	return r.control.Flush()
}

// taken are the connections that were taken over: nobody else knows them.
type taken struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	all    sync.WaitGroup
}

// add reports whether there may be one more; the caller ends it.
func (t *taken) add(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.conns == nil {
		t.conns = map[net.Conn]struct{}{}
	}
	t.conns[conn] = struct{}{}
	t.all.Add(1)
	return true
}

func (t *taken) end(conn net.Conn) {
	conn.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, conn)
	t.all.Done()
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
