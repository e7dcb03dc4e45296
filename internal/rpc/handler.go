package rpc

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"runtime/debug"
	"slices"

	"connectrpc.com/connect"
	"connectrpc.com/validate"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// compressedFrom is the size in bytes from which messages are compressed. For smaller messages, compression takes longer than
// it saves, and each compressor has about a megabyte of tables.
const compressedFrom = 1 << 10

// Handler returns a handler that serves all services to Connect, gRPC and gRPC-Web clients.
func Handler(s Services) http.Handler {
	calls := &interceptor{auth: s.Auth, logger: s.Logger, observe: s.Observe}
	options := connect.WithHandlerOptions(
		connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"}),
		connect.WithCompressMinBytes(compressedFrom),
		// Authenticate before reading the body, so that strangers cannot make the server decode messages.
		connect.WithRequestGate(calls.authenticate),
		// calls is the outermost interceptor, so that it also converts the errors of the others.
		connect.WithInterceptors(calls, connect.UnaryInterceptorFunc(s.readRequest), validate.NewInterceptor()),
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
	return defaultNext(onlyKnown(mux))
}

// StreamsAnswer reports whether the procedure at an HTTP path streams its answer. It is false for an unknown path.
func StreamsAnswer(path string) bool {
	method := methodAt(path)
	return method != nil && method.IsStreamingServer()
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
	mount(arbev1connect.NewNotificationServiceHandler(&notificationService{s}, options))
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
