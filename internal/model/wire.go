package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxErrorBody is how much is read of a body that is not an event stream.
const maxErrorBody = 64 << 10

// errIdle and errSlow end a call whose provider is silent, or whose answer grows too slowly.
var (
	errIdle = errors.New("the provider was silent")
	errSlow = errors.New("the answer grows too slowly")
)

// wire is the connection of one call. It adds the key, limits silence, and reads what all dialects have: usage, errors,
// refusals and the id. A call uses it from one goroutine.
type wire struct {
	base     http.RoundTripper
	endpoint Endpoint
	header   time.Duration
	idle     time.Duration
	patience allowance // in seconds
	cancel   context.CancelCauseFunc
	// size returns the size of the answer so far.
	size func() int
	// pace is [Request.Pace].
	pace func(n int) (end func())
	// slow reports that the timer of the body, if it fires, means a slow answer and not a silent provider.
	slow atomic.Bool

	status      int // 0 until there is a response
	contentType string
	retryAfter  time.Duration
	body        *tapped

	data    bool      // whether an event came
	said    wireError // an error in the stream, or of a refused request
	page    string    // the text of a refusal that is not a provider's error, such as a proxy's page
	usage   Usage
	cost    float64 // in dollars, if the provider reports it
	hasCost bool
	id      string
	refusal strings.Builder
}

// do sends a request with the endpoint's key. A redirect is not followed, because the key is only for this address.
func (w *wire) do(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", "arbe")
	if w.endpoint.Dialect == Messages {
		r.Header.Set("Anthropic-Version", "2023-06-01")
	}
	w.unlock(r)
	client := &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return client.Do(r)
}

// unlock puts the endpoint's key into a request.
func (w *wire) unlock(r *http.Request) {
	key := w.endpoint.Key
	if key == "" {
		return
	}
	switch w.endpoint.Dialect {
	case Messages:
		r.Header.Set("X-Api-Key", key)
	case Gemini:
		r.Header.Set("X-Goog-Api-Key", key)
	default:
		r.Header.Set("Authorization", "Bearer "+key)
	}
}

// RoundTrip sends one request that do prepared.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.send(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 400 || w.isJSON() && r.Method == http.MethodPost {
		// Some servers refuse a request with the status of a success. Answers are streamed, so a JSON body is a
		// refusal.
		text := w.refused()
		response.Body = struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(text), w.body}
	}
	return response, nil
}

// send sends a request, and returns the response, whose body is w.body.
func (w *wire) send(r *http.Request) (*http.Response, error) {
	timer := time.AfterFunc(w.header, func() {
		if w.slow.Load() {
			w.cancel(errSlow)
		}
		w.cancel(errIdle)
	})
	response, err := w.base.RoundTrip(r)
	timer.Stop()
	if err != nil {
		return nil, err
	}
	w.status, w.contentType = response.StatusCode, response.Header.Get("Content-Type")
	w.retryAfter = retryAfter(response.Header, time.Now())
	w.body = &tapped{ReadCloser: response.Body, wire: w, timer: timer, patience: w.patience}
	response.Body = w.body
	if coding := response.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		w.close()
		return nil, outOfBounds("it sends a compressed response, which was not asked for")
	}
	return response, nil
}

// refused reads and records the body of a refusal.
func (w *wire) refused() []byte {
	text, _ := io.ReadAll(io.LimitReader(w.body, maxErrorBody)) //nolint:errcheck // a part of the body will do
	if w.said = readError(text); w.said.empty() {
		w.page = pageText(text)
	}
	return text
}

func (w *wire) isJSON() bool { return strings.HasPrefix(w.contentType, "application/json") }

// ask sends a request for an answer, and returns the events of the answer.
func (w *wire) ask(r *http.Request) (*events, error) {
	response, err := w.do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 || w.isJSON() {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	answer := newEvents(w.body, w.endpoint.Dialect, w.size)
	if w.pace != nil {
		answer.pace = w.pace
	}
	return answer, nil
}

// read reads an answer until it ends.
func (w *wire) read(answer *events, from reader) (finish, error) {
	for {
		e, err := answer.next()
		if err == io.EOF {
			if ends := from.end(); ends != "" {
				return ends, nil
			}
			return "", io.ErrUnexpectedEOF
		} else if err != nil {
			return "", err
		}
		if w.note(e.data); e.failed || !w.said.empty() {
			return "", errReported
		}
		if ends, err := from.read(e.data); ends != "" || err != nil {
			return ends, err
		}
	}
}

// close closes the connection, or releases it for reuse if its response is over.
func (w *wire) close() {
	if w.body != nil {
		w.body.Close() //nolint:errcheck // nothing more is needed from it
	}
}

// retryAfter returns how long a provider asks us to wait; 0 if it does not.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e10 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 && seconds < 1e7 {
		return time.Duration(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// tapped is the body of a response. It ends the call if nothing arrives for too long, or if the answer grows too
// slowly.
type tapped struct {
	io.ReadCloser
	wire  *wire
	timer *time.Timer
	grown int
	// patience is how many seconds the answer may continue without growing. Each byte of growth adds to it.
	patience allowance
	close    sync.Once
}

// Read reads from the provider. The time between two calls of Read does not count, because then the caller is slow and
// not the provider.
func (t *tapped) Read(p []byte) (int, error) {
	if grown := t.wire.size(); grown > t.grown {
		t.patience.earn(grown - t.grown)
		t.grown = grown
	}
	left := time.Duration(t.patience.left * float64(time.Second))
	t.wire.slow.Store(left < t.wire.idle)
	t.timer.Reset(max(min(left, t.wire.idle), time.Millisecond))
	began := time.Now()
	n, err := t.ReadCloser.Read(p)
	t.timer.Stop()
	if !t.patience.spend(time.Since(began).Seconds()) && err == nil {
		t.wire.cancel(errSlow)
		err = errSlow
	}
	return n, err
}

// Close closes the connection, or releases it for reuse if its response is over.
func (t *tapped) Close() (err error) {
	t.close.Do(func() {
		t.timer.Stop()
		err = t.ReadCloser.Close()
	})
	return err
}
