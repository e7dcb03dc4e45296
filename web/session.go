package web

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	sessionCookie = arbev1.SessionCookie
	themeCookie   = "arbe_theme"
	// detailsCookie is the cookie that says whether the column of details is folded away. Scripts write it.
	detailsCookie = "arbe_details"
	// wantedCookie is the cookie that remembers the page that somebody asked for who was not logged in.
	wantedCookie = "arbe_wanted"
	// wantedFor is how long it is remembered: as long as a login link is good for.
	wantedFor = 15 * time.Minute
)

// login says how to log in; with a link's token it asks whether to log in as whom the link is for. It uses no
// link up: browsers, chats and mail filters open links to look at them, and a link of somebody else's must not
// log its reader in as them.
func (a *app) login(w http.ResponseWriter, r *http.Request) error {
	c := confirmation{Theme: a.themeOf(r), Token: r.URL.Query().Get("token")}
	if c.Token == "" {
		return a.show(w, r, http.StatusOK, loginPage(c.Theme))
	}
	keepToken(w)
	res, err := a.services.agents.GetLoginLink(r.Context(), &arbev1.GetLoginLinkRequest{Token: c.Token})
	if err != nil {
		return err
	}
	c.Agent, c.Me = res.Agent, a.whoIs(r)
	return a.show(w, r, http.StatusOK, confirmPage(c))
}

// confirmation is the form that redeems a login link.
type confirmation struct {
	Theme, Token string
	// Agent is whom the link logs in, Me who is logged in already; nil is nobody.
	Agent, Me *arbev1.Agent
}

// Other reports whether somebody else is logged in.
func (c confirmation) Other() bool { return c.Me != nil && c.Me.Id != c.Agent.Id }

// redeem trades a link's token for a session. A session that the browser had ends.
func (a *app) redeem(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	keepToken(w)
	res, err := a.services.agents.RedeemLoginLink(r.Context(), &arbev1.RedeemLoginLinkRequest{Token: r.PostFormValue("token")})
	if err != nil {
		return err
	}
	if old := a.sessionOf(r); old != "" {
		_, err := a.services.agents.EndSession(withSession(r.Context(), old), &arbev1.EndSessionRequest{})
		if err != nil && faultOf(err).Code != fault.Unauthenticated {
			a.log.WarnContext(r.Context(), "web: the session before a login did not end", "error", err)
		}
	}
	forget(w)
	http.SetCookie(w, a.cookie(sessionCookie, res.Session, res.ExpiresAt.AsTime()))
	http.SetCookie(w, a.cookie(wantedCookie, "", time.Unix(0, 0)))
	http.Redirect(w, r, a.afterLogin(r), http.StatusSeeOther)
	return nil
}

// wanted is the cookie that remembers a page until its reader has logged in.
func (a *app) wanted(page *url.URL) *http.Cookie {
	return a.cookie(wantedCookie, url.QueryEscape(clip(page.RequestURI(), 1<<10)), time.Now().Add(wantedFor))
}

// afterLogin is the page that was asked for before the login, and else the first one. It is a page of this app whatever
// the cookie says.
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
		page.Fragment = "e" + at // browsers do not send it
	}
	return localPath(page.String())
}

// keepToken keeps the token of a link where it is: out of caches, and out of the address that the browser names
// to servers as where it came from.
func keepToken(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	// Not "no-referrer": then the form's origin would be null, and the request refused as one of another site.
	w.Header().Set("Referrer-Policy", "strict-origin")
}

// whoIs is who a browser is logged in as; nil is nobody, or nobody knows.
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

// logout ends the session behind the services, then forgets it here.
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

// forget makes the browser forget the pages that it keeps: to go back shows none of them to who comes after.
func forget(w http.ResponseWriter) { w.Header().Set("Clear-Site-Data", `"cache"`) }

// theme remembers light, dark, or (anything else) whatever the system says.
func (a *app) theme(w http.ResponseWriter, r *http.Request) error {
	choice, until := r.PostFormValue("theme"), time.Now().AddDate(1, 0, 0)
	if choice != "light" && choice != "dark" {
		choice, until = "", time.Unix(0, 0)
	}
	http.SetCookie(w, a.cookie(themeCookie, choice, until))
	http.Redirect(w, r, localPath(r.PostFormValue("back")), http.StatusSeeOther)
	return nil
}

func (a *app) themeOf(r *http.Request) string {
	if c, err := r.Cookie(a.cookieName(themeCookie)); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return ""
}

// sessionOf is the session that a browser shows; empty is none.
func (a *app) sessionOf(r *http.Request) string {
	c, err := r.Cookie(a.cookieName(sessionCookie))
	if err != nil {
		return ""
	}
	return c.Value
}

// cookieName is a cookie's name in the browser. The prefix makes browsers refuse one that another host of the
// same domain sets, or that comes without encryption; they know it only where there is https.
func (a *app) cookieName(name string) string {
	if a.secure {
		return "__Host-" + name
	}
	return name
}

func (a *app) cookie(name, value string, expires time.Time) *http.Cookie {
	return &http.Cookie{
		Name: a.cookieName(name), Value: value, Path: "/", Expires: expires,
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: a.secure,
	}
}

// localPath is p when it is a path of this app, and "/" for anything that could lead elsewhere. Browsers take a
// backslash for a slash and leave out tabs and newlines, so "/\t/host" leads to another host.
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
