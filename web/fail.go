package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/fault"
)

// handler answers a request, or says what went wrong. One that returned an error, or panicked, has written
// nothing: what writes as it goes guards itself and returns nil.
type handler func(w http.ResponseWriter, r *http.Request) error

// page serves a handler to people who are logged in.
func (a *app) page(h handler) http.Handler {
	return a.open(func(w http.ResponseWriter, r *http.Request) error {
		session := a.sessionOf(r)
		if session == "" {
			return fault.New(fault.Unauthenticated, "you are not logged in", "open a login link")
		}
		return h(w, r.WithContext(withSession(r.Context(), session)))
	})
}

// open serves a handler to everybody.
func (a *app) open(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guarded(func() error { return h(w, r) }); err != nil {
			a.fail(w, r, err)
		}
	})
}

// unsent is an error about something that a person wrote: the error page gives it back to them.
type unsent struct {
	error
	// Action is where the form goes again, Fields what it held, Text what they wrote.
	Action string
	Fields map[string]string
	Text   string
}

// Unwrap gives the reason.
func (u *unsent) Unwrap() error { return u.error }

// fail answers with what went wrong. Somebody who is not logged in is sent to log in, unless they would
// lose what they wrote.
func (a *app) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := faultOf(err)
	if f.Code == fault.Canceled && r.Context().Err() != nil {
		return // the reader left
	}
	if f.Code == fault.Internal || f.Code == fault.Unavailable {
		a.log.ErrorContext(r.Context(), "web: a page failed", "method", r.Method, "path", r.URL.Path, "reference", f.Reference, "error", f.Detail())
	}
	lost, _ := errors.AsType[*unsent](err)
	if f.Code == fault.Unauthenticated && lost == nil && r.Method == http.MethodGet && r.URL.Path != "/login" {
		if !fromScript(r) {
			http.SetCookie(w, a.wanted(r.URL))
		}
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	if fromScript(r) { // which shows the reason at the place that the request was made from
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		send(w, r, httpStatus(f), []byte(sentence(f.Message)+" "+sentence(f.Next)), nil)
		return
	}
	if f.Code == fault.Forbidden { // what one may not see looks like what is not there
		f = &fault.Error{Code: fault.NotFound, Message: f.Message, Next: f.Next}
	}
	if err := a.show(w, r, httpStatus(f), failPage(a.themeOf(r), f, lost)); err != nil {
		a.log.ErrorContext(r.Context(), "web: the error page failed", "error", err)
	}
}

// nowhere answers every path the table does not have.
func (a *app) nowhere(http.ResponseWriter, *http.Request) error {
	return fault.New(fault.NotFound, "there is no such page", "go to your houses")
}

// show renders a page. It is rendered whole before its first byte is sent, so that a page that fails is an
// error page and not half of one.
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

func rendered(ctx context.Context, c templ.Component) ([]byte, error) {
	var b bytes.Buffer
	err := c.Render(ctx, &b)
	return b.Bytes(), err
}
