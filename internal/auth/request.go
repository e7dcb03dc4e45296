package auth

import (
	"context"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// SessionCookie is the cookie that carries a browser's session.
const SessionCookie = "arbe_session"

// Credential is the token of a request: a bearer token, or else the browser's session cookie. A cookie comes
// with requests that another site's page makes, too: whoever takes one asks where the request is from.
func Credential(header http.Header) (token string, cookie bool) {
	if scheme, token, ok := strings.Cut(header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token), false
	}
	r := http.Request{Header: header}
	if c, err := r.Cookie(SessionCookie); err == nil {
		return c.Value, true
	}
	return "", false
}

// Request tells who asks with a request, as [Auth.Authenticate] does. A cookie carries a browser's session
// and nothing else.
func (a *Auth) Request(ctx context.Context, header http.Header) (Principal, error) {
	token, cookie := Credential(header)
	if token == "" {
		return Who(ctx)
	}
	p, err := a.Authenticate(ctx, token)
	if err == nil && cookie && p.Credential != session {
		return Principal{}, notLoggedIn("this credential is no browser's session")
	}
	return p, err
}

// OnlyHouse is the house of p when there is no doubt which: the one its credential is limited to, or the
// only one its agent is in. Otherwise it is a [fault.Invalid].
func (a *Auth) OnlyHouse(ctx context.Context, p Principal) (house string, err error) {
	if p.House != "" {
		return p.House, nil
	}
	var houses []string
	err = a.db.In(ctx, db.Scope{Agent: p.Agent}, func(tx pgx.Tx) error {
		houses, err = a.q.FirstHouses(ctx, tx)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(houses) != 1:
		return "", fault.Newf(fault.Invalid, "name one of your houses; list them with: arbe house list", "it is not said which house is meant, and you are not in exactly one")
	}
	return houses[0], nil
}
