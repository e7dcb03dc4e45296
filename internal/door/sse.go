package door

import (
	"context"
	"net/http"
	"time"

	"syscall"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
)

const (
	// followFor is how long one connection follows a stream before the client must reconnect. It is limited, because
	// proxies drop connections that are silent for longer, and can merge those that begin together.
	followFor = 55 * time.Second
)

// follow sends existing and new entries as server-sent events.
func (d *Door) follow(w http.ResponseWriter, r request, from startPosition) (err error) {
	leave, err := d.enter(r.member)
	if err != nil {
		return err
	}
	var lease *httpd.Lease
	defer func() {
		if err != nil { // otherwise the feed owns them
			leave()
			lease.Release()
		}
	}()
	s, err := d.Log.Use(r.Context(), r.ref)
	if err != nil {
		return err
	}
	if from.now {
		from.after = s.Tail
	}
	if from.after < s.Tail { // there is something to catch up on
		if lease, err = d.memory.hold(r.Context(), r.member, feedMemory); err != nil {
			return err
		}
	}
	f := d.feeds.newFeed(feedKey{s.ID, r.ref, formOf(s.ContentType, r.thread, false)})
	f.lease = lease
	if s.Closed {
		f.end = s.Tail
	}
	events, err := d.Log.StartTail(f.tail, s, from.after)
	if err != nil {
		f.stop()
		return err
	}
	// The feed outlives the request and must keep nothing of it.
	ctx, done := r.watch(context.Background())
	d.Log.KeepInUse(ctx, s)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", noStore+", no-cache, no-transform")
	// Otherwise nginx would buffer events.
	h.Set("X-Accel-Buffering", "no")
	if f.binary {
		h.Set(headerEncoding, "base64")
	}
	reader := &follower{all: d.feeds, allowed: ctx, member: r.member, cursor: cursor(r.URL.Query().Get("cursor")), body: d.open(w, r.Request)}
	f.addFollower(reader)
	overtime := time.AfterFunc(followFor, reader.end)
	unwatch := context.AfterFunc(ctx, reader.end)
	reader.onEnd = func() {
		overtime.Stop()
		unwatch()
		done()
		leave()
	}
	reader.body.serve(reader.end, func() { f.run(events) })
	return nil
}

// enter counts a connection that follows a stream, unless the member has too many. The caller must call leave at its
// end.
func (d *Door) enter(who string) (leave func(), err error) {
	leave, ok := d.followers.Enter(who, d.MaxFollowers)
	if !ok {
		return nil, fault.Newf(fault.Exhausted, "close some of them, or share one", "you already follow streams over %d connections", d.MaxFollowers)
	}
	return leave, nil
}

// open starts a response whose body has no defined end.
//
// Thousands of followers may be waiting, so their connections are taken from the HTTP server, which then frees the
// request, its buffers and a large stack. An HTTP/2 connection cannot be taken, because it also carries other requests.
func (d *Door) open(w http.ResponseWriter, r *http.Request) bodyWriter {
	conn, err := takeOver(w, r)
	if err != nil {
		w.WriteHeader(http.StatusOK)
		o := &response{w, http.NewResponseController(w), r.Context()}
		o.control.Flush()
		return o
	}
	c := &connection{Conn: conn, taken: &d.taken}
	if conn, ok := conn.(syscall.Conn); ok { // a plain socket
		c.raw, _ = conn.SyscallConn()
	}
	d.taken.add(conn)
	return c
}
