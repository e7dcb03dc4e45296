package door

import (
	"net/http"
	"strings"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
)

// houseHeader names the house whose streams a request is about, as the query's house does. Neither is needed
// by who is in only one house, or shows a key of one house.
const houseHeader = "Arbe-House"

// Members lets the members of a house at its streams: a request shows an API key, as a bearer token, or a
// browser's session.
func Members(a *auth.Auth) Authorize {
	origin := http.NewCrossOriginProtection()
	return func(r *http.Request, action auth.Action, name string) (db.Scope, error) {
		token, cookie := auth.Credential(r.Header)
		if token == "" {
			_, err := auth.Who(r.Context())
			return db.Scope{}, err
		}
		if cookie && origin.Check(r) != nil {
			return db.Scope{}, fault.New(fault.Forbidden, "another site's page may not use a browser's session", "show an API key as a bearer token")
		}
		p, err := a.Authenticate(r.Context(), token)
		if err != nil {
			return db.Scope{}, err
		}
		ctx := p.With(r.Context())
		if id, ok := threadOf(name); ok {
			return a.May(ctx, action, auth.Thread(id))
		}
		house := r.Header.Get(houseHeader)
		if q := r.URL.Query().Get("house"); q != "" {
			house = q
		}
		if house == "" {
			if house, err = a.OnlyHouse(ctx, p); err != nil {
				return db.Scope{}, err
			}
		}
		return a.May(ctx, action, auth.House(house))
	}
}

// threadPrefix begins the names of threads' streams.
const threadPrefix = "arbe-thread-"

// threadOf is the thread whose stream has this name.
func threadOf(name string) (id string, ok bool) { return strings.CutPrefix(name, threadPrefix) }
