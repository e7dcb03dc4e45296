package door

import (
	"bytes"
	"context"
	"encoding/base64"
	"iter"
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
	// maxEditions is how many texts of an event are kept: nearly all followers came within a few cursors' time, and
	// a client may say that it has any.
	maxEditions = 4
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
		return f.send(state{e.Seq, !e.More, f.end == e.Seq})
	case e.CaughtUp && f.told != e.Seq:
		return f.send(state{e.Seq, true, f.end == e.Seq})
	case e.Closed && !f.ended:
		return f.send(state{e.Seq, true, true})
	}
	return nil
}

// state is what a control event says.
type state struct {
	seq              int64
	upToDate, closed bool
}

// send sends what is waiting in a data event, if anything is, and the control event that follows it. Those that
// reach the end of the stream are what the other followers are about to send as well.
func (f *follower) send(s state) error {
	if s.upToDate {
		f.told = s.seq
	}
	f.ended = s.closed
	var text []byte
	switch {
	case len(f.waiting) == 0:
		text = f.appendControl(nil, s)
	case s.upToDate:
		text = f.newest.of(edition{f.waiting[0].Seq, f.cursor, s}, func() []byte { return f.encode(s) })
	default:
		text = f.encode(s)
	}
	clear(f.waiting) // and what it holds
	f.waiting, f.bytes = f.waiting[:0], 0
	if cap(f.waiting) > 1 {
		f.waiting = nil
	}
	return f.to.send(text)
}

// encode is what is waiting as a data event, and the control event that follows it.
func (f *follower) encode(s state) []byte {
	content := f.body(f.waiting)
	text := make([]byte, 0, len(content)+512)
	text = append(text, "event: data\n"...)
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
	return f.appendControl(append(text, '\n'), s)
}

func (f *follower) appendControl(text []byte, s state) []byte {
	// Offsets and cursors are digits, which need no quoting.
	text = append(append(append(text, "event: control\ndata:{\"streamNextOffset\":\""...), stream.Offset(s.seq)...), '"')
	if !s.closed { // else nobody comes again
		text = append(append(append(text, `,"streamCursor":"`...), f.cursor...), '"')
	}
	if s.upToDate {
		text = append(text, `,"upToDate":true`...)
	}
	if s.closed {
		text = append(text, `,"streamClosed":true`...)
	}
	return append(text, "}\n\n"...)
}

// events makes what many followers of a stream are about to send once for all of them.
type events struct {
	mu       sync.Mutex
	byStream map[int64]*event
}

// event is the newest of one stream: its data and control events, for each cursor that a follower has.
type event struct {
	followers atomic.Int64

	mu     sync.Mutex
	newest state
	texts  map[edition][]byte
}

// edition is what tells texts of a stream apart: the first entry, what its reader shows when it comes again, and
// where it ends.
type edition struct {
	first  int64
	cursor string
	state
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

// of is the text of an edition, which nobody changes. Who comes while another makes it waits for that; a lone
// follower leaves none behind.
func (e *event) of(want edition, encode func() []byte) []byte {
	if e.followers.Load() == 1 {
		return encode()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.newest != want.state {
		e.newest, e.texts = want.state, map[edition][]byte{}
	}
	text, ok := e.texts[want]
	if !ok {
		text = encode()
		if len(e.texts) < maxEditions {
			e.texts[want] = text
		}
	}
	return text
}
