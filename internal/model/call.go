package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Stream asks a model and returns its answer. It passes the pieces to each as they arrive, in their order, from the
// calling goroutine, and never after it has returned; a slow receiver slows the reading down.
//
// Stream sends the request once. [Error.Passing] says whether a retry may help. The caller decides when to retry,
// because it knows how much time there is and who waits.
//
// The error is an [*Error]; the context's if that ended; or a [fault.Error] if the request or the endpoint is wrong.
// With the first two, the answer has what was written until then, its usage and cost, and the StopReason
// [entry.PiError] or [entry.PiAborted]. When Stream returns, the connection is closed or free for the next call.
func (c *Client) Stream(ctx context.Context, endpoint Endpoint, model string, request Request, each func(Delta)) (Answer, error) {
	if err := endpoint.Check(); err != nil {
		return Answer{}, err
	}
	endpoint = endpoint.withDefaults()
	p, err := request.prompt(endpoint, model)
	if err != nil {
		return Answer{}, err
	}
	if each == nil {
		each = func(Delta) {}
	}
	ctx = called(ctx, endpoint, model)
	began := time.Now()
	s := &stream{each: each, limit: cmp.Or(c.MaxAnswer, 2<<20), open: map[string]int{}}
	w, ends, err := c.attempt(ctx, p, request.Pace, s)
	answer := s.answer(endpoint, model, w, ends, err, request)
	answer.Message.Timestamp, answer.Message.DurationMS = began.UnixMilli(), time.Since(began).Milliseconds()
	c.observe(ctx, endpoint, began, answer.Usage, answer.Cost, err)
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		answer.Message.StopReason, answer.Message.ErrorMessage = entry.PiAborted, "stopped"
		return answer, fmt.Errorf("calling %s: %w", endpoint.Name, ctxErr)
	}
	return answer, err
}

// attempt sends a request once, and collects the answer in s.
func (c *Client) attempt(ctx context.Context, p prompt, pace func(int) func(), s *stream) (w *wire, ends finish, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil) // closes the connection of an answer that is not read to its end
	w = c.wire(p.endpoint, cancel)
	w.size, w.pace = func() int { return s.size }, pace
	defer w.close()
	dialect, err := p.endpoint.Dialect.protocol()
	if err != nil {
		return w, "", newError(UnknownModel, p.endpoint, p.model, err.Error(), nil)
	}
	r, err := dialect.request(ctx, p)
	if err != nil {
		return w, "", newError(UnknownModel, p.endpoint, p.model, err.Error(), nil)
	}
	answer, err := w.ask(r)
	if err == nil {
		ends, err = w.read(answer, dialect.reader(s))
	}
	if errors.Is(err, errFull) {
		return w, endLength, nil
	} else if err != nil {
		return w, "", w.failure(ctx, p.model, err)
	}
	w.drain()
	refusal := w.refusal.String()
	if refusal != "" {
		_ = s.say("refusal", refusal) // the error says it, too
	}
	return w, ends, p.rejected(refusal, ends)
}

// rejected returns why an answer that ended is not one.
func (p prompt) rejected(refusal string, ends finish) error {
	switch {
	case refusal != "", ends == endFilter:
		return newError(Refusal, p.endpoint, p.model, refusal, nil)
	case ends == endError:
		return newError(Unknown, p.endpoint, p.model, "it ended its answer with an error", nil)
	}
	return nil
}

// drain reads to the end of the response, where nothing should follow the answer, so that the connection can be reused.
// It does not wait for a server that keeps its response open.
func (w *wire) drain() {
	if w.body == nil {
		return
	}
	w.idle = 20 * time.Millisecond
	var rest [512]byte
	for range 8 {
		if _, err := w.body.Read(rest[:]); err != nil {
			return
		}
	}
}
