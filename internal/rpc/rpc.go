// Package rpc is arbe's service layer: the Connect services of proto/arbe/v1, one file each.
//
// A method asks once whether the caller may ([auth.Auth.Authorize]), calls the domain, and converts: this is
// the only place where domain values and wire messages meet (convert.go). Every door that is not raw
// bytes, the web app included, goes through it.
package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/validate"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// Services are what the service layer works with. All fields up to Logger are required.
type Services struct {
	Auth         *auth.Auth
	Houses       *house.Houses
	Threads      *thread.Threads
	Log          *stream.Log
	Live         *live.Pictures
	Environments *sandbox.Environments
	Sandboxes    *sandbox.Sandboxes
	Dispatcher   *dispatch.Dispatcher
	Artifacts    *artifact.Artifacts
	Logger       *slog.Logger
	// Observe is called after each call with its procedure, its code ("ok" or an error's) and how long it took. Defaults to
	// nil, nobody.
	Observe func(spec connect.Spec, code string, took time.Duration)
	// Ready is why the server is not ready for requests, or nil. Defaults to nil: it always is.
	Ready func(context.Context) error
}

// Handler serves all services, also to gRPC and gRPC-Web clients.
func Handler(s Services) http.Handler {
	edge := &interceptor{auth: s.Auth, logger: s.Logger, observe: s.Observe}
	options := connect.WithHandlerOptions(
		connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"}),
		// Who asks is known before anything of what they ask is read.
		connect.WithRequestGate(edge.authenticate),
		// In this order: faults outermost, so that what the others say becomes a fault's code too.
		connect.WithInterceptors(edge, validate.NewInterceptor()),
		connect.WithConditionalHandlerOptions(func(s connect.Spec) []connect.HandlerOption {
			if s.StreamType == connect.StreamTypeServer {
				return []connect.HandlerOption{connect.WithReadMaxBytes(MaxStreamRequest)}
			}
			if s.Procedure == arbev1connect.ThreadServiceReadOutputProcedure {
				// Output may be large and of any kind, and to compress it would take most of the time it takes to send it.
				return []connect.HandlerOption{connect.WithReadMaxBytes(MaxRequest), connect.WithCompressMinBytes(math.MaxInt)}
			}
			return []connect.HandlerOption{connect.WithReadMaxBytes(MaxRequest)}
		}),
		connect.WithRecover(func(_ context.Context, _ connect.Spec, _ http.Header, cause any) error {
			return fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}),
	)
	mux := http.NewServeMux()
	for path, service := range s.mounted(options) {
		mux.Handle(path, service)
	}
	return defaultNext(mux)
}

// StreamsAnswer reports whether the call at a path streams its answer.
func StreamsAnswer(path string) bool {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	method, ok := found.(protoreflect.MethodDescriptor)
	return err == nil && ok && method.IsStreamingServer()
}

// mounted are all services, by the path prefix that each is under.
func (s Services) mounted(options connect.HandlerOption) map[string]http.Handler {
	all := map[string]http.Handler{}
	mount := func(path string, service http.Handler) { all[path] = service }
	mount(arbev1connect.NewHouseServiceHandler(&houseService{s}, options))
	mount(arbev1connect.NewAgentServiceHandler(&agentService{s}, options))
	mount(arbev1connect.NewCredentialServiceHandler(&credentialService{s}, options))
	mount(arbev1connect.NewThreadServiceHandler(&threadService{s}, options))
	mount(arbev1connect.NewEntryServiceHandler(&entryService{s}, options))
	mount(arbev1connect.NewEnvironmentServiceHandler(&environmentService{s}, options))
	mount(arbev1connect.NewSandboxServiceHandler(&sandboxService{s}, options))
	mount(arbev1connect.NewArtifactServiceHandler(&artifactService{s}, options))
	maps.Copy(all, s.discovery(serviceNames(all)))
	return all
}

// Paths are the path prefixes of the services, for a mux that serves other doors too.
func Paths() []string {
	return slices.Sorted(maps.Keys(Services{}.mounted(connect.WithHandlerOptions())))
}
