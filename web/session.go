package web

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// login explains how to log in. With the token of a login link, it asks for confirmation and does not use up the link. Chats
// and mail filters open links to preview them, and somebody else's link must not silently log a reader in as that person.
func (a *app) login(w http.ResponseWriter, r *http.Request) error {
	c := confirmation{Theme: a.themeOf(r), Token: r.URL.Query().Get("token")}
	if c.Token == "" {
		var me *arbev1.Agent
		if a.provider != "" {
			me = a.whoIs(r)
		}
		return a.show(w, r, http.StatusOK, loginPage(c.Theme, a.provider, me))
	}
	keepToken(w)
	res, err := a.services.agents.GetLoginLink(r.Context(), &arbev1.GetLoginLinkRequest{Token: c.Token})
	if err != nil {
		return err
	}
	c.Agent, c.Me = res.Agent, a.whoIs(r)
	return a.show(w, r, http.StatusOK, confirmPage(c))
}

// redeem exchanges a link's token for a session, and ends the browser's previous session.
func (a *app) redeem(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	keepToken(w)
	res, err := a.services.agents.RedeemLoginLink(r.Context(), &arbev1.RedeemLoginLinkRequest{Token: r.PostFormValue("token")})
	if err != nil {
		return err
	}
	a.loggedIn(w, r, res.Session, res.ExpiresAt.AsTime())
	return nil
}

// loggedIn gives a browser its new session instead of its previous one, and shows the page that was opened before the login.
func (a *app) loggedIn(w http.ResponseWriter, r *http.Request, session string, expires time.Time) {
	if old := a.sessionOf(r); old != "" {
		_, err := a.services.agents.EndSession(withSession(r.Context(), old), &arbev1.EndSessionRequest{})
		if err != nil && faultOf(err).Code != fault.Unauthenticated {
			// Only log the error, because the reader already has a new session.
			a.log.WarnContext(r.Context(), "web: the session before a login did not end", "error", err)
		}
	}
	forget(w)
	http.SetCookie(w, a.cookie(sessionCookie, session, expires))
	http.SetCookie(w, a.cookie(wantedCookie, "", time.Unix(0, 0)))
	http.Redirect(w, r, a.afterLogin(r), http.StatusSeeOther)
}

// afterLogin returns the page that was opened before the login, or the first page. It checks that the page belongs to this
// app, because somebody else may have set the cookie.
func (a *app) afterLogin(r *http.Request) string {
	c, err := r.Cookie(a.cookieName(wantedCookie))
	if err != nil {
		return "/"
	}
	text, err := url.QueryUnescape(c.Value)
	if err != nil {
		return "/"
	}
	page, err := url.Parse(localPath(text))
	if err != nil {
		return "/"
	}
	if at := page.Query().Get("at"); at != "" && strings.Trim(at, "0123456789") == "" {
		page.Fragment = "e" + at // restored here, because browsers do not send fragments
	}
	return localPath(page.String())
}

// keepToken keeps a link's token out of caches, and out of the Referer header that browsers send to other servers.
func keepToken(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	// With "no-referrer", the form's origin would be null, and the request would be refused as if it came from another site.
	w.Header().Set("Referrer-Policy", "strict-origin")
}

// whoIs returns the person who is logged in with a browser. It returns nil if nobody is, or if it cannot find out.
func (a *app) whoIs(r *http.Request) *arbev1.Agent {
	session := a.sessionOf(r)
	if session == "" {
		return nil
	}
	res, err := a.services.agents.WhoAmI(withSession(r.Context(), session), &arbev1.WhoAmIRequest{})
	if err != nil {
		return nil
	}
	return res.Agent
}

// logout ends the session on the server, and then removes its cookie. In this order, a failed logout can be repeated.
func (a *app) logout(w http.ResponseWriter, r *http.Request) error {
	_, err := a.services.agents.EndSession(r.Context(), &arbev1.EndSessionRequest{})
	if err != nil && faultOf(err).Code != fault.Unauthenticated {
		return err
	}
	forget(w)
	http.SetCookie(w, a.cookie(sessionCookie, "", time.Unix(0, 0)))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
	return nil
}

// forget makes the browser drop its cached pages, so that the next person at it cannot go back to them.
func forget(w http.ResponseWriter) { w.Header().Set("Clear-Site-Data", `"cache"`) }

// theme remembers the choice of a light or a dark page. Any other value means the system's setting.
func (a *app) theme(w http.ResponseWriter, r *http.Request) error {
	choice, until := r.PostFormValue("theme"), time.Now().AddDate(1, 0, 0)
	if choice != "light" && choice != "dark" {
		choice, until = "", time.Unix(0, 0)
	}
	http.SetCookie(w, a.cookie(themeCookie, choice, until))
	http.Redirect(w, r, localPath(r.PostFormValue("back")), http.StatusSeeOther)
	return nil
}

// localPath returns p if it is a path of this app, and "/" if it could lead to another host. Browsers treat a backslash
// as a slash and ignore tabs and newlines, so that "/\t/host" leads to another host.
func localPath(p string) string {
	odd := func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '\\' }
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsFunc(p, odd) {
		return "/"
	}
	u, err := url.Parse(p)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil {
		return "/"
	}
	return p
}
