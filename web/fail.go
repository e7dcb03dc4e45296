package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/web/guard"
)

// handler answers a request or returns an error. If it returns an error or panics, it must not have written anything, because
// the error page is written then. A handler that streams its answer handles its own errors and returns nil.
type handler func(w http.ResponseWriter, r *http.Request) error

// page serves a handler to logged-in readers.
func (a *app) page(h handler) http.Handler {
	return a.open(func(w http.ResponseWriter, r *http.Request) error {
		session := a.sessionOf(r)
		if session == "" {
			return fault.New(fault.Unauthenticated, "you are not logged in", "open a login link")
		}
		return h(w, r.WithContext(withAgent(withSession(r.Context(), session), r)))
	})
}

// open serves a handler to everybody.
func (a *app) open(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Run(func() error { return h(w, r) }); err != nil {
			a.fail(w, r, err)
		}
	})
}

// fail answers with an error. A reader who is not logged in is redirected to the login page, unless they would lose what they
// wrote. It answers cancelled requests, too: a server that stops cancels them while their readers wait, and an empty answer
// would mean success.
func (a *app) fail(w http.ResponseWriter, r *http.Request, err error) {
	r = r.WithContext(context.WithoutCancel(r.Context()))
	f := faultOf(err)
	if f.Code == fault.Canceled {
		f = unanswered(err)
	} else if f.Code == fault.Internal || f.Code == fault.Unavailable {
		a.log.ErrorContext(r.Context(), "web: a page failed", "method", r.Method, "path", r.URL.Path, "reference", f.Reference, "error", f.Detail())
	}
	lost, _ := errors.AsType[*unsent](err)
	if f.Code == fault.Unauthenticated && lost == nil && r.Method == http.MethodGet && r.URL.Path != "/login" && r.URL.Path != "/login/callback" {
		// Do not remember a script's request: it asks for a piece of a page.
		if !fromScript(r) {
			http.SetCookie(w, a.wanted(r.URL))
		}
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	if fromScript(r) { // the script shows the reason next to the form or the button
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		send(w, r, httpStatus(f), []byte(sentence(f.Message)+" "+sentence(f.Next)), nil)
		return
	}
	if f.Code == fault.Forbidden { // any answer but the one for a missing page would reveal that the page exists
		f = &fault.Error{Code: fault.NotFound, Message: f.Message, Next: f.Next}
	}
	if err := a.show(w, r, httpStatus(f), failPage(a.themeOf(r), f, lost)); err != nil {
		a.log.ErrorContext(r.Context(), "web: the error page failed", "error", err)
	}
}

// nowhere answers every path without a route.
func (a *app) nowhere(http.ResponseWriter, *http.Request) error {
	return fault.New(fault.NotFound, "there is no such page", "go to your houses")
}

// show renders a page and sends it. It finishes rendering before it sends the first byte, so that a rendering error leads to
// the error page and not to half a page.
func (a *app) show(w http.ResponseWriter, r *http.Request, status int, page templ.Component) error {
	text, err := rendered(r.Context(), page)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if w.Header().Get("Cache-Control") == "" {
		w.Header().Set("Cache-Control", "private, no-cache")
	}
	send(w, r, status, text, nil)
	return nil
}

// patch answers Datastar with elements that replace what selector finds.
func (a *app) patch(w http.ResponseWriter, r *http.Request, selector string, piece templ.Component) error {
	w.Header().Set("Datastar-Selector", selector)
	w.Header().Set("Datastar-Mode", "replace")
	return a.show(w, r, http.StatusOK, piece)
}
