// Package arbe is the client of an arbe server for programs. It offers the typed services of the contract
// with a credential, and a tail that continues when connections break and servers restart.
//
//	c := arbe.New("http://127.0.0.1:8420", token)
//	created, err := c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: house})
//	…
//	for event, err := range c.Tail(ctx, created.GetThread().GetId(), 0) { … }
//
// The messages and services are generated into the packages below this one (v1 and v1/arbev1connect), and
// their list into services.go. The client (client.go), the tail (tail.go), the functions that read errors
// (next.go) and the other files are written by hand. The package imports no part of arbe but the contract.
//
// The rule to remember: every write takes an id of the caller's choice, and repeating it with the same id
// changes nothing. A program that retries must choose the id itself; otherwise a retry would write twice.
package arbe

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"connectrpc.com/connect"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Client calls one server with one credential. It is safe for concurrent use.
//
// The errors of all calls are [*connect.Error]s; [Next] returns what to do about them.
type Client struct {
	Services

	// These send and read the bytes of artifacts by plain HTTP, which can stream them.
	http   connect.HTTPClient
	url    string
	bearer bearer
}

// Option changes how [New] makes a client.
type Option interface{ apply(*settings) }

type settings struct{ http connect.HTTPClient }

type httpClientOption struct{ client connect.HTTPClient }

func (o httpClientOption) apply(s *settings) { s.http = o.client }

// WithHTTPClient makes the client send its requests through another HTTP client, for a proxy or a
// private certificate. It must not limit how long a response may take, because a tail never ends.
// Defaults to [http.DefaultClient].
func WithHTTPClient(client connect.HTTPClient) Option { return httpClientOption{client} }

// New returns a client of the server at baseURL ("http://127.0.0.1:8420"). The token is an API key, a
// session or a thread's token; every call sends it as "Authorization: Bearer …". With an empty token, calls
// have no credential. New makes no connection.
func New(baseURL, token string, opts ...Option) *Client {
	s := settings{http: http.DefaultClient}
	for _, o := range opts {
		o.apply(&s)
	}
	url := strings.TrimRight(baseURL, "/")
	with := connect.WithInterceptors(bearer(token))
	return &Client{
		Services: Dial(s.http, url, with),

		http: s.http, url: url, bearer: bearer(token),
	}
}

// module is this module's path, and program that of the command line, which is in the server's module.
const (
	module  = "github.com/arbe-dev/arbe/proto"
	program = "github.com/arbe-dev/arbe/cmd/arbe"
)

// userAgent names this client and its version to servers: "arbe-go/v1.2.3 connect-go/1.21.1 (go1.26)". The command line has its
// own name.
var userAgent = sync.OnceValue(func() string {
	client, version := "arbe-go", "devel"
	if build, ok := debug.ReadBuildInfo(); ok {
		from := module
		if strings.HasPrefix(build.Path, program) {
			client, from = arbev1.CLIAgent, build.Main.Path
		}
		for _, m := range append(build.Deps, &build.Main) {
			if m.Path == from && m.Replace == nil && m.Version != "" && m.Version != "(devel)" {
				version = m.Version
			}
		}
	}
	return fmt.Sprintf("%s/%s connect-go/%s (%s)", client, version, connect.Version, runtime.Version())
})

// bearer is the interceptor that adds a token to every call. It is a type instead of a unary interceptor function,
// because such a function is not called for streams.
type bearer string

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		b.show(req.Header())
		return next(ctx, req)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		b.show(conn.RequestHeader())
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (b bearer) show(h http.Header) {
	h.Set("User-Agent", userAgent())
	if b != "" {
		h.Set("Authorization", "Bearer "+string(b))
	}
}
