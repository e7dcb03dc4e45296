package door_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
)

// The token of a run is renewed with the answers to its requests, once it is past half its life. The new one is for the same
// run and thread. Both end with the run.
func TestTheTokenOfARunIsRenewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatches = true
	w.url, _ = w.serve()
	cast := authtest.New(t, w.Database, w.auth)
	mine, other := cast.Thread(t, cast.House), cast.Thread(t, cast.House)
	runs := func(thread string, epoch int64) {
		w.exec("update threads set agent_id = $2, status = 'completed' where id = $1", thread, cast.Bot) // the run before it ends
		w.exec("update threads set agent_id = $2, status = 'running', run_epoch = $3 where id = $1", thread, cast.Bot, epoch)
	}
	runs(mine, 1)
	runs(other, 1)
	made, err := w.auth.CreateRunToken(t.Context(), cast.House, mine, cast.Bot, 1)
	if err != nil {
		t.Fatal(err)
	}
	old := cast.Forge(t, made.Token, func(_, claims map[string]any) {
		claims["exp"] = time.Now().Add(auth.TokenTTL/2 - time.Minute).Unix()
	})
	ask := func(token, method, thread, body string) response {
		t.Helper()
		return w.at(w.url, method, "arbe-thread-"+thread, body, "Authorization: Bearer "+token, asJSON)
	}
	const beat = `{"id":"run.1.0beat","payload":{"type":"signal.thread.heartbeat","epoch":1,"phase":"thinking"}}`
	renewed := func(r response) string { return r.header.Get("Arbe-Stream-Token") }

	if again := renewed(ask(made.Token, "GET", mine, "").want(http.StatusOK)); again != "" {
		t.Error("a new token is renewed at once")
	}
	next := renewed(ask(old, "GET", mine, "").want(http.StatusOK))
	for _, token := range []string{renewed(ask(old, "POST", mine, beat).wantOneOf(http.StatusOK, http.StatusNoContent)), next} {
		if token == "" || token == old {
			t.Fatalf("it is renewed as %q", token)
		}
		if again := renewed(ask(token, "POST", mine, beat).wantOneOf(http.StatusOK, http.StatusNoContent)); again != "" {
			t.Error("the new token is renewed at once")
		}
		if again := renewed(ask(token, "GET", other, "").want(http.StatusForbidden)); again != "" {
			t.Error("a request for another thread gets a token")
		}
	}
	if again := renewed(ask(old, "GET", other, "").want(http.StatusForbidden)); again != "" {
		t.Error("a request for another thread gets a token")
	}
	runs(mine, 2)
	for _, token := range []string{made.Token, old, next} {
		if again := renewed(ask(token, "POST", mine, beat).want(http.StatusForbidden)); again != "" {
			t.Error("a run that is over gets a token")
		}
	}
}
