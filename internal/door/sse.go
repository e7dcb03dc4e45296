package door

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// followFor is how long one connection follows a stream before the client must reconnect. It is limited, because
	// proxies drop connections that are silent for longer, and can merge those that begin together.
	followFor = 55 * time.Second
	// maxFrame is the size of content at which a data event ends, in bytes.
	maxFrame = 256 << 10
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
		if lease, err = d.hold(r.Context(), r.member, feedMemory); err != nil {
			return err
		}
	}
	f := d.newFeed(feedKey{s.ID, r.ref, formOf(s.ContentType, r.thread, false)})
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
	reader := &follower{door: d, allowed: ctx, member: r.member, cursor: cursor(r.URL.Query().Get("cursor")), body: d.open(w, r.Request)}
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

// state is the content of a control event.
type state struct {
	seq              int64
	upToDate, closed bool
}

// data returns the waiting entries as a data event; empty if there are none. It has spare capacity for a control event.
func (f *feed) data() []byte {
	if len(f.waiting) == 0 {
		return nil
	}
	made := body{form: f.form}
	for i := range f.waiting {
		made.add(&f.waiting[i])
	}
	content := made.end()
	text := append(make([]byte, 0, len(content)+512), "event: data\n"...)
	if f.binary {
		return append(base64.StdEncoding.AppendEncode(append(text, "data:"...), content), "\n\n"...)
	}
	// Content must not end the event, so every kind of line break that a reader of events recognises starts a new data
	// line.
	content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	content = bytes.ReplaceAll(content, []byte("\r"), []byte("\n"))
	for line := range bytes.SplitSeq(content, []byte("\n")) {
		text = append(append(append(text, "data:"...), line...), '\n')
	}
	return append(text, '\n')
}

// appendControl appends the control event for a state, with the cursor that the client sends when it reconnects.
func appendControl(text []byte, s state, cursor string) []byte {
	// Offsets and cursors are digits, which need no escaping.
	text = append(append(append(text, "event: control\ndata:{\"streamNextOffset\":\""...), stream.Offset(s.seq)...), '"')
	if !s.closed { // otherwise no client reconnects
		text = append(append(append(text, `,"streamCursor":"`...), cursor...), '"')
	}
	if s.upToDate {
		text = append(text, `,"upToDate":true`...)
	}
	if s.closed {
		text = append(text, `,"streamClosed":true`...)
	}
	return append(text, "}\n\n"...)
}
