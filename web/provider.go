package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// beginLogin leads to the login provider, to log in or to connect the account there to the person who is logged in.
func (a *app) beginLogin(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	ctx, req := r.Context(), &arbev1.BeginProviderLoginRequest{Connect: r.PostFormValue("connect") != ""}
	if req.Connect {
		ctx = withSession(ctx, a.sessionOf(r))
	}
	res, err := a.services.agents.BeginProviderLogin(ctx, req)
	if err != nil {
		return err
	}
	secret := res.Secret
	if req.Connect {
		secret = connecting + secret
	}
	http.SetCookie(w, a.cookie(loginCookie, secret, res.ExpiresAt.AsTime()))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	return a.show(w, r, http.StatusOK, leavePage(a.themeOf(r), a.provider, res.Url))
}

// connecting begins the cookie's value for a login that connects an account. Only such a login finishes with the browser's
// session: any other must also work when that session has ended.
const connecting = "connect:"

// finishLogin is the page to which the login provider sends the browser back.
func (a *app) finishLogin(w http.ResponseWriter, r *http.Request) error {
	keepToken(w)
	cookie, err := r.Cookie(a.cookieName(loginCookie))
	if err != nil {
		return fault.New(fault.Unauthenticated, "this browser has not begun this login, or more than ten minutes ago", "log in again")
	}
	http.SetCookie(w, a.cookie(loginCookie, "", time.Unix(0, 0)))
	ctx := r.Context()
	secret, connects := strings.CutPrefix(cookie.Value, connecting)
	if connects {
		ctx = withSession(ctx, a.sessionOf(r))
	}
	q := r.URL.Query()
	res, err := a.services.agents.FinishProviderLogin(ctx, &arbev1.FinishProviderLoginRequest{
		Secret: secret, State: q.Get("state"), Code: q.Get("code"), Iss: q.Get("iss"), Error: q.Get("error"),
	})
	if err != nil {
		return err
	}
	a.loggedIn(w, r, res.Session, res.ExpiresAt.AsTime())
	return nil
}
