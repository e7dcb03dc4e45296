package door

import (
	"context"
	"net/http"
	"strings"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
)

// houseHeader names the house of the requested stream, as the query parameter house does. Neither is needed if the
// caller is in only one house or the credential is limited to one.
const houseHeader = "Arbe-House"

// Members gives the members of a house access to its streams, and the holder of a thread token access to that thread's.
// A request must carry an API key or a thread token as a bearer token. A session cookie gives no access, because
// browsers send it automatically, even when another site links to what someone wrote here.
func Members(a *auth.Auth) Authorize {
	return func(r *http.Request, action auth.Action, name string) (Pass, error) {
		token, cookie := auth.Credential(r.Header)
		if token == "" || cookie {
			return Pass{}, fault.New(fault.Unauthenticated, "the request has no bearer token",
				"send an API key or a thread token as Authorization: Bearer TOKEN; a browser session is not accepted here")
		}
		p, err := a.Authenticate(r.Context(), token)
		if err != nil {
			return Pass{}, err
		}
		ctx := p.With(r.Context())
		target, err := targetOf(ctx, a, p, r, name)
		if err != nil {
			return Pass{}, err
		}
		scope, err := a.Authorize(ctx, action, target)
		while := func(ctx context.Context) (context.Context, context.CancelFunc) {
			return a.While(p.With(ctx), action, target)
		}
		mayRun := func(ctx context.Context) error {
			_, err := a.Authorize(p.With(ctx), auth.Write, target)
			return err
		}
		if err != nil {
			return Pass{}, err
		}
		renewed, err := a.RenewRunToken(ctx, p)
		return Pass{Scope: scope, While: while, MayRun: mayRun, Confined: p.Thread != "", Run: p.Run, Renewed: renewed}, err
	}
}

// targetOf returns the target of a request for the stream of this name: a thread, or the house that owns the stream.
func targetOf(ctx context.Context, a *auth.Auth, p auth.Principal, r *http.Request, name string) (auth.Target, error) {
	if id, ok := threadOf(name); ok {
		return auth.Thread(id), nil
	}
	house := r.Header.Get(houseHeader)
	if q := r.URL.Query().Get("house"); q != "" {
		house = q
	}
	if house == "" {
		var err error
		if house, err = a.OnlyHouse(ctx, p); err != nil {
			return auth.Target{}, err
		}
	}
	return auth.House(house), nil
}

// threadPrefix is the start of the names of threads' streams.
const threadPrefix = "arbe-thread-"

// threadOf returns the thread whose stream has this name.
func threadOf(name string) (id string, ok bool) { return strings.CutPrefix(name, threadPrefix) }
