// Package trace records what a server does for a request as one OpenTelemetry trace: the request, its transactions, the
// jobs that follow from it, their calls of models and their commands. It is the only package that knows OpenTelemetry.
//
// Only two kinds of spans begin by themselves, with a [Tracer]: requests and jobs. Everything else is a part of one of
// them and uses [Start], which takes the tracer from the context. So nothing is recorded without a tracer, and no
// package passes a tracer around. A job continues the trace of the request that queued it, on whichever server it runs,
// because its row has a [Parent].
//
// The rule to remember: ids, names of this program's own parts, codes and numbers go into spans. Secrets, and texts of
// people, bots or programs, do not. The span of a failure therefore has the code of its error, but not the text.
package trace

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/arbe-dev/arbe/internal/fault"
)

// scope names this program's part of a trace.
const scope = "github.com/arbe-dev/arbe"

// Header is the request header that carries a [Parent].
const Header = "traceparent"

// Parent names a span from which another one follows, in the form of W3C's header traceparent. It is "" for none.
type Parent string

// Attr is an attribute of a span.
type Attr = attribute.KeyValue

// String returns an attribute with a text.
func String(key, value string) Attr { return attribute.String(key, value) }

// Int returns an attribute with a number.
func Int[N ~int | ~int32 | ~int64](key string, value N) Attr {
	return attribute.Int64(key, int64(value))
}

// Tracer begins traces. A nil Tracer records nothing.
type Tracer struct {
	tracer oteltrace.Tracer
	stop   func(context.Context) error
}

// Continue begins a span that follows from parent, perhaps on another server. If parent is "" or cannot be read, the span
// begins a trace. The caller ends it.
func (t *Tracer) Continue(ctx context.Context, parent Parent, kind Kind, name string, attrs ...Attr) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx = oteltrace.ContextWithSpanContext(ctx, parent.context())
	return started(t.tracer.Start(ctx, name, oteltrace.WithSpanKind(oteltrace.SpanKind(kind)), oteltrace.WithAttributes(attrs...)))
}

// Answer begins the span of a request that came with a parent. A stranger's parent is only linked: otherwise strangers
// would decide whether the request is recorded, and in which trace.
func (t *Tracer) Answer(ctx context.Context, parent Parent, trusted bool, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	if trusted {
		return t.Continue(ctx, parent, Server, name)
	}
	options := []oteltrace.SpanStartOption{oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithNewRoot()}
	if from := parent.context(); from.IsValid() {
		options = append(options, oteltrace.WithLinks(oteltrace.Link{SpanContext: from}))
	}
	return started(t.tracer.Start(ctx, name, options...))
}

// Close sends the remaining spans, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.stop(ctx)
}

// Kind is a span's role in its trace.
type Kind oteltrace.SpanKind

// The kinds: a request that is answered, a job, a request that is sent, and work within the process.
const (
	Server   = Kind(oteltrace.SpanKindServer)
	Consumer = Kind(oteltrace.SpanKindConsumer)
	Client   = Kind(oteltrace.SpanKindClient)
	Internal = Kind(oteltrace.SpanKindInternal)
)

// Start begins a span within the span of ctx. Without one it does nothing. The caller ends the span.
func Start(ctx context.Context, kind Kind, name string, attrs ...Attr) (context.Context, Span) {
	in := oteltrace.SpanFromContext(ctx)
	if !in.SpanContext().IsValid() {
		return ctx, Span{}
	}
	return started(in.TracerProvider().Tracer(scope).Start(ctx, name, oteltrace.WithSpanKind(oteltrace.SpanKind(kind)), oteltrace.WithAttributes(attrs...)))
}

// Of returns the span of ctx, or the zero value.
func Of(ctx context.Context) Span {
	if in := oteltrace.SpanFromContext(ctx); in.SpanContext().IsValid() {
		return Span{in}
	}
	return Span{}
}

// Here returns the span of ctx as a parent of others.
func Here(ctx context.Context) Parent {
	if !oteltrace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return Parent(carrier.Get(Header))
}

// In returns a context with the values of ctx, and the span s if both belong to one trace or ctx has none.
func In(ctx context.Context, s Span) context.Context {
	if s.span == nil {
		return ctx
	}
	has := oteltrace.SpanContextFromContext(ctx)
	if has.IsValid() && has.TraceID() != s.span.SpanContext().TraceID() {
		return ctx
	}
	return oteltrace.ContextWithSpan(ctx, s.span)
}

// context parses a parent. If that fails, it returns the zero value, which is not valid.
func (p Parent) context() oteltrace.SpanContext {
	if p == "" {
		return oteltrace.SpanContext{}
	}
	carrier := propagation.MapCarrier{}
	carrier.Set(Header, string(p))
	return oteltrace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// Span is a part of a trace. The zero value does nothing.
type Span struct{ span oteltrace.Span }

func started(ctx context.Context, s oteltrace.Span) (context.Context, Span) { return ctx, Span{s} }

// Recording reports whether attributes of the span are kept.
func (s Span) Recording() bool { return s.span != nil && s.span.IsRecording() }

// Name replaces the name of the span.
func (s Span) Name(name string) {
	if s.Recording() {
		s.span.SetName(name)
	}
}

// Set adds attributes, or replaces those with the same keys.
func (s Span) Set(attrs ...Attr) {
	if s.Recording() {
		s.span.SetAttributes(attrs...)
	}
}

// Fail marks the span as failed. word is a short word of this program for the failure.
func (s Span) Fail(word string) {
	if s.Recording() {
		s.span.SetAttributes(attribute.String("error.type", cmp.Or(word, "_OTHER")))
		s.span.SetStatus(codes.Error, "")
	}
}

// End ends the span. If err is not nil, it marks the span as failed with the code of err.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		s.Fail("cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		s.Fail("timeout")
	default:
		s.Fail(string(fault.CodeOf(err)))
	}
	s.span.End()
}
