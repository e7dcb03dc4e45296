package door

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// head tells what a stream is, which counts as no use of it.
func (d *Door) head(w http.ResponseWriter, r request) error {
	s, err := d.Log.Describe(r.Context(), r.ref)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", s.ContentType)
	h.Set("Cache-Control", "no-store")
	if s.TTL != nil {
		h.Set(headerTTL, fmt.Sprint(int64(s.TTL.Seconds())))
	} else if !s.ExpiresAt.IsZero() {
		h.Set(headerExpiresAt, s.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	tell(h, s)
	w.WriteHeader(http.StatusOK)
	return nil
}

// read answers with what is in a stream, or follows it.
func (d *Door) read(w http.ResponseWriter, r request) error {
	query := r.URL.Query()
	from, err := placeOf(query)
	if err != nil {
		return err
	}
	live := query.Get("live")
	if live != "" && !from.said {
		return fault.New(fault.Invalid, "offset: it is missing", "say where to begin; -1 is the start and now is the end")
	}
	switch live {
	case "":
		if from.now {
			return d.end(w, r)
		}
		return d.catchUp(w, r, from.after)
	case "long-poll":
		return d.longPoll(w, r, from)
	case "sse":
		return d.follow(w, r, from)
	}
	return fault.Newf(fault.Invalid, "use long-poll or sse, or leave it out", "live: there is no way %.40q to follow a stream", live)
}

// end answers with nothing but where a stream ends.
func (d *Door) end(w http.ResponseWriter, r request) error {
	s, err := d.Log.Use(r.Context(), r.ref)
	if err != nil {
		return err
	}
	p := page{request: r, stream: s, after: s.Tail}
	w.Header().Set("Cache-Control", "no-store")
	p.describe(w.Header())
	p.send(w)
	return nil
}

// catchUp answers with a page of what is there.
func (d *Door) catchUp(w http.ResponseWriter, r request, after int64) error {
	p, err := d.page(r, after)
	if err != nil {
		return err
	}
	h := w.Header()
	p.describe(h)
	h.Set("ETag", p.etag())
	h.Set("Cache-Control", "private, no-cache")
	if !p.upToDate() { // it is full: it will never be another
		h.Set("Cache-Control", "private, max-age=60")
	}
	if isOneOf(r.Header.Get("If-None-Match"), p.etag()) {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	p.send(w)
	return nil
}

// longPoll answers with what is there or, when there is nothing, with what comes first.
func (d *Door) longPoll(w http.ResponseWriter, r request, from place) error {
	ctx, done := r.while(r.Context())
	defer done()
	r.Request = r.WithContext(ctx)
	if from.now {
		s, err := d.Log.Use(r.Context(), r.ref)
		if err != nil {
			return err
		}
		from.after = s.Tail
	}
	p, err := d.page(r, from.after)
	if err != nil {
		return err
	}
	if len(p.entries) == 0 && !p.stream.Closed {
		if err := d.wait(p); err != nil {
			return err
		}
		if p, err = d.page(r, from.after); err != nil {
			return err
		}
	}
	h := w.Header()
	p.describe(h)
	h.Set("Cache-Control", "no-store")
	if !p.closed() {
		h.Set(headerCursor, cursor(r.URL.Query().Get("cursor")))
	}
	if len(p.entries) == 0 {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	h.Set("ETag", p.etag())
	p.send(w)
	return nil
}

// wait returns when a stream goes on behind an empty page, is closed there, or does neither for too long.
func (d *Door) wait(p page) error {
	ctx, cancel := context.WithTimeout(p.Context(), d.LongPoll)
	defer cancel()
	d.Log.Hold(ctx, p.stream)
	for event, err := range d.Log.Tail(ctx, p.ref, p.after) {
		if err != nil {
			return err
		}
		if event.Entry != nil {
			return nil
		}
	}
	if refused := auth.Refused(p.Context()); refused != nil {
		return refused
	}
	return p.Context().Err()
}

// page is a part of a stream that one response holds.
type page struct {
	request
	stream  stream.Stream
	after   int64
	entries []entry.Entry
}

func (d *Door) page(r request, after int64) (page, error) {
	s, entries, err := d.Log.ReadFrom(r.Context(), r.ref, after)
	return page{r, s, after, entries}, err
}

// last is the position that the page reaches.
func (p page) last() int64 {
	if n := len(p.entries); n > 0 {
		return p.entries[n-1].Seq
	}
	return p.after
}

// upToDate tells whether the page reached the end.
func (p page) upToDate() bool { return p.last() == p.stream.Tail }

// closed tells whether nothing will ever come behind the page.
func (p page) closed() bool { return p.upToDate() && p.stream.Closed }

// etag changes with all that a response says.
func (p page) etag() string {
	end := ""
	if p.closed() {
		end = ":c"
	}
	form := ""
	if p.lines() {
		form = ":lines"
	}
	return fmt.Sprintf(`"%d:%d:%d%s%s"`, p.stream.ID, p.after, p.last(), end, form)
}

// lines tells whether the messages are wanted one a line, rather than in an array.
func (p page) lines() bool {
	return stream.IsJSON(p.stream.ContentType) && strings.Contains(p.Header.Get("Accept"), ndjson)
}

const ndjson = "application/x-ndjson"

// describe puts what the page is into a response's headers.
func (p page) describe(h http.Header) {
	h.Set("Content-Type", p.stream.ContentType)
	if p.lines() {
		h.Set("Content-Type", ndjson)
	}
	h.Set("Vary", "Accept")
	h.Set(headerNext, stream.Offset(p.last()))
	if p.upToDate() {
		h.Set(headerUpToDate, "true")
	}
	if p.closed() {
		h.Set(headerClosed, "true")
	}
}

func (p page) send(w http.ResponseWriter) {
	body := p.form().body(p.entries)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(http.StatusOK)
	w.Write(body) // who went away is not told
}

// form is how the content of a stream is written.
type form struct {
	contentType string
	// thread and lines are those of [request] and [page].
	thread, lines bool
}

func (p page) form() form { return form{p.stream.ContentType, p.thread, p.lines()} }

// body is entries as the content of their stream.
func (f form) body(entries []entry.Entry) []byte {
	const around = 256 // what a message of a thread has around its payload, roughly
	size := 0
	for _, e := range entries {
		size += len(e.Payload) + around
	}
	array := stream.IsJSON(f.contentType)
	text := make([]byte, 0, size)
	for _, e := range entries {
		start := len(text)
		if array && !f.lines {
			text = append(text, ',')
		}
		text = f.appendMessage(text, e)
		if f.lines {
			unbreak(text[start:])
			text = append(text, '\n')
		}
	}
	switch {
	case f.lines || !array:
		return text
	case len(text) == 0:
		return []byte("[]")
	}
	text[0] = '['
	return append(text, ']')
}

// binary tells whether the content is no text, which events cannot carry as it is.
func (f form) binary() bool {
	kind := stream.MediaType(f.contentType)
	return !stream.IsJSON(kind) && !strings.HasPrefix(kind, "text/")
}

// unbreak makes JSON text one line: what breaks it is between its values, since no string holds it.
func unbreak(text []byte) {
	for _, c := range []byte("\n\r") {
		for rest := text; ; {
			i := bytes.IndexByte(rest, c)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
}

// isOneOf tells whether an entity tag is in an If-None-Match.
func isOneOf(list, etag string) bool {
	for tag := range strings.SplitSeq(list, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return false
}
