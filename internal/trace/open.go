package trace

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Config configures [Open].
type Config struct {
	// URL is the collector's address for spans over OTLP/HTTP, with its path. Defaults to the address in the standard
	// variables.
	URL string
	// Version is the version of this program.
	Version string
	// Installation and Server distinguish the servers of an operator.
	Installation, Server string
	Logger               *slog.Logger
}

// The standard variables that decide whether there is a tracer. OpenTelemetry's libraries read the others.
const (
	disabled       = "OTEL_SDK_DISABLED"
	exporter       = "OTEL_TRACES_EXPORTER"
	endpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// Wanted reports whether the standard variables of the environment name a collector for traces, and do not turn them off.
func Wanted(getenv func(string) string) bool {
	return cmp.Or(getenv(tracesEndpoint), getenv(endpoint)) != "" && !strings.EqualFold(getenv(disabled), "true") && getenv(exporter) != "none"
}

// Open returns a tracer that sends spans to a collector, in the background and in batches. Without a collector it returns
// nil. If the collector does not answer, the spans of that time are lost and the log says so; nothing is delayed. If the
// variables ask for a protocol that arbe does not speak, the error is a [fault.Invalid]. The caller closes the tracer.
func Open(ctx context.Context, c Config) (*Tracer, error) {
	var options []otlptracehttp.Option
	switch {
	case c.URL != "":
		options = append(options, otlptracehttp.WithEndpointURL(c.URL))
	case !Wanted(os.Getenv):
		return nil, nil
	}
	if p := cmp.Or(os.Getenv(tracesProtocol), os.Getenv(protocol), "http/protobuf"); c.URL == "" && p != "http/protobuf" {
		return nil, fault.Newf(fault.Invalid, "set it to http/protobuf and the endpoint to the collector's port for HTTP, which is 4318 by default",
			"%s is %q, and arbe sends traces only as http/protobuf", protocol, p)
	}
	client, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the variables OTEL_EXPORTER_OTLP_* cannot be used", "correct them").Because(err)
	}
	// The handler is the process's own, because the library has no other way to report a failure in the background.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Logger.Warn("cannot send traces; spans are lost", "error", err) }))
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "arbe"), attribute.String("service.version", c.Version),
		attribute.String("service.namespace", c.Installation), attribute.String("service.instance.id", c.Server),
	), resource.WithTelemetrySDK(), resource.WithFromEnv()) // the last one wins
	if err != nil {
		c.Logger.Warn("a part of OTEL_RESOURCE_ATTRIBUTES cannot be used", "error", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(client), sdk.WithResource(about))
	return &Tracer{tracer: provider.Tracer(scope), stop: provider.Shutdown}, nil
}
