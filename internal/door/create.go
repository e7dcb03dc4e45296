package door

import (
	"net/http"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// create creates a stream, empty or with its first content.
func (d *Door) create(w http.ResponseWriter, r request) error {
	if r.thread {
		return threadsOwn("created", "create the thread with: arbe thread create")
	}
	options, err := createOptions(r.Header)
	if err != nil {
		return err
	}
	body, lease, err := d.content(w, r, maxBody)
	if err != nil {
		return err
	}
	defer lease.Release()
	options.Content = contentFrom(r.agent, body)
	s, created, err := d.Log.Create(r.Context(), r.ref, options)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", s.ContentType)
	setStreamHeaders(h, s)
	if !created {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	h.Set("Location", base(r.Request)+r.ref.Name)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// contentFrom returns the function that reads the first content of a stream.
func contentFrom(author string, body []byte) func(contentType string) ([]entry.Draft, error) {
	return func(contentType string) ([]entry.Draft, error) {
		if len(body) == 0 {
			return nil, nil
		}
		return stream.Drafts(contentType, author, body)
	}
}

// createOptions returns the options in a request's headers.
func createOptions(h http.Header) (options stream.CreateOptions, err error) {
	if options.TTL, options.ExpiresAt, err = lifetime(h); err != nil {
		return options, err
	}
	if options.ContentType, err = contentType(h); err != nil {
		return options, err
	}
	if options.Fork, err = forkPoint(h); err != nil {
		return options, err
	}
	if options.ContentType == "" && options.Fork == nil {
		options.ContentType = "application/octet-stream"
	}
	options.Closed = closes(h)
	return options, nil
}

// forkPoint returns the point that a request wants to fork from, or nil.
func forkPoint(h http.Header) (*stream.ForkPoint, error) {
	sub, subGiven, err := number(h, headerForkSub, 1<<31)
	if err != nil {
		return nil, err
	}
	from, at := h.Get(headerForkedFrom), h.Get(headerForkOffset)
	if from == "" {
		if at != "" || subGiven {
			return nil, fault.New(fault.Invalid, headerForkOffset+" and "+headerForkSub+" need "+headerForkedFrom, "name the stream to fork")
		}
		return nil, nil
	}
	source, err := streamName(from)
	if err != nil {
		return nil, err
	}
	if _, thread := threadOf(source); thread {
		return nil, threadsOwn("forked", "fork the thread with: arbe thread fork")
	}
	p := &stream.ForkPoint{Source: source, Seq: -1, Sub: sub}
	if at != "" {
		if p.Seq, err = stream.ParseOffset(at); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (d *Door) delete(w http.ResponseWriter, r request) error {
	if r.thread {
		return threadsOwn("deleted", "delete the thread with: arbe thread delete")
	}
	if err := d.Log.Delete(r.Context(), r.ref); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// base returns the URL under which a request reached the streams.
func base(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host + prefixOf(r)
}
