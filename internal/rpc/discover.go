package rpc

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/arbe-dev/arbe/internal/fault"
)

// discovery returns the handlers of gRPC's reflection and health checks by their path prefixes. They need no credential,
// because the contract is public, and anyone may know whether a server is ready.
func (s Services) discovery(names []string) map[string]http.Handler {
	options := connect.WithHandlerOptions(connect.WithReadMaxBytes(MaxStreamRequest), connect.WithInterceptors(&interceptor{logger: s.Logger}))
	all := map[string]http.Handler{}
	mount := func(path string, service http.Handler) { all[path] = service }
	reflector := grpcreflect.NewStaticReflector(names...)
	mount(grpcreflect.NewHandlerV1(reflector, options))
	mount(grpcreflect.NewHandlerV1Alpha(reflector, options))
	mount(grpchealth.NewHandler(readiness{names, s.Ready}, options))
	return all
}

// readiness answers gRPC's health checks.
type readiness struct {
	services []string
	ready    func(context.Context) error
}

// Check reports whether a service is ready. All services are ready together; the empty name stands for all of them.
func (r readiness) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if req.Service != "" && !slices.Contains(r.services, req.Service) {
		return nil, WireError(ctx, fault.New(fault.NotFound, "there is no such service", "ask for one that reflection lists, or for none"))
	}
	status := grpchealth.StatusServing
	if r.ready != nil && r.ready(ctx) != nil {
		status = grpchealth.StatusNotServing
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}

// serviceNames returns the sorted names of services by their path prefixes.
func serviceNames(at map[string]http.Handler) []string {
	names := slices.Sorted(maps.Keys(at))
	for i, path := range names {
		names[i] = strings.Trim(path, "/")
	}
	return names
}
