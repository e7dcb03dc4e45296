package model_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbe-dev/arbe/internal/model"
)

// transport replaces the network.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// A provider bills the input of a request that it has, although the caller leaves before the answer begins or tires of
// its silence. It bills nothing else that fails.
func TestTheBillOfACallWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	const id = "claude-sonnet-4-6"
	price := model.Lookup(model.Anthropic, id).Price
	for name, c := range map[string]struct {
		sent bool
		// lost is how the transport fails. Without it, the provider is silent.
		lost error
		// stays is how long the caller waits.
		stays time.Duration
		kind  model.Kind // empty if the error is the context's
		bills bool
	}{
		"the caller leaves":                        {sent: true, stays: time.Second, bills: true},
		"the caller leaves before it is sent":      {stays: time.Second},
		"the provider is silent":                   {sent: true, stays: time.Hour, kind: model.Idle, bills: true},
		"there is silence before it is sent":       {stays: time.Hour, kind: model.Idle},
		"the connection is lost":                   {sent: true, lost: io.EOF, stays: time.Hour, kind: model.Unreachable},
		"the connection is lost before it is sent": {lost: io.EOF, stays: time.Hour, kind: model.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.stays)
				defer cancel()
				observed := model.Call{}
				client := (&model.Client{HeaderTimeout: time.Minute, Observe: func(call model.Call) { observed = call }}).Over(transport(func(r *http.Request) (*http.Response, error) {
					wrote := httptrace.WroteRequestInfo{}
					if !c.sent {
						wrote.Err = io.ErrClosedPipe
					}
					httptrace.ContextClientTrace(r.Context()).WroteRequest(wrote)
					if c.lost != nil {
						return nil, c.lost
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				}))
				_, err := client.Forward(ctx, model.Endpoint{Provider: model.Anthropic, Key: key, Dialect: model.Messages}, model.Forward{Model: id, Path: "/v1/messages", Header: http.Header{}, Body: make([]byte, 4000)})
				failed, isModel := errors.AsType[*model.Error](err)
				if isModel != (c.kind != "") || isModel && failed.Kind != c.kind || !isModel && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the error is %v", err)
				}
				want := model.Bill{CostKnown: true}
				if c.bills {
					want.Usage, want.Estimated = model.Usage{Input: 1000}, true
					want.Cost = price.Of(want.Usage)
				}
				if bill := model.BillOf(err); bill != want || observed.Usage != want.Usage || observed.Cost != want.Cost {
					t.Errorf("the bill is %+v, and observed %+v, want %+v", bill, observed, want)
				}
			})
		})
	}
}
