// Package rpc is arbe's service layer: the Connect services of proto/arbe/v1, one file each.
//
// A method authorizes once ([auth.Auth.Authorize]), calls the domain and converts the result. Domain values and wire messages
// meet only here (convert.go). Every door, including the web app, goes through these services, except those that move raw
// bytes.
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

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/port"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// Services holds the parts that the service layer needs. All fields up to Logger are required.
type Services struct {
	DB         *db.DB
	Auth       *auth.Auth
	Houses     *house.Houses
	Bots       *bot.Bots
	Threads    *thread.Threads
	Log        *stream.Log
	Live       *live.Pictures
	Inboxes    *inbox.Inboxes
	Boxes      *sandbox.Resolver
	Ports      *port.Ports
	Dispatcher *dispatch.Dispatcher
	Artifacts  *artifact.Artifacts
	Secrets    *secret.Secrets
	Models     *model.Houses
	Logger     *slog.Logger
	// Agents are the coding agents that bots can be, in the order in which they are shown.
	Agents []harness.Info
	// Observe, unless nil, is called after each call with its procedure, its code ("ok" or its error's) and its duration.
	Observe func(spec connect.Spec, code string, took time.Duration)
	// Ready returns nil, or why the server is not ready for requests. If Ready is nil, the server is always ready.
	Ready func(context.Context) error
}

// compressedFrom is the size in bytes from which messages are compressed. Below it, compressing takes longer than it saves,
// and each compressor has about a megabyte of tables.
const compressedFrom = 1 << 10

// Handler returns a handler that serves all services to Connect, gRPC and gRPC-Web clients.
func Handler(s Services) http.Handler {
	calls := &interceptor{auth: s.Auth, logger: s.Logger, observe: s.Observe}
	options := connect.WithHandlerOptions(
		connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"}),
		connect.WithCompressMinBytes(compressedFrom),
		// Authenticate before reading the body, so that strangers cannot make the server decode messages.
		connect.WithRequestGate(calls.authenticate),
		// calls is the outermost one, so that it also converts the errors of validation.
		connect.WithInterceptors(calls, validate.NewInterceptor()),
		connect.WithConditionalHandlerOptions(func(s connect.Spec) []connect.HandlerOption {
			if s.StreamType == connect.StreamTypeServer {
				return []connect.HandlerOption{connect.WithReadMaxBytes(MaxStreamRequest)}
			}
			if s.Procedure == arbev1connect.ThreadServiceReadOutputProcedure {
				// Output may be large and of any kind. Compressing it would take longer than sending it.
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

// StreamsAnswer reports whether the procedure at an HTTP path streams its answer. It is false for an unknown path.
func StreamsAnswer(path string) bool {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	method, ok := found.(protoreflect.MethodDescriptor)
	return err == nil && ok && method.IsStreamingServer()
}

// mounted returns the handlers of all services by their path prefixes.
func (s Services) mounted(options connect.HandlerOption) map[string]http.Handler {
	all := map[string]http.Handler{}
	mount := func(path string, service http.Handler) { all[path] = service }
	mount(arbev1connect.NewHouseServiceHandler(&houseService{s}, options))
	mount(arbev1connect.NewAgentServiceHandler(&agentService{s}, options))
	mount(arbev1connect.NewBotServiceHandler(&botService{s}, options))
	mount(arbev1connect.NewApprovalServiceHandler(&approvalService{s}, options))
	mount(arbev1connect.NewInboxServiceHandler(&inboxService{s}, options))
	mount(arbev1connect.NewCredentialServiceHandler(&credentialService{s}, options))
	mount(arbev1connect.NewThreadServiceHandler(&threadService{s}, options))
	mount(arbev1connect.NewEntryServiceHandler(&entryService{s}, options))
	mount(arbev1connect.NewRunServiceHandler(&runService{s}, options))
	mount(arbev1connect.NewEnvironmentServiceHandler(&environmentService{s}, options))
	mount(arbev1connect.NewSandboxServiceHandler(&sandboxService{s}, options))
	mount(arbev1connect.NewArtifactServiceHandler(&artifactService{s}, options))
	mount(arbev1connect.NewSecretServiceHandler(&secretService{s}, options))
	mount(arbev1connect.NewModelServiceHandler(&modelService{s}, options))
	maps.Copy(all, s.discovery(serviceNames(all)))
	return all
}

// Paths returns the path prefixes of the services, for a mux that also serves other doors.
func Paths() []string {
	return slices.Sorted(maps.Keys(Services{}.mounted(connect.WithHandlerOptions())))
}
