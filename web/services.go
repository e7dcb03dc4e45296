package web

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// services is everything the web app can reach.
type services struct {
	houses       arbev1connect.HouseServiceClient
	agents       arbev1connect.AgentServiceClient
	threads      arbev1connect.ThreadServiceClient
	entries      arbev1connect.EntryServiceClient
	environments arbev1connect.EnvironmentServiceClient
	sandboxes    arbev1connect.SandboxServiceClient
}

func dial(client connect.HTTPClient, base string) services {
	as := connect.WithInterceptors(asCaller{})
	return services{
		houses:       arbev1connect.NewHouseServiceClient(client, base, as),
		agents:       arbev1connect.NewAgentServiceClient(client, base, as),
		threads:      arbev1connect.NewThreadServiceClient(client, base, as),
		entries:      arbev1connect.NewEntryServiceClient(client, base, as),
		environments: arbev1connect.NewEnvironmentServiceClient(client, base, as),
		sandboxes:    arbev1connect.NewSandboxServiceClient(client, base, as),
	}
}

type sessionKey struct{}

// withSession makes every call under ctx one in the name of that session.
func withSession(ctx context.Context, session string) context.Context {
	return context.WithValue(ctx, sessionKey{}, session)
}

// asCaller shows the browser's session to the services.
type asCaller struct{}

func (asCaller) show(ctx context.Context, h http.Header) {
	if session, _ := ctx.Value(sessionKey{}).(string); session != "" {
		h.Set("Cookie", (&http.Cookie{Name: sessionCookie, Value: session}).String())
	}
}

// WrapUnary shows it on a call.
func (i asCaller) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		i.show(ctx, req.Header())
		return next(ctx, req)
	}
}

// WrapStreamingClient shows it on a stream.
func (i asCaller) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		i.show(ctx, conn.RequestHeader())
		return conn
	}
}

// WrapStreamingHandler is for servers.
func (asCaller) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// faultOf reads any error of a handler as what a person may see of it. What a service said is shown as it
// was said; that a service could not be reached is said in our own words.
func faultOf(err error) *fault.Error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.Newf(fault.Exhausted, "shorten it, or put it into a file", "this is larger than %d MiB", tooLarge.Limit>>20).Because(err)
	}
	said, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return fault.From(err)
	}
	code := fault.Code(said.Code().String())
	switch {
	case code == fault.Canceled || code == fault.DeadlineExceeded:
		return fault.New(code, "the request did not finish in time", "try again").Because(err)
	case !connect.IsWireError(err):
		return fault.New(fault.Unavailable, "arbe does not answer right now", "try again in a moment").Because(err)
	case said.Code() == connect.CodeUnknown || said.Code() == connect.CodeDataLoss:
		return fault.From(err)
	}
	e := fault.New(code, said.Message(), said.Meta().Get("Arbe-Next")).Because(err)
	e.Reference = said.Meta().Get("Arbe-Reference")
	return e
}
