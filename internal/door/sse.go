package door

import (
	"bytes"
	"context"
	"encoding/base64"
	"iter"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
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
	// It follows for longer than the request is there, and holds nothing of it.
	ctx, leave := r.while(context.Background())
	events, err := d.Log.Begin(ctx, r.ref, from.after)
	if err != nil {
		leave()
		return err
	}
	d.Log.Hold(ctx, s)
	f := d.newFollower(r, s)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	if f.binary() {
		h.Set(headerEncoding, "base64")
	}
	d.stream(w, r.Request, leave, func(to outlet) {
		defer leave()
		defer time.AfterFunc(followFor, leave).Stop()
		defer d.events.leave(s.ID)
		f.run(events, to)
	})
	return nil
}

// follower is one connection that follows a stream.
type follower struct {
	form
	to outlet
	// newest is the stream's newest event, which all its followers send.
	newest *event
	// cursor is what the client shows when it comes again.
	cursor string
	// end is where the stream was closed when the connection began; -1 when it was open. One that is closed
	// later says so in an event.
	end int64
	// waiting are entries to be sent in one data event.
	waiting []entry.Entry
	bytes   int
	// told is the offset of the last control event that said that all was sent; -1 when there was none.
	told int64
	// ended says that the last control event said that nothing will ever come.
	ended bool
}

func (d *Door) newFollower(r request, s stream.Stream) *follower {
	f := &follower{
		form: form{contentType: s.ContentType, thread: r.thread}, newest: d.events.join(s.ID),
		cursor: cursor(r.URL.Query().Get("cursor")), end: -1, told: -1,
	}
	if s.Closed {
		f.end = s.Tail
	}
	return f
}

// run sends events until there are no more, or they do not go out: the response ends, and the client comes
// again.
func (f *follower) run(events iter.Seq2[stream.Event, error], to outlet) {
	f.to = to
	for event, err := range events {
		if err != nil || f.tell(event) != nil {
			return
		}
	}
}

// tell sends an event, or keeps it to send it with the next one.
func (f *follower) tell(e stream.Event) error {
	switch {
	case e.Entry != nil:
		f.waiting = append(f.waiting, *e.Entry)
		f.bytes += len(e.Entry.Payload)
		if e.More && f.bytes < maxFrame {
			return nil
		}
		data := f.data(!e.More)
		f.waiting, f.bytes = nil, 0
		return f.send(data, e.Seq, !e.More, f.end == e.Seq)
	case e.CaughtUp && f.told != e.Seq:
		return f.send(nil, e.Seq, true, f.end == e.Seq)
	case e.Closed && !f.ended:
		return f.send(nil, e.Seq, true, true)
	}
	return nil
}

// data is the data event of what is waiting. One that reaches the end of the stream is what the other
// followers are about to send as well.
func (f *follower) data(newest bool) []byte {
	if !newest {
		return f.encode()
	}
	return f.newest.of(f.waiting[0].Seq, f.waiting[len(f.waiting)-1].Seq, f.encode)
}

func (f *follower) encode() []byte {
	content := f.body(f.waiting)
	text := []byte("event: data\n")
	if f.binary() {
		text = append(base64.StdEncoding.AppendEncode(append(text, "data:"...), content), '\n')
	} else {
		// Whatever ends a line for a reader of events ends one here: content cannot end the event.
		content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
		content = bytes.ReplaceAll(content, []byte("\r"), []byte("\n"))
		for line := range bytes.SplitSeq(content, []byte("\n")) {
			text = append(append(append(text, "data:"...), line...), '\n')
		}
	}
	return append(text, '\n')
}

// send sends a data event, if there is one, and the control event that follows it.
func (f *follower) send(data []byte, seq int64, upToDate, closed bool) error {
	if upToDate {
		f.told = seq
	}
	f.ended = closed
	// Offsets and cursors are digits, which need no quoting.
	control := append(make([]byte, 0, 160), "event: control\ndata:{\"streamNextOffset\":\""...)
	control = append(append(control, stream.Offset(seq)...), '"')
	if !closed { // else nobody comes again
		control = append(append(append(control, `,"streamCursor":"`...), f.cursor...), '"')
	}
	if upToDate {
		control = append(control, `,"upToDate":true`...)
	}
	if closed {
		control = append(control, `,"streamClosed":true`...)
	}
	return f.to.send(net.Buffers{data, append(control, "}\n\n"...)})
}

// events makes the data event that many followers of a stream are about to send once for all of them.
type events struct {
	mu       sync.Mutex
	byStream map[int64]*event
}

// event is the newest data event of one stream.
type event struct {
	followers atomic.Int64

	mu          sync.Mutex
	first, last int64
	text        []byte
}

// join is called by a follower, who calls leave in the end.
func (es *events) join(stream int64) *event {
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.byStream == nil {
		es.byStream = map[int64]*event{}
	}
	e := es.byStream[stream]
	if e == nil {
		e = &event{}
		es.byStream[stream] = e
	}
	e.followers.Add(1)
	return e
}

func (es *events) leave(stream int64) {
	es.mu.Lock()
	defer es.mu.Unlock()
	e := es.byStream[stream]
	if e.followers.Add(-1) == 0 {
		delete(es.byStream, stream)
	}
}

// of is the event of the entries from first to last, which nobody changes. Who comes while another makes it
// waits for that; a lone follower leaves none behind.
func (e *event) of(first, last int64, encode func() []byte) []byte {
	if e.followers.Load() == 1 {
		return encode()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.text == nil || e.first != first || e.last != last {
		e.first, e.last, e.text = first, last, encode()
	}
	return e.text
}
