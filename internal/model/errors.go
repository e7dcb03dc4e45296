package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/secret"
)

// Kind is the kind of failure of a call.
type Kind string

// The kinds of errors.
const (
	BadKey       Kind = "bad_key"          // the provider does not accept the key
	UnknownModel Kind = "unknown_model"    // the provider has no such model
	RateLimit    Kind = "rate_limit"       // too many requests or tokens at this time
	Overload     Kind = "overload"         // the provider is overloaded or broken
	NoMoney      Kind = "no_money"         // the account has no money left, or its quota is used up
	Overflow     Kind = "context_overflow" // the request is longer than the model's context
	Refusal      Kind = "refusal"          // the model, or a filter of its provider, will not answer
	BadRequest   Kind = "bad_request"      // the provider does not accept the request
	Unreachable  Kind = "unreachable"      // there is no connection to the provider
	Cut          Kind = "cut"              // the connection ended within the answer
	Idle         Kind = "idle"             // the provider was silent for too long
	Slow         Kind = "slow"             // the answer grew too slowly for too long
	Unreadable   Kind = "unreadable"       // the response is not an answer in the endpoint's dialect
	Unknown      Kind = "unknown"          // the provider says something else
)

// Error is the error of a failed call. It wraps a [fault.Error] with a message and a next step for people, so that
// [fault.From] finds it. Neither contains the key or the request.
type Error struct {
	Kind Kind
	// Status is the HTTP status; 0 if there was no response.
	Status int
	// RetryAfter is how long the provider asks to wait before a retry; 0 if it does not.
	RetryAfter time.Duration
	// Said is the provider's message on one line, shortened, without the key; empty if there is none. It is untrusted.
	Said string

	permanent bool
	// unlisted reports that the server has no list of models for this key, which says nothing about the key.
	unlisted bool
	fault    *fault.Error
}

// Error returns the message for people.
func (e *Error) Error() string { return e.fault.Error() }

// Unwrap returns the [fault.Error].
func (e *Error) Unwrap() error { return e.fault }

// Passing reports whether the same request may succeed later without anybody fixing something: the provider is
// overloaded, cannot be reached, or broke off.
func (e *Error) Passing() bool {
	switch e.Kind {
	case RateLimit, Overload, Unreachable, Cut, Idle:
		return !e.permanent
	}
	return false
}

// Brief describes a passing error in a few words that follow the provider's name, such as "overloaded".
func (e *Error) Brief() string {
	said := e.Said
	brief := "it fails"
	switch e.Kind {
	case RateLimit:
		brief = "too many requests"
	case Overload:
		if overload := "overloaded"; e.Status == 503 || e.Status == 529 || strings.Contains(strings.ToLower(said), "overload") {
			brief = overload
			if len(said) < 2*len(overload) { // the message says nothing more
				said = ""
			}
		}
	case Unreachable:
		brief = "it cannot be reached"
	case Cut:
		brief = "the connection was lost"
	case Idle:
		brief = "no answer"
	}
	if said != "" {
		brief += " (" + entry.Clip(said, 120) + ")"
	}
	return brief
}

// words are the code of each kind, its message (about an endpoint and a model), and what to do.
var words = map[Kind]struct {
	code    fault.Code
	message string
	next    string
}{
	BadKey:       {fault.Precondition, "%[1]s does not accept the key", "set a valid key for this provider; the commands are: arbe model list, arbe secret set"},
	UnknownModel: {fault.Precondition, "%[1]s has no model %[2]q for this key", "choose another model; the commands are: arbe model list, arbe bot edit"},
	RateLimit:    {fault.Exhausted, "%[1]s limits the rate of requests", "wait, and try again"},
	Overload:     {fault.Unavailable, "%[1]s is overloaded or has a failure", "try again in a minute, or choose another model"},
	NoMoney:      {fault.Exhausted, "the account at %[1]s has no money or quota left", "top it up at the provider, or use another key"},
	Overflow:     {fault.Exhausted, "the conversation is longer than %[2]q can read", "shorten it, or choose a model with a larger context"},
	Refusal:      {fault.Precondition, "%[2]q refuses to answer", "say it in another way, or choose another model"},
	BadRequest:   {fault.Precondition, "%[1]s does not accept the request", "choose another model, or report this"},
	Unreachable:  {fault.Unavailable, "%[1]s cannot be reached", "check the network and the base URL, and try again"},
	Cut:          {fault.Unavailable, "the connection to %[1]s was lost within the answer", "try again"},
	Idle:         {fault.DeadlineExceeded, "%[1]s was silent for too long", "try again, or choose another model"},
	Slow:         {fault.DeadlineExceeded, "%[2]q at %[1]s writes too slowly", "choose a faster model, or ask for less"},
	Unreadable:   {fault.Unavailable, "what %[1]s sent is no answer of a model", "check the base URL and that the server speaks the API of its provider"},
	Unknown:      {fault.Unavailable, "the call of %[2]q at %[1]s failed", "try again, or choose another model"},
}

// newError returns an error with the words of its kind.
func newError(k Kind, e Endpoint, model string, said string, cause error) *Error {
	w := words[k]
	message := fmt.Sprintf(w.message, e.Name, entry.Clip(model, 100))
	said = shown(said, e.Key)
	if said != "" {
		message += ": " + said
	}
	made := &Error{Kind: k, Said: said, fault: fault.New(w.code, message, w.next)}
	if cause == nil && said != "" {
		cause = errors.New(said)
	}
	if cause != nil {
		made.fault = made.fault.Because(cause)
	}
	return made
}

// shown prepares a provider's text to be shown.
func shown(text, key string) string {
	return entry.OneLine(strings.ToValidUTF8(secret.NewRedactor([]byte(key)).String(text), "\uFFFD"), 300)
}

// failure returns why a call failed. The provider's own message takes precedence over err, which says less.
func (w *wire) failure(ctx context.Context, model string, err error) *Error {
	bad, isBad := errors.AsType[*boundsError](err)
	switch cause := context.Cause(ctx); {
	case isBad:
		return w.failed(Unreadable, model, bad.Error())
	case errors.Is(cause, errIdle):
		return w.failed(Idle, model, "")
	case errors.Is(cause, errSlow) && w.size() == 0: // it only sends keep-alives
		return w.failed(Idle, model, "")
	case errors.Is(cause, errSlow):
		return w.failed(Slow, model, "")
	case w.status >= 400:
		return w.failedStatus(model)
	case !w.said.empty(): // an error within the answer, or instead of it
		return w.failed(classify(0, w.said), model, w.said.Message)
	}
	return w.failedConnection(model, err)
}

func (w *wire) failed(k Kind, model, said string) *Error {
	failed := newError(k, w.endpoint, model, said, nil)
	failed.Status, failed.RetryAfter = w.status, w.retryAfter
	return failed
}

// lost returns the error of an endpoint that cannot be reached. A permanent one lasts until somebody changes something.
func (w *wire) lost(model, said string, permanent bool) *Error {
	failed := w.failed(Unreachable, model, said)
	failed.permanent = permanent
	return failed
}

// failedStatus returns the error of a status that means one.
func (w *wire) failedStatus(model string) *Error {
	said := w.said
	if said.empty() {
		if w.status == http.StatusNotFound {
			return w.lost(model, "there is no "+string(w.endpoint.Dialect)+" at this address", true)
		}
		if said.Message = cmp.Or(w.page, http.StatusText(w.status)); w.page != "" && w.status == http.StatusForbidden {
			// Providers explain in their dialect what a key does not allow.
			return w.lost(model, said.Message, true)
		}
	}
	return w.failed(classify(w.status, said), model, said.Message)
}

// failedConnection returns the error of a call about which the provider said nothing.
func (w *wire) failedConnection(model string, err error) *Error {
	var refused *outbound.RefusedError
	var dns *net.DNSError
	var netErr net.Error
	switch {
	case errors.As(err, &refused):
		return w.lost(model, "its address is not public", true)
	case w.status/100 == 3:
		return w.lost(model, "it has moved to another address, to which the key is not sent", true)
	case w.status == 0 && errors.As(err, &dns):
		return w.lost(model, "its host name was not found", dns.IsNotFound)
	case w.status == 0:
		return w.lost(model, reason(err), !errors.As(err, &netErr) && !isEnd(err))
	case !w.data && !strings.HasPrefix(w.contentType, "text/event-stream"):
		return w.failed(Unreadable, model, "it sent "+w.contentType)
	case isEnd(err):
		return w.failed(Cut, model, "")
	}
	return w.failed(Unreadable, model, "")
}

// isEnd reports whether a connection ended too early.
func isEnd(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || strings.Contains(err.Error(), "connection reset")
}

// reason returns the innermost cause of a network error, without the address and the URL, which the reader already
// knows.
func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// classify returns the kind of a provider's error. status is 0 for an error within an answer.
func classify(status int, e wireError) Kind {
	code := strings.ToLower(e.code() + " " + e.Type + " " + e.Status)
	text := strings.ToLower(e.Message)
	if n, err := strconv.Atoi(e.code()); status == 0 && err == nil { // OpenRouter's and Google's
		status = n
	}
	switch {
	case overflows(status, code, text):
		return Overflow
	case status == http.StatusPaymentRequired, has(code, "insufficient_quota", "billing_error", "insufficient_credits", "billing_hard_limit"),
		has(text, "credit balance is too low", "insufficient credits", "insufficient balance", "requires more credits"):
		return NoMoney
	case has(code, "invalid_api_key", "authentication_error", "unauthenticated"), has(text, "api key not valid", "api key expired", "invalid api key", "no auth credentials"),
		status == http.StatusUnauthorized:
		return BadKey
	case has(code, "model_not_found", "not_found_error", "model_not_available"), has(text, "is not a valid model", "unknown model", "no such model", "no endpoints found"),
		has(text, "model") && has(text, "not found", "does not exist", "not exist", "is not supported for generatecontent"), status == http.StatusNotFound:
		return UnknownModel
	case has(code, "content_filter", "content_policy"), has(text, "content management policy", "flagged by moderation", "requires moderation"):
		return Refusal
	case status == http.StatusForbidden, has(code, "permission"):
		return BadKey
	case status == http.StatusTooManyRequests, has(code, "rate_limit"):
		return RateLimit
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict,
		has(code, "overloaded", "server_error", "internal_error", "api_error", "unavailable", "timeout"), has(text, "overloaded"):
		return Overload
	case status >= 400, has(code, "invalid_request", "invalid_prompt", "bad_request"):
		return BadRequest
	}
	return Unknown
}

// overflows reports whether an error says that the request is longer than the model can read.
func overflows(status int, code, text string) bool {
	return status == http.StatusRequestEntityTooLarge || has(code, "context_length_exceeded", "request_too_large", "exceed_context_size") ||
		has(text, "prompt is too long", "maximum context length", "context window", "context length", "exceeds the available context size", "input is too long", "input length") ||
		has(text, "input token count") && has(text, "exceed")
}

// has reports whether a text has one of some words.
func has(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}
