package sprite

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	sprites "github.com/superfly/sprites-go"

	"github.com/arbe-dev/arbe/internal/fault"
)

// mostAnswer limits the size of an answer, because the SDK reads it into memory.
const mostAnswer = 16 << 20

// newTransport returns a transport that gives up on stalled connections. Callers limit how long an answer may take.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	return t
}

// throttled repeats requests that were refused with "too many requests", after the wait that the service asks for.
type throttled struct {
	http.RoundTripper
	limit time.Duration // for all waits of one request
}

// RoundTrip makes a request. If the wait would be too long, or waiting does not help, it returns the answer.
func (t *throttled) RoundTrip(request *http.Request) (*http.Response, error) {
	for left := t.limit; ; {
		response, err := t.RoundTripper.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		body := response.Body
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(body, mostAnswer), body}
		if response.StatusCode != http.StatusTooManyRequests {
			return response, nil
		}
		text, err := io.ReadAll(io.LimitReader(body, 64<<10))
		body.Close()
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(text))
		wait, passes := throttle(sprites.ParseAPIError(response, text))
		if !passes || wait > left || request.Body != nil && request.GetBody == nil {
			return response, nil
		}
		left -= wait
		if err := pause(request.Context(), wait); err != nil {
			return nil, err
		}
		if request.Body != nil {
			request = request.Clone(request.Context())
			if request.Body, err = request.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// throttle returns how long an answer asks to wait: at least a second, so that an answer without a time is not retried in a
// busy loop. passes is false if the organization has reached its number of boxes, because waiting does not change that.
func throttle(answer *sprites.APIError) (wait time.Duration, passes bool) {
	seconds := min(answer.GetRetryAfterSeconds(), 1e6)
	return max(time.Second, time.Duration(seconds)*time.Second), !answer.IsConcurrentLimitExceeded()
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// explain turns an error of the SDK into a fault. It never concludes that a box is gone; see [provider.find].
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fault.From(ctx.Err())
	}
	answer, ok := errors.AsType[*sprites.APIError](err)
	switch {
	case !ok:
		return unavailable(err)
	case answer.StatusCode == http.StatusUnauthorized:
		return fault.New(fault.Precondition, "Sprites refuses the token of the organization", "an owner of the house sets the house's own again with: arbe secret set SPRITES_TOKEN; if it has none, ask the operator to set sprite_token").Because(err)
	case answer.IsConcurrentLimitExceeded():
		return fault.New(fault.Exhausted, "the Sprites organization is at its limit", "delete sandboxes that are not needed, or raise the organization's limit").Because(err)
	case answer.StatusCode == http.StatusForbidden, answer.StatusCode == http.StatusPaymentRequired, answer.StatusCode == http.StatusUnprocessableEntity,
		answer.StatusCode == http.StatusBadRequest:
		return fault.New(fault.Precondition, "Sprites refuses that", "look into the organization at Sprites, or ask the operator whose it is").Because(errors.New(strconv.Itoa(answer.StatusCode) + ": " + answer.Error()))
	}
	return unavailable(err)
}

func unavailable(cause error) *fault.Error {
	return fault.New(fault.Unavailable, "Sprites does not answer as expected", "try again later").Because(cause)
}

// answerOf returns the error of an answer that does not report success.
func answerOf(response *http.Response) *sprites.APIError {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // a cut body only shortens the message
	if answer := sprites.ParseAPIError(response, text); answer != nil {
		return answer
	}
	return &sprites.APIError{StatusCode: response.StatusCode, Message: "the server did not accept the connection: " + response.Status}
}
