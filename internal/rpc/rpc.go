// Package rpc is arbe's service layer: the Connect services of proto/arbe/v1, one file each.
//
// A method asks once whether the caller may ([auth.Auth.May]), calls the domain, and converts: this is
// the only place where domain values and wire messages meet (convert.go). Every door that is not raw
// bytes, the web app included, goes through it.
package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/validate"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

const (
	// maxRequest bounds a request message, in bytes: the largest payload of an entry and its envelope.
	maxRequest = 5 << 20
	// maxDuration bounds a call that does not stream.
	maxDuration = 30 * time.Second
)

// The metadata of an error, beside its code and message.
const (
	// NextHeader carries what the caller can do about it.
	NextHeader = "Arbe-Next"
	// ReferenceHeader carries what the operator finds it by in the log.
	ReferenceHeader = "Arbe-Reference"
)

// SessionCookie is the cookie that carries a browser's session.
const SessionCookie = "arbe_session"

// Services are what the service layer works with. All fields are required.
type Services struct {
	Auth       *auth.Auth
	Houses     *house.Houses
	Threads    *thread.Threads
	Log        *stream.Log
	Boxes      *sandbox.Resolver
	Dispatcher *dispatch.Dispatcher
	Logger     *slog.Logger
}

// Handler serves all services, also to gRPC and gRPC-Web clients.
func Handler(s Services) http.Handler {
	edge := &edge{auth: s.Auth, logger: s.Logger}
	options := connect.WithHandlerOptions(
		// In this order: faults outermost, so that what the others say becomes a fault's code too.
		connect.WithInterceptors(edge, validate.NewInterceptor()),
		connect.WithReadMaxBytes(maxRequest),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, cause any) error {
			s.Logger.Error("a call panicked", "procedure", spec.Procedure, "panic", cause)
			return toWire(fault.From(errors.New("panic")))
		}),
	)
	mux := http.NewServeMux()
	mux.Handle(arbev1connect.NewHouseServiceHandler(&houseService{s}, options))
	mux.Handle(arbev1connect.NewAgentServiceHandler(&agentService{s}, options))
	mux.Handle(arbev1connect.NewThreadServiceHandler(&threadService{s}, options))
	mux.Handle(arbev1connect.NewEntryServiceHandler(&entryService{s}, options))
	mux.Handle(arbev1connect.NewEnvironmentServiceHandler(&environmentService{s}, options))
	mux.Handle(arbev1connect.NewSandboxServiceHandler(&sandboxService{s}, options))
	return mux
}

// Paths are the path prefixes of the services, for a mux that serves other doors too.
func Paths() []string {
	var paths []string
	for _, name := range []string{
		arbev1connect.HouseServiceName, arbev1connect.AgentServiceName, arbev1connect.ThreadServiceName,
		arbev1connect.EntryServiceName, arbev1connect.EnvironmentServiceName, arbev1connect.SandboxServiceName,
	} {
		paths = append(paths, "/"+name+"/")
	}
	return paths
}

// edge is what happens around every call: who asks, how long it may take, and how an error leaves.
type edge struct {
	auth   *auth.Auth
	logger *slog.Logger
}

// open are the procedures that need no credential.
var open = map[string]bool{arbev1connect.AgentServiceRedeemLoginLinkProcedure: true}

// WrapUnary wraps a call.
func (e *edge) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, maxDuration)
		defer cancel()
		ctx, err := e.authenticate(ctx, req.Spec(), req.Header())
		if err != nil {
			return nil, e.leave(err, req.Spec())
		}
		res, err := next(ctx, req)
		if err != nil {
			return nil, e.leave(err, req.Spec())
		}
		return res, nil
	}
}

// WrapStreamingHandler wraps a stream, which may last as long as it likes.
func (e *edge) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, err := e.authenticate(ctx, conn.Spec(), conn.RequestHeader())
		if err == nil {
			err = next(ctx, conn)
		}
		if err != nil {
			return e.leave(err, conn.Spec())
		}
		return nil
	}
}

// WrapStreamingClient is for clients, which this is not.
func (e *edge) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// authenticate puts the caller into the context.
func (e *edge) authenticate(ctx context.Context, spec connect.Spec, header http.Header) (context.Context, error) {
	if open[spec.Procedure] {
		return ctx, nil
	}
	token := credential(header)
	if token == "" {
		_, err := auth.Who(ctx)
		return ctx, err
	}
	p, err := e.auth.Authenticate(ctx, token)
	if err != nil {
		return ctx, err
	}
	return p.With(ctx), nil
}

// credential is the token of a request: a bearer token, or else the browser's session cookie.
func credential(header http.Header) string {
	if scheme, token, ok := strings.Cut(header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	r := http.Request{Header: header}
	if c, err := r.Cookie(SessionCookie); err == nil {
		return c.Value
	}
	return ""
}

// leave makes an error what the caller may see, and logs what they may not.
func (e *edge) leave(err error, spec connect.Spec) error {
	if coded, ok := errors.AsType[*connect.Error](err); ok {
		// Said by connect or protovalidate, about the request: the message is for the caller.
		if coded.Meta().Get(NextHeader) == "" {
			coded.Meta().Set(NextHeader, "correct the request; the contract is in proto/arbe/v1")
		}
		return coded
	}
	f := fault.From(err)
	if f.Code == fault.Internal {
		e.logger.Error("a call failed", "procedure", spec.Procedure, "reference", f.Reference, "error", f.Detail())
	}
	return toWire(f)
}

// toWire is a fault as Connect sends it.
func toWire(f *fault.Error) *connect.Error {
	code := connect.CodeInternal
	if err := code.UnmarshalText([]byte(f.Code)); err != nil {
		code = connect.CodeInternal
	}
	err := connect.NewError(code, errors.New(f.Message))
	// Headers are one line of ASCII; what people wrote into a message's next step is neither for sure.
	err.Meta().Set(NextHeader, headerText(f.Next))
	if f.Reference != "" {
		err.Meta().Set(ReferenceHeader, f.Reference)
	}
	return err
}

// headerText keeps what a header may carry.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
}
