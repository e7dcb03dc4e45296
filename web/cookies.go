package web

import (
	"net/http"
	"net/url"
	"time"
)

// wanted is the cookie that remembers a page until its reader has logged in.
func (a *app) wanted(page *url.URL) *http.Cookie {
	return a.cookie(wantedCookie, url.QueryEscape(clip(page.RequestURI(), 1<<10)), time.Now().Add(wantedFor))
}

func (a *app) themeOf(r *http.Request) string {
	if c, err := r.Cookie(a.cookieName(themeCookie)); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return ""
}

// sessionOf returns the session in a browser's cookie, or "" if the browser sent no cookie.
func (a *app) sessionOf(r *http.Request) string {
	c, err := r.Cookie(a.cookieName(sessionCookie))
	if err != nil {
		return ""
	}
	return c.Value
}

// cookieName returns a cookie's name in the browser. The prefix makes browsers refuse a cookie that another host of the same
// domain sets, or that is set without encryption. Without https the name has no prefix, because browsers would refuse the
// cookie.
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
