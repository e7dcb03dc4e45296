// Package rpc is arbe's service layer: the Connect services of proto/arbe/v1, one file each.
//
// A method asks once whether the caller may ([auth.Auth.May]), calls the domain, and converts: this is
// the only place where domain values and wire messages meet (convert.go). Every door that is not raw
// bytes, the web app included, goes through it.
package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"connectrpc.com/connect"
	"connectrpc.com/validate"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

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
		// Who asks is known before anything of what they ask is read.
		connect.WithRequestGate(edge.authenticate),
		// In this order: faults outermost, so that what the others say becomes a fault's code too.
		connect.WithInterceptors(edge, validate.NewInterceptor()),
		connect.WithReadMaxBytes(maxRequest),
		connect.WithRecover(func(_ context.Context, _ connect.Spec, _ http.Header, cause any) error {
			return fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}),
	)
	mux := http.NewServeMux()
	mux.Handle(arbev1connect.NewHouseServiceHandler(&houseService{s}, options))
	mux.Handle(arbev1connect.NewAgentServiceHandler(&agentService{s}, options))
	mux.Handle(arbev1connect.NewCredentialServiceHandler(&credentialService{s}, options))
	mux.Handle(arbev1connect.NewThreadServiceHandler(&threadService{s}, options))
	mux.Handle(arbev1connect.NewEntryServiceHandler(&entryService{s}, options))
	mux.Handle(arbev1connect.NewEnvironmentServiceHandler(&environmentService{s}, options))
	mux.Handle(arbev1connect.NewSandboxServiceHandler(&sandboxService{s}, options))
	return sayNext(mux)
}

// Paths are the path prefixes of the services, for a mux that serves other doors too.
func Paths() []string {
	var paths []string
	for _, name := range []string{
		arbev1connect.HouseServiceName, arbev1connect.AgentServiceName, arbev1connect.CredentialServiceName, arbev1connect.ThreadServiceName,
		arbev1connect.EntryServiceName, arbev1connect.EnvironmentServiceName, arbev1connect.SandboxServiceName,
	} {
		paths = append(paths, "/"+name+"/")
	}
	return paths
}
