package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// services is everything that the web app can reach. So a program can do whatever a person can do here.
type services struct {
	houses        arbev1connect.HouseServiceClient
	agents        arbev1connect.AgentServiceClient
	threads       arbev1connect.ThreadServiceClient
	entries       arbev1connect.EntryServiceClient
	environments  arbev1connect.EnvironmentServiceClient
	sandboxes     arbev1connect.SandboxServiceClient
	artifacts     arbev1connect.ArtifactServiceClient
	credentials   arbev1connect.CredentialServiceClient
	secrets       arbev1connect.SecretServiceClient
	models        arbev1connect.ModelServiceClient
	bots          arbev1connect.BotServiceClient
	approvals     arbev1connect.ApprovalServiceClient
	inboxes       arbev1connect.InboxServiceClient
	runs          arbev1connect.RunServiceClient
	notifications arbev1connect.NotificationServiceClient
	// client and base fetch the bytes of artifacts, which no service carries.
	client connect.HTTPClient
	base   string
}

func dial(client connect.HTTPClient, base string) services {
	as := connect.WithClientOptions(connect.WithInterceptors(asCaller{}),
		connect.WithAcceptCompression("gzip", nil, nil)) // compression only costs time within one process
	return services{
		houses:        arbev1connect.NewHouseServiceClient(client, base, as),
		agents:        arbev1connect.NewAgentServiceClient(client, base, as),
		threads:       arbev1connect.NewThreadServiceClient(client, base, as),
		entries:       arbev1connect.NewEntryServiceClient(client, base, as),
		environments:  arbev1connect.NewEnvironmentServiceClient(client, base, as),
		sandboxes:     arbev1connect.NewSandboxServiceClient(client, base, as),
		artifacts:     arbev1connect.NewArtifactServiceClient(client, base, as),
		credentials:   arbev1connect.NewCredentialServiceClient(client, base, as),
		secrets:       arbev1connect.NewSecretServiceClient(client, base, as),
		models:        arbev1connect.NewModelServiceClient(client, base, as),
		bots:          arbev1connect.NewBotServiceClient(client, base, as),
		approvals:     arbev1connect.NewApprovalServiceClient(client, base, as),
		inboxes:       arbev1connect.NewInboxServiceClient(client, base, as),
		runs:          arbev1connect.NewRunServiceClient(client, base, as),
		notifications: arbev1connect.NewNotificationServiceClient(client, base, as),
		client:        client, base: base,
	}
}

// bytesOf returns up to most bytes from the beginning of an artifact, on behalf of the reader.
func (s services) bytesOf(ctx context.Context, artifact string, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+artifactPath(artifact), nil)
	if err != nil {
		return nil, err
	}
	asCaller{}.show(ctx, req.Header)
	req.Header.Set("Range", "bytes=0-"+decimal(most-1))
	res, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusPartialContent {
		return nil, fault.Newf(fault.Unavailable, "try again in a moment", "the bytes of the artifact cannot be read: the server answers %d", res.StatusCode)
	}
	return io.ReadAll(io.LimitReader(res.Body, most))
}

type sessionKey struct{}
type agentKey struct{}

// withSession makes every call under ctx act for a session.
func withSession(ctx context.Context, session string) context.Context {
	return context.WithValue(ctx, sessionKey{}, session)
}

// withAgent makes every call under ctx name the browser that a reader uses.
func withAgent(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, agentKey{}, r.UserAgent())
}

// asCaller adds to every call the browser's session and name, and a header that says that a page makes the call.
type asCaller struct{}

func (asCaller) show(ctx context.Context, h http.Header) {
	h.Set(arbev1.PagesHeader, "1")
	if session, _ := ctx.Value(sessionKey{}).(string); session != "" {
		// Use the cookie name that the services accept whether or not browsers use https.
		h.Set("Cookie", (&http.Cookie{Name: "__Host-" + sessionCookie, Value: session}).String())
	}
	if agent, _ := ctx.Value(agentKey{}).(string); agent != "" {
		h.Set("User-Agent", agent)
	}
}

// WrapUnary adds the session to a call.
func (i asCaller) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		i.show(ctx, req.Header())
		return next(ctx, req)
	}
}

// WrapStreamingClient adds the session to a stream.
func (i asCaller) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		i.show(ctx, conn.RequestHeader())
		return conn
	}
}

// WrapStreamingHandler changes nothing, because the interceptor is for clients.
func (asCaller) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// tooLarge returns the error for a message above a limit in bytes. Its HTTP status is 413 ([httpStatus]).
func tooLarge(limit int64) *fault.Error {
	return fault.Newf(fault.Exhausted, "shorten it, or put it into a file", "this is larger than %d MiB", (limit+1<<20-1)>>20).WithReason(fault.TooLarge).Because(errTooLarge)
}

var errTooLarge = errors.New("too large")

// httpStatus returns the HTTP status of an error page.
func httpStatus(f *fault.Error) int {
	if errors.Is(f, errTooLarge) {
		return http.StatusRequestEntityTooLarge
	}
	return f.Code.HTTPStatus()
}

// elsewhere matches things that a page does not have: commands and flags of the command line, procedures of the API, and
// parameters of commands.
var elsewhere = lazyregexp.New(`\barbe [a-z]|\b(Create|Get|List|Update|Delete|Renew|Revoke|Remove)[A-Z]|with the command|(^|\s)--[a-z]`)

// advice adapts a fault's next step for a page. The services write their steps for all clients. So advice leaves out the
// parts that a reader of a page cannot follow, and gives its own step if nothing is left.
func advice(code fault.Code, message, next string) string {
	steps := strings.Split(next, "; ")
	if steps = slices.DeleteFunc(steps, elsewhere.MatchString); len(steps) > 0 {
		return strings.Join(steps, "; ")
	}
	switch {
	case code == fault.Unauthenticated:
		return "log in with a new link"
	case strings.Contains(message, "bot"):
		return "choose a bot under Members and settings"
	case strings.Contains(message, "environment"):
		return "choose or change an environment under Members and settings"
	case code == fault.NotFound:
		return "it may have been deleted; go back and choose another one"
	}
	return ""
}

// faultOf converts any error of a handler to what a person may see of it. It keeps the message of a service, and gives a
// general message if a service could not be reached.
func faultOf(err error) *fault.Error {
	if over, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(over.Limit)
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
		return unanswered(err)
	case said.Code() == connect.CodeUnknown || said.Code() == connect.CodeDataLoss:
		return fault.From(err)
	}
	info := arbev1.ErrorInfoOf(err)
	e := fault.New(code, said.Message(), advice(code, said.Message(), info.Next)).WithReason(fault.Reason(info.Reason)).Because(err)
	e.Reference = info.Reference
	return e
}

// unanswered is the fault of a request that the services have not answered.
func unanswered(err error) *fault.Error {
	return fault.New(fault.Unavailable, "arbe does not answer right now", "try again in a moment").Because(err)
}

const (
	sessionCookie = arbev1.SessionCookie
	themeCookie   = "arbe_theme"
	// startedCookie is the cookie that remembers the houses whose checklist is done or dismissed.
	startedCookie = "arbe_started"
	// detailsCookie is the cookie that remembers whether the column of details is folded. The script writes it, and takes its
	// name from the button that folds the column.
	detailsCookie = "arbe_details"
	// loginCookie is the cookie that ties a login with the provider to the browser that began it.
	loginCookie = "arbe_login"
	// wantedCookie is the cookie that remembers the page that a reader opened before they logged in.
	wantedCookie = "arbe_wanted"
	// wantedFor is how long it is remembered: as long as a login link is valid.
	wantedFor = 15 * time.Minute
)
