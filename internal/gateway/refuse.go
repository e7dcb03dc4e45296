package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

// refusal is an error with an HTTP status that does not follow from its code.
type refusal struct {
	status int
	error
}

func (r refusal) Unwrap() error { return r.error }

// statusOf returns the HTTP status with which an error is answered. Agents retry after 408, 409, 429 and 5xx, so those
// are for transient errors. A spent budget is a 402, after which all of them stop.
func statusOf(err error, f *fault.Error) int {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.status
	}
	if failed, ok := errors.AsType[*model.Error](err); ok {
		switch {
		case !failed.Passing():
			return http.StatusBadRequest
		case failed.Kind == model.Idle:
			return http.StatusGatewayTimeout
		}
		return http.StatusBadGateway
	}
	switch f.Code {
	case fault.Exhausted:
		return http.StatusPaymentRequired
	case fault.Precondition, fault.OutOfRange:
		return http.StatusBadRequest
	}
	return f.Code.HTTPStatus()
}

// refuse answers a request with an error, in the shape of its dialect.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, d model.Dialect, err error) {
	if ended := context.Cause(r.Context()); ended != nil && errors.Is(err, r.Context().Err()) {
		err = ended // the agent left, or its permission ended
	}
	f := fault.From(err)
	if f.Code == fault.Internal {
		g.Logger.ErrorContext(r.Context(), "a call through the gateway failed", "reference", f.Reference, "error", f.Detail())
	}
	status, message := statusOf(err, f), f.Message
	if f.Next != "" {
		message += "; " + f.Next
	}
	if f.Reference != "" {
		message += " (" + f.Reference + ")"
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	switch status {
	case http.StatusTooManyRequests:
		h.Set("Retry-After", "5")
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(model.Refuse(d, status, message)) // an agent that has left needs no answer
}
