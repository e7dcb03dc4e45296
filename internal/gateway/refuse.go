package gateway

import (
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
