package web_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// A server that stops cancels requests whose readers wait. The scripts would take an empty answer for success.
func TestACancelledRequestGetsAnAnswer(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := newFake()
	f.logger = slog.New(slog.NewTextHandler(&log, nil))
	f.thread("stopping1", "Stopping")
	f.says("stopping1", f.me.Id, "", entry.Command{Command: "make test"})
	app := f.app(t)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	ask := func(ctx context.Context, method, path, form string) *http.Request {
		r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(&http.Cookie{Name: "arbe_session", Value: "good"})
		return r
	}
	answer := func(t *testing.T, r *http.Request, kind, says string) {
		t.Helper()
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusServiceUnavailable || got != kind || !strings.Contains(w.Body.String(), says) {
			t.Errorf("the answer is %d, %s: %s", w.Code, got, w.Body)
		}
	}
	const page, words = "text/html; charset=utf-8", "text/plain; charset=utf-8"
	const away = "Arbe does not answer right now. Try again in a moment."

	t.Run("a page", func(t *testing.T) {
		answer(t, ask(stopped, http.MethodGet, "/threads/stopping1", ""), page, "<h1>Arbe does not answer right now.</h1>")
	})
	t.Run("a page that was only to be rendered", func(t *testing.T) {
		answer(t, ask(stopped, http.MethodGet, "/login", ""), page, "<h1>Arbe does not answer right now.</h1>")
	})
	t.Run("a form, with its text", func(t *testing.T) {
		answer(t, ask(stopped, http.MethodPost, "/threads/stopping1/entries", "entry=abcdefgh&text=hello"), page, ">hello</textarea>")
	})
	for name, path := range map[string]string{"a message of the outbox": "/entries", "an edit": "/entries/1/edit", "a command that is run again": "/entries/1/again"} {
		t.Run(name, func(t *testing.T) {
			r := ask(stopped, http.MethodPost, "/threads/stopping1"+path, "entry=abcdefgh&text=hello")
			r.Header.Set("Datastar-Request", "true")
			answer(t, r, words, away)
		})
	}
	t.Run("a form that was not read to its end", func(t *testing.T) {
		for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
			r := ask(t.Context(), http.MethodPost, "/threads/stopping1/entries", "")
			r.Body, r.ContentLength = unread{cause}, 1
			r.Header.Set("Datastar-Request", "true")
			w := httptest.NewRecorder()
			app.ServeHTTP(w, r)
			if w.Code < http.StatusInternalServerError {
				t.Errorf("after %v, the answer is %d: %s", cause, w.Code, w.Body)
			}
		}
	})
	if log.Len() > 0 {
		t.Errorf("the log says %s", log.String())
	}
}

// unread is a body that cannot be read, because the context of its request has ended.
type unread struct{ cause error }

func (u unread) Read([]byte) (int, error) { return 0, fault.From(u.cause) }
func (unread) Close() error               { return nil }
