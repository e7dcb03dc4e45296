package model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/secret"
)

// Forward is a request in a dialect that a coding agent wrote. The agent also reads the answer.
type Forward struct {
	// Model is the id of the requested model.
	Model string
	// Path is its path below the endpoint's root, such as "/v1/messages". Query is its query, without the question
	// mark.
	Path, Query string
	// Header has its headers. The endpoint's key replaces a credential in them.
	Header http.Header
	Body   []byte
}

// Forwarded is the answer to a [Forward]. It is used from one goroutine, which closes it.
type Forwarded struct {
	// Status and Header are those of the response. Refusal says why the provider refused the request; nil if Status is
	// a success.
	Status  int
	Header  http.Header
	Refusal *Error

	call     Forward
	endpoint Endpoint
	ctx      context.Context
	cancel   context.CancelCauseFunc
	wire     *wire
	passed   int
	refused  []byte // the body of a refusal
	meter    *meter

	client *Client
	began  time.Time
	sent   atomic.Bool // whether the whole request was written
	failed error       // why the answer was not passed on whole
}

// Forward sends a request, and returns the response as soon as it begins. It sends nothing twice, follows no redirects,
// and has the same limits of addresses as [Client.Stream]. The error is an [*Error], the context's, or a [fault.Error]
// if the endpoint is wrong. [BillOf] says what the call cost nevertheless.
func (c *Client) Forward(ctx context.Context, endpoint Endpoint, f Forward) (*Forwarded, error) {
	if err := endpoint.Check(); err != nil {
		return nil, err
	}
	e := endpoint.withDefaults()
	ctx, cancel := context.WithCancelCause(called(ctx, e, f.Model))
	w := c.wire(e, cancel)
	to := &Forwarded{call: f, endpoint: e, ctx: ctx, cancel: cancel, wire: w, client: c, began: time.Now()}
	w.size, to.meter = func() int { return to.passed }, newMeter(w, false)
	if err := to.send(); err != nil {
		defer to.release()
		failure := w.failure(ctx, f.Model, err)
		err = failure
		stopped := ctx.Err()
		if stopped != nil && !ended(ctx) {
			err = fmt.Errorf("calling %s: %w", e.Name, stopped)
		}
		if to.sent.Load() && stopped != nil { // the caller left, or this client ended the silence
			err = &unanswered{err, to.Bill()}
		}
		bill := BillOf(err)
		c.observe(ctx, e, to.began, bill.Usage, bill.Cost, failure)
		return nil, err
	}
	return to, nil
}

// unanswered is the error of a call whose provider has the whole request, and may bill its input, but whose answer
// nobody waited for.
type unanswered struct {
	error
	bill Bill
}

func (u *unanswered) Unwrap() error { return u.error }

// BillOf returns the bill of a call for which [Client.Forward] returned this error. The call costs nothing if the provider
// failed or does not have the request.
func BillOf(err error) Bill {
	if u, ok := errors.AsType[*unanswered](err); ok {
		return u.bill
	}
	return Bill{CostKnown: true}
}

// request makes the request to the endpoint, with its key.
func (f *Forwarded) request() (*http.Request, error) {
	at := f.endpoint.root() + f.call.Path
	if slices.Contains(strings.Split(f.call.Path, "/"), "..") {
		return nil, errors.New("it is not the id of a model")
	}
	if f.call.Query != "" {
		at += "?" + f.call.Query
	}
	ctx := httptrace.WithClientTrace(f.ctx, &httptrace.ClientTrace{WroteRequest: func(w httptrace.WroteRequestInfo) { f.sent.Store(w.Err == nil) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(f.call.Body))
	if err != nil {
		return nil, err
	}
	r.Header = f.call.Header.Clone()
	for _, name := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key"} {
		r.Header.Del(name)
	}
	f.wire.unlock(r)
	return r, nil
}

func (f *Forwarded) send() error {
	w := f.wire
	r, err := f.request()
	if err != nil {
		return err
	}
	response, err := w.send(r)
	if err != nil {
		return err
	}
	f.Status, f.Header = response.StatusCode, response.Header
	switch {
	case f.Status >= 400:
		f.refused = secret.NewRedactor([]byte(f.endpoint.Key)).Bytes(w.refused())
		f.Refusal = w.failure(f.ctx, f.call.Model, fmt.Errorf("status %d", f.Status))
	case f.Status >= 300:
		return fmt.Errorf("status %d", f.Status)
	}
	f.meter = newMeter(w, f.isStream())
	return nil
}

// isStream reports whether the response is a stream of events.
func (f *Forwarded) isStream() bool {
	return strings.HasPrefix(f.wire.contentType, "text/event-stream")
}

// Copy forwards the body as it arrives. It writes and flushes each piece before it reads the next one, and only then
// parses the piece for its usage. The error is an [*Error] if the provider broke off, the context's, or that of
// writing.
func (f *Forwarded) Copy(to io.Writer, flush func() error) error {
	f.failed = f.copy(to, flush)
	return f.failed
}

func (f *Forwarded) copy(to io.Writer, flush func() error) error {
	if f.Refusal != nil {
		_, err := to.Write(f.refused)
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := f.wire.body.Read(buf)
		if n > 0 {
			if _, failed := to.Write(buf[:n]); failed != nil {
				return failed
			}
			if failed := flush(); failed != nil {
				return failed
			}
			f.passed += n
			f.meter.take(buf[:n])
		}
		switch {
		case err == io.EOF:
			f.meter.finish()
			return nil
		case err == nil:
			continue
		}
		if stopped := f.ctx.Err(); stopped != nil && !ended(f.ctx) {
			return fmt.Errorf("calling %s: %w", f.endpoint.Name, stopped)
		}
		return f.wire.failure(f.ctx, f.call.Model, err)
	}
}

// Close closes the connection, or gives it back if the response is over.
func (f *Forwarded) Close() {
	bill, err := f.Bill(), f.failed
	if f.Refusal != nil {
		err = f.Refusal
	}
	f.client.observe(f.ctx, f.endpoint, f.began, bill.Usage, bill.Cost, err)
	f.release()
}

func (f *Forwarded) release() {
	f.wire.close()
	f.cancel(nil)
}

// Bill is a forwarded call's usage and how the call ended.
type Bill struct {
	Usage Usage
	// Estimated reports that part of Usage is a guess, because the provider did not report it.
	Estimated bool
	Cost      Money
	CostKnown bool
	// Stop is why the answer ended: [entry.PiStopped], [entry.PiToolUse], [entry.PiLength], or [entry.PiError] if the
	// provider says within it that it failed or will not answer. It is empty if the answer did not end, or could not be
	// parsed.
	Stop entry.PiStop
}

// Bill returns the usage of the call so far.
func (f *Forwarded) Bill() Bill {
	if f.Refusal != nil {
		return Bill{CostKnown: true} // a refused call costs nothing
	}
	b := Bill{Usage: f.wire.usage, Stop: f.meter.stop}
	if b.Usage.Input+b.Usage.CacheRead+b.Usage.CacheWrite == 0 {
		b.Usage.Input, b.Estimated = EstimateForward(f.endpoint, f.call), true
	}
	if written := f.meter.written(); b.Usage.Output < written && (b.Usage.Output == 0 || b.Stop == "") {
		b.Usage.Output, b.Estimated = written, true
	}
	b.Cost, b.CostKnown = f.wire.price(f.call.Model, b.Usage)
	return b
}

// EstimateForward estimates the tokens of a request, limited to what its model can read.
func EstimateForward(e Endpoint, f Forward) int64 {
	return min(int64(len(f.Body))/4, max(Lookup(e.withDefaults().Provider, f.Model).ContextWindow, 200_000))
}

// meter reads an answer's usage and how it ended while the answer is forwarded. It holds no more of the answer than the
// size limit. If the answer is out of bounds, it stops reading.
type meter struct {
	wire   *wire
	events *events
	from   reader
	answer *stream
	blind  bool
	ended  bool
	whole  []byte // an answer that is not a stream
	stop   entry.PiStop
	passed int
}

func newMeter(w *wire, isStream bool) *meter {
	m := &meter{wire: w, answer: &stream{each: func(Delta) {}, limit: 2 << 20, open: map[string]int{}}}
	if isStream {
		m.events = &events{dialect: w.endpoint.Dialect, open: map[int]int{}, count: allow(math.MaxFloat64, 0)}
		if p, err := w.endpoint.Dialect.protocol(); err == nil {
			m.from = p.reader(m.answer)
		}
	}
	return m
}

// take handles a piece of the answer.
func (m *meter) take(piece []byte) {
	m.passed += len(piece)
	switch {
	case m.blind, m.ended:
	case m.events == nil:
		if m.blind = len(m.whole)+len(piece) > maxEvent; m.blind {
			m.whole = nil
			return
		}
		m.whole = append(m.whole, piece...)
	default:
		m.events.out, m.events.ready = m.events.out[:0], m.events.ready[:0]
		m.read(m.events.feed(piece))
	}
}

// read reads the available events, and ends if err says so.
func (m *meter) read(err error) {
	for _, s := range m.events.ready {
		data := m.events.out[s.from:s.to]
		m.wire.note(data)
		if s.failed || !m.wire.said.empty() {
			m.stop, m.ended = entry.PiError, true
			return
		}
		if m.stop != "" || m.from == nil {
			continue // only usage may follow
		}
		ends, err := m.from.read(data)
		if err != nil {
			m.from = nil
		} else if ends != "" {
			m.end(ends)
		}
	}
	switch {
	case err == io.EOF: // the end in the dialect
		m.finish()
	case err != nil:
		m.blind = true
		m.events.line, m.events.data, m.events.out = nil, nil, nil
	}
}

// finish is called at the end of the answer.
func (m *meter) finish() {
	if m.ended || m.blind {
		return
	}
	m.ended = true
	if m.events == nil {
		m.readWhole()
		return
	}
	m.events.out, m.events.ready = m.events.out[:0], m.events.ready[:0]
	if cmp.Or(m.events.take(m.events.line), m.events.take(nil)) == nil { // some servers do not terminate their last event
		m.read(nil)
	}
	if m.stop == "" && m.from != nil {
		if ends := m.from.end(); ends != "" {
			m.end(ends)
		}
	}
}

func (m *meter) end(ends finish) {
	switch {
	case ends == endFilter || ends == endError || m.wire.refusal.Len() > 0:
		m.stop = entry.PiError
	case ends == endLength:
		m.stop = entry.PiLength
	case slices.Contains(m.answer.whole, true):
		m.stop = entry.PiToolUse
	default:
		m.stop = entry.PiStopped
	}
}

// wholeAnswer has the fields, in all four dialects, that say how an answer ended.
type wholeAnswer struct {
	StopReason string `json:"stop_reason"`
	Choices    []struct {
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Status     string `json:"status"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Candidates []struct {
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
}

func (a wholeAnswer) stop() entry.PiStop {
	reason := a.StopReason + a.Incomplete.Reason
	if len(a.Choices) > 0 {
		reason = a.Choices[0].FinishReason
	}
	if len(a.Candidates) > 0 {
		reason = a.Candidates[0].FinishReason
	}
	switch reason = strings.ToLower(reason); {
	case a.Status == "failed", slices.Contains([]string{"refusal", "content_filter", "safety", "error"}, reason):
		return entry.PiError
	case slices.Contains([]string{"max_tokens", "length", "max_output_tokens"}, reason):
		return entry.PiLength
	case slices.Contains([]string{"tool_use", "tool_calls"}, reason):
		return entry.PiToolUse
	case reason != "", a.Status == "completed":
		return entry.PiStopped
	}
	return ""
}

// readWhole reads an answer that is one JSON object.
func (m *meter) readWhole() {
	if len(m.whole) == 0 || m.whole[0] != '{' || !json.Valid(m.whole) {
		return
	}
	w := walk{data: m.whole, dialect: m.wire.endpoint.Dialect}
	if w.walk() != nil {
		return
	}
	m.wire.note(m.whole)
	var one wholeAnswer
	if passable(json.Unmarshal(m.whole, &one)) != nil || !m.wire.said.empty() {
		m.stop = entry.PiError
		return
	}
	if stop := one.stop(); stop != "" {
		m.stop = stop
	}
}

// written estimates the tokens of the answer so far.
func (m *meter) written() int64 {
	if m.events == nil || m.blind {
		return int64(m.passed) / 4
	}
	var size int64
	for i := range m.answer.blocks {
		size += EstimateTokens(m.answer.text[i].String())
	}
	return size
}

// Refuse returns a refusal in the shape of a dialect with our own message, so that programs of that dialect show it.
func Refuse(d Dialect, status int, message string) []byte {
	text, _ := json.Marshal(refusal(d, status, message)) // texts and numbers can always be encoded
	return text
}

func refusal(d Dialect, status int, message string) any {
	switch d {
	case Messages:
		kind := map[int]string{400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
			413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error"}[status]
		if kind == "" {
			kind = "api_error"
		}
		return object{"type": "error", "error": object{"type": kind, "message": message}}
	case Gemini:
		kind := map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 402: "RESOURCE_EXHAUSTED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 413: "INVALID_ARGUMENT",
			429: "RESOURCE_EXHAUSTED", 504: "DEADLINE_EXCEEDED"}[status]
		if kind == "" {
			kind = "UNAVAILABLE"
		}
		return object{"error": object{"code": status, "message": message, "status": kind}}
	}
	kind, code := "invalid_request_error", any(nil)
	switch {
	case status == 401:
		code = "invalid_api_key"
	case status == 402:
		kind, code = "insufficient_quota", "insufficient_quota"
	case status == 404:
		code = "model_not_found"
	case status == 429:
		kind, code = "rate_limit_error", "rate_limit_exceeded"
	case status >= 500:
		kind = "server_error"
	}
	return object{"error": object{"message": message, "type": kind, "param": nil, "code": code}}
}
