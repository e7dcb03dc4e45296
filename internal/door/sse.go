package door

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// followFor is how long one connection follows a stream, before the client comes again: proxies between
	// give up on silent ones, and share those that begin together.
	followFor = 55 * time.Second
	// stallAfter is how long a client may take nothing before it is let go.
	stallAfter = 30 * time.Second
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
	} else if from.after > s.Tail {
		_, err := d.page(r, from.after)
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), followFor)
	defer cancel()
	d.Log.Hold(ctx, s)
	f := newFollower(w, page{request: r, stream: s})
	for event, err := range d.Log.Tail(ctx, r.ref, from.after) {
		if err == nil {
			err = f.tell(event)
		}
		if err != nil {
			return nil // the response has begun: it ends, and the client comes again
		}
	}
	return nil
}

// follower is one connection that follows a stream.
type follower struct {
	page
	w       http.ResponseWriter
	control *http.ResponseController
	// cursor is what the client shows when it comes again.
	cursor string
	// waiting are entries to be sent in one data event.
	waiting []entry.Entry
	bytes   int
	// told is the offset of the last control event that said that all was sent; -1 when there was none.
	told int64
	// ended says that the last control event said that nothing will ever come.
	ended bool
	out   bytes.Buffer
}

func newFollower(w http.ResponseWriter, p page) *follower {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	f := &follower{page: p, w: w, control: http.NewResponseController(w), cursor: cursor(p.URL.Query().Get("cursor")), told: -1}
	if f.binary() {
		h.Set(headerEncoding, "base64")
	}
	p.Header.Del("Accept") // it asks for events, not for lines
	w.WriteHeader(http.StatusOK)
	f.control.Flush()
	return f
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
		f.data()
		return f.state(e.Seq, !e.More, f.closedAt(e.Seq))
	case e.CaughtUp && f.told != e.Seq:
		return f.state(e.Seq, true, f.closedAt(e.Seq))
	case e.Closed && !f.ended:
		return f.state(e.Seq, true, true)
	}
	return nil
}

// closedAt tells whether the stream was closed at a position when the connection began: one that is closed
// later says so in an event.
func (f *follower) closedAt(seq int64) bool {
	return f.page.stream.Closed && f.page.stream.Tail == seq
}

// data writes a data event of what is waiting.
func (f *follower) data() {
	content := f.body(f.waiting)
	f.waiting, f.bytes = f.waiting[:0], 0
	f.out.WriteString("event: data\n")
	if f.binary() {
		f.line([]byte(base64.StdEncoding.EncodeToString(content)))
	} else {
		// Whatever ends a line for a reader of events ends one here: content cannot end the event.
		content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
		content = bytes.ReplaceAll(content, []byte("\r"), []byte("\n"))
		for line := range bytes.SplitSeq(content, []byte("\n")) {
			f.line(line)
		}
	}
	f.out.WriteByte('\n')
}

func (f *follower) line(text []byte) {
	f.out.WriteString("data:")
	f.out.Write(text)
	f.out.WriteByte('\n')
}

// state is what a control event says.
type state struct {
	Next     string `json:"streamNextOffset"`
	Cursor   string `json:"streamCursor,omitempty"`
	UpToDate bool   `json:"upToDate,omitempty"`
	Closed   bool   `json:"streamClosed,omitempty"`
}

// state writes a control event, and sends all that was written.
func (f *follower) state(seq int64, upToDate, closed bool) error {
	s := state{Next: stream.Offset(seq), Cursor: f.cursor, UpToDate: upToDate, Closed: closed}
	if closed {
		s.Cursor = "" // nobody comes again
	}
	if upToDate {
		f.told = seq
	}
	f.ended = closed
	text, _ := json.Marshal(s)
	f.out.WriteString("event: control\n")
	f.line(text)
	f.out.WriteByte('\n')
	f.control.SetWriteDeadline(time.Now().Add(stallAfter))
	_, err := f.w.Write(f.out.Bytes())
	if f.out.Reset(); f.out.Cap() > maxFrame {
		f.out = bytes.Buffer{}
	}
	if err != nil {
		return err
	}
	return f.control.Flush()
}

// binary tells whether the stream's content is no text, which events cannot carry as it is.
func (f *follower) binary() bool {
	kind := stream.MediaType(f.page.stream.ContentType)
	return !stream.IsJSON(kind) && !strings.HasPrefix(kind, "text/")
}
