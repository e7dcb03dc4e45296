// Package gateway lets coding agents in sandboxes call models with the keys of their house, which never enter a
// sandbox. An agent uses the address of the gateway instead of its provider's, and the token of its run instead of a
// key.
//
// The gateway forwards requests and answers unchanged (pass.go). It parses a request only to find its model
// (head.go), and reads the usage from an answer while it forwards it. The cost of calls counts in the same limits as
// bots' turns, and is recorded for each run (account.go). Errors of the gateway have the shape of the agent's dialect,
// and a status at which agents stop if a retry is useless (refuse.go).
//
// The rule to remember: an agent may send anything, and so may a provider. Neither can make the gateway send a key to
// another address, request another path, or hold more memory than is accounted for.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/turn"
)

// Limits on what agents use at once.
const (
	// maxTime is how long a call may take.
	maxTime = time.Hour
	// threadCalls and houseCalls are how many calls a thread and a house may have in progress.
	threadCalls, houseCalls = 16, 128
)

// Pass is the permission of a request.
type Pass struct {
	House, Thread, Agent string
	// Run is the epoch of the run in that thread.
	Run int64
	// While returns a context that ends when the request would no longer be allowed, like [auth.Auth.While].
	While func(context.Context) (context.Context, context.CancelFunc)
}

// Authorize returns the run that a token belongs to, or refuses the token.
type Authorize func(ctx context.Context, token string) (Pass, error)

// Runs returns an Authorize that accepts the tokens of runs of coding agents.
func Runs(a *auth.Auth) Authorize {
	return func(ctx context.Context, token string) (Pass, error) {
		if token == "" {
			return Pass{}, fault.New(fault.Unauthenticated, "the request has no token", "use the token of the run as the key")
		}
		p, err := a.Authenticate(ctx, token)
		if err != nil {
			return Pass{}, err
		}
		if p.Thread == "" {
			return Pass{}, fault.New(fault.Forbidden, "only the runner of a coding agent may do this", "use the token of its run")
		}
		target := auth.Thread(p.Thread)
		scope, err := a.Authorize(p.With(ctx), auth.CallModel, target)
		return Pass{House: scope.House, Thread: p.Thread, Agent: p.Agent, Run: p.Run, While: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return a.While(p.With(ctx), auth.CallModel, target)
		}}, err
	}
}

// Config configures a [Gateway].
type Config struct {
	DB        *db.DB
	Authorize Authorize
	// Models says which models houses have, and Client calls them.
	Models *model.Houses
	Client *model.Client
	// Bot returns the bot of a run, with its limits.
	Bot func(ctx context.Context, scope db.Scope, id string) (turn.Bot, error)
	// Roots and Budget are the limits of turns. They apply to runs too, because both spend the same money.
	Roots  turn.RootLimits
	Budget turn.Budget
	Logger *slog.Logger
	// Memory limits the requests that the server holds. Defaults to 256 MiB, and a quarter of it for each house.
	Memory *httpd.Memory
}

// Gateway is an [http.Handler] for the paths under [Prefix].
type Gateway struct {
	Config
	threads, houses httpd.Crowd
}

// New returns a Gateway.
func New(c Config) *Gateway {
	if c.Memory == nil {
		c.Memory = httpd.NewMemory(256<<20, 64<<20)
	}
	return &Gateway{Config: c}
}

// Serves reports whether a request is for the gateway.
func Serves(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, Prefix) }

// Credential returns the token of a request, which agents send where their providers expect a key; empty if there is
// none.
func Credential(h http.Header) string {
	if scheme, token, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if key := h.Get(name); key != "" {
			return strings.TrimSpace(key)
		}
	}
	return ""
}

// ServeHTTP answers a request of an agent.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, err := parsePath(r)
	if err == nil {
		err = g.serve(w, r, at)
	}
	if err != nil {
		g.refuse(w, r, at.dialect, err)
	}
}

// refuse answers a request with an error, in the shape of its dialect.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, d model.Dialect, err error) {
	if ended := context.Cause(r.Context()); ended != nil && errors.Is(err, r.Context().Err()) {
		err = ended // the agent left, or its permission ended
	}
	f := fault.From(err)
	if f.Code == fault.Internal {
		g.Logger.ErrorContext(r.Context(), "a call through the gateway failed", "reference", f.Reference, "error", f.Detail())
	}
	status, message := statusOf(err, f), f.Message
	if f.Next != "" {
		message += "; " + f.Next
	}
	if f.Reference != "" {
		message += " (" + f.Reference + ")"
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	switch status {
	case http.StatusTooManyRequests:
		h.Set("Retry-After", "5")
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(model.Refuse(d, status, message)) // an agent that has left needs no answer
}

// serve answers a request. The caller answers its error.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, at route) error {
	pass, err := g.Authorize(r.Context(), Credential(r.Header))
	if err != nil {
		return err
	}
	for _, crowd := range []struct {
		of   *httpd.Crowd
		who  string
		most int
	}{{&g.threads, pass.House + "/" + pass.Thread, threadCalls}, {&g.houses, pass.House, houseCalls}} {
		leave, ok := crowd.of.Enter(crowd.who, crowd.most)
		if !ok {
			return refusal{http.StatusTooManyRequests, fault.New(fault.Exhausted, "too many calls of models are in progress", "wait for them")}
		}
		defer leave()
	}
	ctx, done := pass.While(r.Context())
	defer done()
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	r = r.WithContext(ctx)
	if at.action == list {
		return g.list(w, r, pass, at)
	}
	body, release, err := g.read(w, r, pass)
	if err != nil {
		return err
	}
	defer release()
	return g.pass(w, r, pass, at, body)
}
