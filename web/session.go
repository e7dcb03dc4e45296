package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	sessionCookie = "arbe_session"
	themeCookie   = "arbe_theme"
)

// login trades the link's token for a session. Only GET does: a HEAD, as link checkers send it, must not
// use the link up.
func (a *app) login(w http.ResponseWriter, r *http.Request) error {
	token := r.URL.Query().Get("token")
	if token == "" || r.Method != http.MethodGet {
		return a.show(w, r, http.StatusOK, loginPage(themeOf(r)))
	}
	res, err := a.services.agents.RedeemLoginLink(r.Context(), &arbev1.RedeemLoginLinkRequest{Token: token})
	if err != nil {
		return err
	}
	http.SetCookie(w, cookie(r, sessionCookie, res.Session, res.ExpiresAt.AsTime()))
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}

// logout ends the session behind the services, then forgets it here.
func (a *app) logout(w http.ResponseWriter, r *http.Request) error {
	_, err := a.services.agents.EndSession(r.Context(), &arbev1.EndSessionRequest{})
	if err != nil && faultOf(err).Code != fault.Unauthenticated {
		return err
	}
	http.SetCookie(w, cookie(r, sessionCookie, "", time.Unix(0, 0)))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
	return nil
}

// theme remembers light, dark, or (anything else) whatever the system says.
func (a *app) theme(w http.ResponseWriter, r *http.Request) error {
	choice, until := r.PostFormValue("theme"), time.Now().AddDate(1, 0, 0)
	if choice != "light" && choice != "dark" {
		choice, until = "", time.Unix(0, 0)
	}
	http.SetCookie(w, cookie(r, themeCookie, choice, until))
	http.Redirect(w, r, localPath(r.PostFormValue("back")), http.StatusSeeOther)
	return nil
}

func themeOf(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return ""
}

func cookie(r *http.Request, name, value string, expires time.Time) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/", Expires: expires,
		HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	}
}

// localPath is p when it is a path of this app, and "/" for anything that could lead elsewhere.
func localPath(p string) string {
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsAny(p, "\\\r\n") {
		return "/"
	}
	return p
}
