package door

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// followFor is how long one connection follows a stream, before the client comes again: proxies between
	// give up on silent ones, and share those that begin together.
	followFor = 55 * time.Second
	// maxFrame is the content after which a data event ends, in bytes.
	maxFrame = 256 << 10
)

// follow sends what is in a stream and what comes, as server-sent events.
func (d *Door) follow(w http.ResponseWriter, r request, from place) error {
	s, err := d.Log.Use(r.Context(), r.ref)
	if err != nil {
		return err
	}
	if from.now {
		from.after = s.Tail
	}
	f := d.newFeed(channel{s.ID, r.ref, form{contentType: s.ContentType, thread: r.thread}})
	if s.Closed {
		f.end = s.Tail
	}
	events, err := d.Log.Begin(f.tail, s, from.after)
	if err != nil {
		f.stop()
		return err
	}
	// It follows for longer than the request is there, and holds nothing of it.
	ctx, done := r.while(context.Background())
	d.Log.Hold(ctx, s)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	if f.binary() {
		h.Set(headerEncoding, "base64")
	}
	reader := &follower{door: d, cursor: cursor(r.URL.Query().Get("cursor")), to: d.open(w, r.Request)}
	f.tellTo(reader)
	overtime := time.AfterFunc(followFor, reader.end)
	unwatch := context.AfterFunc(ctx, reader.end)
	reader.left = func() {
		overtime.Stop()
		unwatch()
		done()
	}
	reader.to.attend(reader.end, func() { f.run(events) })
	return nil
}

// state is what a control event says.
type state struct {
	seq              int64
	upToDate, closed bool
}

// data is what is waiting as a data event; empty when nothing is. It has room for a control event.
func (f *feed) data() []byte {
	if len(f.waiting) == 0 {
		return nil
	}
	content := f.body(f.waiting)
	text := append(make([]byte, 0, len(content)+512), "event: data\n"...)
	if f.binary() {
		return append(base64.StdEncoding.AppendEncode(append(text, "data:"...), content), "\n\n"...)
	}
	// Whatever ends a line for a reader of events ends one here: content cannot end the event.
	content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	content = bytes.ReplaceAll(content, []byte("\r"), []byte("\n"))
	for line := range bytes.SplitSeq(content, []byte("\n")) {
		text = append(append(append(text, "data:"...), line...), '\n')
	}
	return append(text, '\n')
}

// appendControl appends the control event of a state, for a client that shows cursor when it comes again.
func appendControl(text []byte, s state, cursor string) []byte {
	// Offsets and cursors are digits, which need no quoting.
	text = append(append(append(text, "event: control\ndata:{\"streamNextOffset\":\""...), stream.Offset(s.seq)...), '"')
	if !s.closed { // else nobody comes again
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
