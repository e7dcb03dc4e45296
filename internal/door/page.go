package door

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/stream"
)

// page is the part of a stream in one response. The server never holds all of a large page: it writes one piece to the
// client while it reads the next. No transaction waits for the client.
type page struct {
	request
	door *Door
	*stream.Page
	// body has the pieces that were read but not written.
	body *body
	// lease is the memory that the page uses; nil if it has no entries.
	lease *httpd.Lease
}

// page begins to read a page. The caller must release it.
func (d *Door) page(r request, after int64) (*page, error) {
	p := &page{request: r, door: d}
	err := p.hold(r.Context())
	if err != nil {
		return nil, err
	}
	p.Page, err = d.Log.ReadFrom(r.Context(), r.ref, after, r.thread, func(s stream.Stream) stream.Take {
		p.body = r.bodyOf(s, nil)
		return p.body.add
	})
	if err != nil {
		p.release()
		return nil, err
	}
	if p.More() {
		p.lease.Shrink(piecesMemory)
	} else {
		p.lease.Shrink(int64(cap(p.body.text)))
	}
	return p, nil
}

// bodyOf returns an empty body in the form in which a request wants a stream.
func (r request) bodyOf(s stream.Stream, text []byte) *body {
	return &body{form: formOf(s.ContentType, r.thread, r.wantsLines()), text: text}
}

// hold reserves memory for a piece of unknown size.
func (p *page) hold(ctx context.Context) (err error) {
	p.lease, err = p.door.memory.hold(ctx, p.member, pageMemory)
	return err
}

func (p *page) release() {
	p.lease.Release()
	p.lease = nil
}

func (p *page) empty() bool { return p.Last == p.After }

// upToDate reports whether the page reaches the end.
func (p *page) upToDate() bool { return p.Last == p.Stream.Tail }

// closed reports whether nothing will ever follow the page.
func (p *page) closed() bool { return p.upToDate() && p.Stream.Closed }

// etag returns the entity tag of a page, which depends on everything in the response. It is keyed, because it contains
// the stream's number, which would reveal how many streams other houses create.
func (d *Door) etag(p *page) string {
	mac := hmac.New(sha256.New, d.TagKey)
	fmt.Fprint(mac, p.Stream.ID, p.After, p.Last, p.closed(), p.body.lines)
	return `"` + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16]) + `"`
}

// wantsLines reports whether the client wants one message per line instead of an array.
func (r request) wantsLines() bool { return strings.Contains(r.Header.Get("Accept"), ndjson) }

const ndjson = "application/x-ndjson"

// describe sets the response headers for the page.
func (p *page) describe(h http.Header) {
	h.Set("Content-Type", p.Stream.ContentType)
	if p.body.lines {
		h.Set("Content-Type", ndjson)
	}
	h.Set(headerNext, stream.Offset(p.Last))
	if p.upToDate() {
		h.Set(headerUpToDate, "true")
	}
	if p.closed() {
		h.Set(headerClosed, "true")
	}
}

// send writes the page. If the response cannot be completed, it is aborted so that the client notices.
func (p *page) send(w http.ResponseWriter) {
	if !p.More() {
		text := p.body.end()
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		w.WriteHeader(http.StatusOK)
		w.Write(text) // fails only if the client is gone
		return
	}
	w.WriteHeader(http.StatusOK)
	// The permission may end while a large page is sent.
	ctx, done := p.watch(p.Context())
	defer done()
	var spare []byte
	for p.More() {
		step := p.prefetch
		if p.Large() {
			step = p.exchange
		}
		written := p.body
		p.body = &body{form: p.body.form, begun: p.body.begun, text: spare[:0]}
		if err := step(ctx, done, w, written.text); err != nil {
			if fault.CodeOf(err) == fault.Internal && ctx.Err() == nil {
				p.door.Logger.ErrorContext(p.Context(), "sending a page was aborted", "path", p.URL.Path, "error", fault.From(err).Detail())
			}
			panic(http.ErrAbortHandler)
		}
		spare = written.text
	}
	write(w, p.body.end())
}

// write writes a piece in parts so small that the HTTP server does not count them against its memory limit, because the
// page's lease already counts them.
func write(w http.ResponseWriter, text []byte) error {
	const part = 64 << 10
	for some := range slices.Chunk(text, part) {
		if _, err := w.Write(some); err != nil {
			return err
		}
	}
	return nil
}

// prefetch reads the next piece while the last one is written.
func (p *page) prefetch(ctx context.Context, stop func(), w http.ResponseWriter, text []byte) error {
	read := make(chan error, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil { // fail only this response, as the HTTP server would
				read <- fmt.Errorf("reading a piece panicked: %v\n%s", cause, debug.Stack())
			}
		}()
		read <- p.next(ctx)
	}()
	err := write(w, text)
	if err != nil {
		stop()
	}
	if failed := <-read; err == nil {
		err = failed
	}
	return err
}

// exchange writes the last piece before it reads the next one. It holds no memory while it waits for the memory that a
// large entry needs. Otherwise such pages could wait for each other.
func (p *page) exchange(ctx context.Context, _ func(), w http.ResponseWriter, text []byte) error {
	if err := write(w, text); err != nil {
		return err
	}
	p.release()
	if err := p.hold(ctx); err != nil {
		return err
	}
	if err := p.next(ctx); err != nil {
		return err
	}
	p.lease.Shrink(max(piecesMemory, int64(cap(p.body.text))))
	return nil
}

// next reads the next piece into the body.
func (p *page) next(ctx context.Context) error {
	before := *p.body
	return p.Next(ctx, func(stream.Stream) stream.Take {
		// A repeated read delivers its entries again, which must not be added twice.
		*p.body = before
		return p.body.add
	})
}
