package model

import (
	"context"
	"errors"
	"time"

	"github.com/arbe-dev/arbe/internal/trace"
)

// called returns the context of a call, with its span. [Client.observe] ends the span. Its attributes have the names of
// OpenTelemetry's conventions for models.
func called(ctx context.Context, e Endpoint, model string) context.Context {
	ctx, _ = trace.Start(ctx, trace.Client, "model call", trace.String("gen_ai.provider.name", string(e.Provider)), trace.String("gen_ai.request.model", model))
	return ctx
}

// ended reports whether this client ended the call, because the provider was silent or slow.
func ended(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, errIdle) || errors.Is(cause, errSlow)
}

// observe reports a call that began at began and ended with err, and ends its span. ctx is the one of [called].
func (c *Client) observe(ctx context.Context, e Endpoint, began time.Time, used Usage, cost Money, err error) {
	call := Call{Provider: e.Provider, Outcome: "ok", Took: time.Since(began), Usage: used, Cost: cost}
	switch failed, isModel := errors.AsType[*Error](err); {
	case err == nil:
	case isModel && (ctx.Err() == nil || ended(ctx)):
		call.Outcome = string(failed.Kind)
	default:
		call.Outcome = "stopped"
	}
	span := trace.Of(ctx)
	span.Set(trace.Int("gen_ai.usage.input_tokens", used.Input+used.CacheRead+used.CacheWrite), trace.Int("gen_ai.usage.output_tokens", used.Output))
	if err != nil {
		span.Fail(call.Outcome)
	}
	span.End(nil)
	if c.Observe != nil {
		c.Observe(call)
	}
}
