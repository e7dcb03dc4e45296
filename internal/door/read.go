package door

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
)

// head answers with the description of a stream. It does not count as a use of the stream.
func (d *Door) head(w http.ResponseWriter, r request) error {
	s, err := d.Log.Describe(r.Context(), r.ref)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", s.ContentType)
	if s.TTL != nil {
		h.Set(headerTTL, fmt.Sprint(int64(s.TTL.Seconds())))
	} else if !s.ExpiresAt.IsZero() {
		h.Set(headerExpiresAt, s.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	setStreamHeaders(h, s)
	w.WriteHeader(http.StatusOK)
	return nil
}

// read answers with entries of a stream, or follows it.
func (d *Door) read(w http.ResponseWriter, r request) error {
	query := r.URL.Query()
	from, err := startOf(query)
	if err != nil {
		return err
	}
	live := query.Get("live")
	if live != "" && !from.given {
		return fault.New(fault.Invalid, "the offset is missing", "add offset=-1 for the start, or offset=now for the end")
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
	return fault.Newf(fault.Invalid, "use long-poll or sse, or leave it out", "live: %.40q is not a way to follow a stream", live)
}

// end answers with the position of a stream's end only.
func (d *Door) end(w http.ResponseWriter, r request) error {
	end, err := d.Log.ReadEnd(r.Context(), r.ref)
	if err != nil {
		return err
	}
	p := &page{request: r, door: d, Page: end, body: r.bodyOf(end.Stream, nil)}
	p.describe(w.Header())
	p.send(w)
	return nil
}

// catchUp answers with a page of existing entries.
func (d *Door) catchUp(w http.ResponseWriter, r request, after int64) error {
	p, err := d.page(r, after)
	if err != nil {
		return err
	}
	defer p.release()
	h := w.Header()
	p.describe(h)
	etag := d.etag(p)
	h.Set("ETag", etag)
	h.Set("Cache-Control", "private, no-cache")
	if !p.upToDate() { // a full page never changes, so caches may keep it
		h.Set("Cache-Control", "private, max-age=60")
	}
	if isOneOf(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	p.send(w)
	return nil
}

// longPoll answers with existing entries or, if there are none, with the first new ones.
func (d *Door) longPoll(w http.ResponseWriter, r request, from startPosition) (err error) {
	leave, err := d.enter(r.member)
	if err != nil {
		return err
	}
	defer leave()
	ctx, done := r.watch(r.Context())
	defer done()
	defer func() {
		if refused := auth.Refused(ctx); err != nil && refused != nil { // the end of the permission is the real reason
			err = refused
		}
	}()
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
	if p.empty() && !p.Stream.Closed {
		p.release()
		// Waiting clients hold no memory, because the page was released.
		if err := d.wait(p); err != nil {
			return err
		}
		if p, err = d.page(r, from.after); err != nil {
			return err
		}
	}
	defer p.release()
	if err := auth.StillAllowed(ctx, time.Now()); err != nil {
		return err
	}
	h := w.Header()
	p.describe(h)
	if !p.closed() {
		h.Set(headerCursor, cursor(r.URL.Query().Get("cursor")))
	}
	if p.empty() {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	h.Set("ETag", d.etag(p))
	p.send(w)
	return nil
}

// wait waits until a stream has entries after an empty page, is closed, or the time limit is reached.
func (d *Door) wait(p *page) error {
	ctx, cancel := context.WithTimeout(p.Context(), d.LongPoll)
	defer cancel()
	d.Log.KeepInUse(ctx, p.Stream)
	for event, err := range d.Log.Tail(ctx, p.ref, p.After) {
		if err != nil {
			return err
		}
		if event.Entry != nil {
			return nil
		}
	}
	return p.Context().Err()
}

// isOneOf reports whether an If-None-Match header contains an entity tag.
func isOneOf(list, etag string) bool {
	for tag := range strings.SplitSeq(list, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return false
}
