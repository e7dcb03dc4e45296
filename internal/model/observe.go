package model

import (
	"context"
	"errors"
	"time"
)

// observe reports a call that began at began and ended with err.
func (c *Client) observe(ctx context.Context, e Endpoint, began time.Time, used Usage, cost Money, err error) {
	if c.Observe == nil {
		return
	}
	call := Call{Provider: e.Provider, Outcome: "ok", Took: time.Since(began), Usage: used, Cost: cost}
	switch failed, isModel := errors.AsType[*Error](err); {
	case err == nil:
	case isModel && ctx.Err() == nil:
		call.Outcome = string(failed.Kind)
	default:
		call.Outcome = "stopped"
	}
	c.Observe(call)
}
