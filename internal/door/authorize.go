package door

import (
	"context"
	"net/http"
	"strings"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
)

// houseHeader names the house whose streams a request is about, as the query's house does. Neither is needed
// by who is in only one house, or shows a key of one house.
const houseHeader = "Arbe-House"

// Members lets the members of a house at its streams, and who shows a thread's token at that thread's: a
// request shows an API key or a token, as a bearer token, or a browser's session.
func Members(a *auth.Auth) Authorize {
	origin := http.NewCrossOriginProtection()
	return func(r *http.Request, action auth.Action, name string) (Pass, error) {
		if _, cookie := auth.Credential(r.Header); cookie && origin.Check(r) != nil {
			return Pass{}, fault.New(fault.Forbidden, "another site's page may not use a browser's session", "show an API key as a bearer token")
		}
		p, err := a.Request(r.Context(), r.Header)
		if err != nil {
			return Pass{}, err
		}
		ctx := p.With(r.Context())
		target, err := targetOf(ctx, a, p, r, name)
		if err != nil {
			return Pass{}, err
		}
		scope, err := a.May(ctx, action, target)
		return Pass{scope, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return a.While(p.With(ctx), action, target)
		}}, err
	}
}

// targetOf is what a request for the stream of this name is about: a thread, or the house whose stream it is.
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

// threadPrefix begins the names of threads' streams.
const threadPrefix = "arbe-thread-"

// threadOf is the thread whose stream has this name.
func threadOf(name string) (id string, ok bool) { return strings.CutPrefix(name, threadPrefix) }
