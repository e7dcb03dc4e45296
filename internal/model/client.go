package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Client calls models. The zero Client has the defaults. Its fields must not change after its first call; its methods
// may be called concurrently, and share connections.
type Client struct {
	// HeaderTimeout is how long a provider may take to begin its response, and IdleTimeout how long it may be silent
	// within it. Default to 3 and 2 minutes. How long an answer takes altogether is limited by the caller's context.
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
	// MinRate is how fast an answer must grow, in bytes per second, including thinking. Defaults to 16, or to 2 at
	// addresses that the operator named, which may be small machines. An answer may be slower for SlowTime in total,
	// which defaults to 5 minutes and recovers while the answer is faster.
	MinRate  float64
	SlowTime time.Duration
	// MaxAnswer is the largest size of an answer, in bytes of its stored JSON, with calls and signatures. The answer
	// then ends as if it had reached its limit of tokens. Defaults to 2 MiB.
	MaxAnswer int
	// Observe is called when a call of [Client.Stream] or [Client.Forward] has ended. It must be quick. Defaults to nil.
	Observe func(Call)

	once   sync.Once
	public http.RoundTripper
	open   http.RoundTripper
}

// DeltaKind is the kind of a [Delta].
type DeltaKind string

// The kinds of deltas.
const (
	TextDelta      DeltaKind = "text"
	ThinkingDelta  DeltaKind = "thinking"
	CallStartDelta DeltaKind = "call_start"
	CallArgsDelta  DeltaKind = "call_args"
	CallEndDelta   DeltaKind = "call_end"
)

// Delta is one piece of an answer as it is written.
type Delta struct {
	Kind DeltaKind
	// Block is the index of its block. Blocks are counted as they begin; the answer leaves out unfinished calls.
	Block int
	// Text is a piece of a text, of thinking, or of the arguments of a call as the model writes them.
	Text string
	// CallID and CallName identify the call, in its start; its other deltas have only the CallID.
	CallID   string
	CallName string
}

// Answer is a model's answer.
type Answer struct {
	// Message is the answer in pi's shape. All its calls are complete: their arguments are JSON of at most 100 levels,
	// or a JSON string with what the model wrote instead. Run them only if its StopReason is [entry.PiToolUse].
	Message entry.PiAssistant
	// Usage is what the call used. Estimated reports that part of it is a guess, because the call ended before the
	// provider reported it.
	Usage     Usage
	Estimated bool
	// Cost is the cost of the call. If the model's price is unknown, CostKnown is false and Cost is 0.
	Cost      Money
	CostKnown bool
}

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

// Patience returns how long a provider may be silent before its call ends: before its response, or within it.
func (c *Client) Patience(begun bool) time.Duration {
	if begun {
		return cmp.Or(c.IdleTimeout, 2*time.Minute)
	}
	return cmp.Or(c.HeaderTimeout, 3*time.Minute)
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
	switch refusal := w.refusal.String(); {
	case refusal != "":
		_ = s.say("refusal", refusal) // the error says it, too
		return w, ends, newError(Refusal, p.endpoint, p.model, refusal, nil)
	case ends == endFilter:
		return w, ends, newError(Refusal, p.endpoint, p.model, "", nil)
	case ends == endError:
		return w, ends, newError(Unknown, p.endpoint, p.model, "it ended its answer with an error", nil)
	}
	return w, ends, nil
}

// wire returns the connection of a new call.
func (c *Client) wire(e Endpoint, cancel context.CancelCauseFunc) *wire {
	c.once.Do(func() { c.public, c.open = publicTransport(), openTransport() })
	w := &wire{base: c.public, endpoint: e, cancel: cancel, header: c.Patience(false), idle: c.Patience(true),
		size: func() int { return 0 }}
	rate := cmp.Or(c.MinRate, 16)
	if e.Trusted {
		w.base, rate = c.open, cmp.Or(c.MinRate, 2)
	}
	w.patience = allow(cmp.Or(c.SlowTime, 5*time.Minute).Seconds(), 1/rate)
	return w
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
