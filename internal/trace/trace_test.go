package trace

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/arbe-dev/arbe/internal/fault"
)

// recorded returns a tracer and what it has recorded.
func recorded() (*Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	return &Tracer{tracer: provider.Tracer(scope), stop: provider.Shutdown}, spans
}

func TestWithoutATracer(t *testing.T) {
	var none *Tracer
	ctx, span := none.Continue(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Consumer, "job")
	if ctx != t.Context() || span.Recording() || Here(ctx) != "" || none.Close(ctx) != nil {
		t.Error("a nil tracer records")
	}
	free := testing.AllocsPerRun(100, func() {
		_, span := Start(ctx, Client, "transaction")
		span.End(nil)
		_ = Here(ctx)
	})
	if free > 0 {
		t.Errorf("a span that nobody records costs %v allocations", free)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	t.Run("continue a trace from its parent", func(t *testing.T) {
		tracer, spans := recorded()
		ctx, request := tracer.Answer(t.Context(), "", false, "request")
		parent := Here(ctx)
		request.End(nil)
		ctx, job := tracer.Continue(context.Background(), parent, Consumer, "job")
		_, call := Start(ctx, Client, "model call")
		call.End(nil)
		job.End(nil)
		list := spans.Ended()
		for i, name := range []string{"request", "model call", "job"} {
			if list[i].Name() != name || list[i].SpanContext().TraceID() != list[0].SpanContext().TraceID() {
				t.Fatalf("span %d is %s", i, list[i].Name())
			}
		}
		if list[2].Parent().SpanID() != list[0].SpanContext().SpanID() || list[1].Parent().SpanID() != list[2].SpanContext().SpanID() {
			t.Error("the chain of parents is broken")
		}
	})
	t.Run("begin a trace if their parent cannot be read", func(t *testing.T) {
		tracer, spans := recorded()
		for _, parent := range []Parent{"", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
			_, span := tracer.Continue(t.Context(), parent, Consumer, "job")
			span.End(nil)
		}
		for _, s := range spans.Ended() {
			if s.Parent().IsValid() {
				t.Errorf("its parent is %v", s.Parent())
			}
		}
	})
	t.Run("of failures have the code of the error and not its text", func(t *testing.T) {
		tracer, spans := recorded()
		for err, word := range map[error]string{
			fault.New(fault.NotFound, "the text of somebody", "next"): "not_found", errors.New("the text of a program"): "internal",
			context.Canceled: "cancelled", context.DeadlineExceeded: "timeout",
		} {
			_, span := tracer.Continue(t.Context(), "", Consumer, "job")
			span.End(err)
			list := spans.Ended()
			s := list[len(list)-1]
			if want := attribute.String("error.type", word); len(s.Attributes()) != 1 || s.Attributes()[0] != want || s.Status() != (sdk.Status{Code: codes.Error}) || len(s.Events()) > 0 {
				t.Errorf("%v: it has %v, %v", err, s.Attributes(), s.Status())
			}
		}
	})
	t.Run("of a transaction are used only within its own trace", func(t *testing.T) {
		tracer, _ := recorded()
		_, one := tracer.Continue(context.Background(), "", Client, "transaction")
		other, _ := tracer.Continue(context.Background(), "", Client, "job")
		if In(other, one) != other || In(other, Span{}) != other {
			t.Error("the context is in the trace of another's transaction")
		}
		if got := In(context.Background(), one); Here(got) == "" {
			t.Error("the context is in no trace")
		}
	})
}

func TestWanted(t *testing.T) {
	t.Parallel()
	for want, list := range map[bool][]map[string]string{
		false: {
			{}, {"OTEL_TRACES_SAMPLER": "always_on"}, {endpoint: "http://c:4318", disabled: "true"}, {tracesEndpoint: "http://c:4318", exporter: "none"},
			{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318"},
		},
		true: {{endpoint: "http://c:4318"}, {tracesEndpoint: "http://c:4318/v1/traces"}, {endpoint: "http://c:4318", disabled: "false", exporter: "otlp"}},
	} {
		for _, env := range list {
			if got := Wanted(func(name string) string { return env[name] }); got != want {
				t.Errorf("with %v it is %t", env, got)
			}
		}
	}
}

func TestOpenRefusesAProtocolThatItDoesNotSpeak(t *testing.T) {
	t.Setenv(tracesEndpoint, "http://127.0.0.1:1")
	t.Setenv(protocol, "grpc")
	if _, err := Open(t.Context(), Config{Logger: slog.New(slog.DiscardHandler)}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("the error is %v", err)
	}
	t.Setenv(tracesProtocol, "http/protobuf")
	tracer, err := Open(t.Context(), Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil || tracer == nil {
		t.Fatalf("there is no tracer: %v", err)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
