package auth

import (
	"context"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// SessionCookie is the cookie that carries a browser's session.
	SessionCookie = arbev1.SessionCookie
	// SecureSessionCookie is the cookie's name over https. Because of the prefix, no other host can set it.
	SecureSessionCookie = "__Host-" + SessionCookie
)

// Credential returns the credential of a request: a bearer token, or else the browser's session cookie. Browsers also
// send cookies with requests that other sites cause, so a caller that accepts a cookie must check the request's origin.
func Credential(header http.Header) (token string, cookie bool) {
	if scheme, token, ok := strings.Cut(header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token), false
	}
	r := http.Request{Header: header}
	for _, name := range []string{SecureSessionCookie, SessionCookie} {
		if c, err := r.Cookie(name); err == nil {
			return c.Value, true
		}
	}
	return "", false
}

// Request authenticates a request as [Auth.Authenticate] does. A cookie may carry only a browser session.
func (a *Auth) Request(ctx context.Context, header http.Header) (Principal, error) {
	token, cookie := Credential(header)
	if cookie && a.secure {
		if _, err := (&http.Request{Header: header}).Cookie(SecureSessionCookie); err != nil {
			token = ""
		}
	}
	if token == "" {
		return PrincipalFrom(ctx)
	}
	p, err := a.Authenticate(ctx, token)
	if err == nil && cookie && p.Credential != session {
		return Principal{}, notLoggedIn("the cookie is not a browser session")
	}
	if err == nil && p.Credential == session {
		a.recordUse(p.hash, header.Get("User-Agent"))
	}
	p.Browser, p.CLI = cookie, strings.HasPrefix(header.Get("User-Agent"), arbev1.CLIAgent+"/")
	return p, err
}

// OnlyHouse returns the house of p if it is unambiguous: the one that the credential is limited to, or the only house
// of the agent. Otherwise the error is a [fault.Invalid].
func (a *Auth) OnlyHouse(ctx context.Context, p Principal) (house string, err error) {
	if p.House != "" {
		return p.House, nil
	}
	if house, known := lookUp[string](a.facts, agentTopic(p.Agent)); known {
		return house, nil
	}
	asked := a.facts.moment()
	var houses []string
	err = a.db.In(ctx, db.Scope{Agent: p.Agent}, func(tx pgx.Tx) error {
		houses, err = a.q.FirstHouses(ctx, tx)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(houses) != 1:
		return "", fault.Newf(fault.Invalid, "name one of your houses; list them with: arbe house list", "the request names no house, and you are not a member of exactly one")
	}
	a.facts.keep(asked, agentTopic(p.Agent), houses[0])
	return houses[0], nil
}
