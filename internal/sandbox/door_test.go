package sandbox_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// A sandbox whose driver is not Doored reaches the server's doors at its public address.
func TestTheDoorFromInside(t *testing.T) {
	t.Parallel()
	b := setup(t)
	thread := b.thread(b.environment(sandbox.Recipe{}))
	server := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, c := range map[string]struct {
		door string
		want fault.Code
	}{
		"one that asks for a credential":          {server(http.StatusUnauthorized), ""},
		"one that does not: it is something else": {server(http.StatusOK), fault.Unavailable},
		"one that does not answer":                {gone.URL, fault.Unavailable},
		"none":                                    {"", fault.Precondition},
	} {
		boxes := sandbox.NewResolver(sandbox.Config{
			DB: b.DB, Log: b.log, Threads: b.threads, Drivers: map[string]sandbox.Driver{"cloud": b.cloud}, Door: c.door, Logger: slog.New(slog.DiscardHandler),
		})
		err := boxes.Use(t.Context(), b.scope, thread, "", func(h sandbox.Handle) error {
			if h.Door() != c.door {
				t.Errorf("%s: the door is at %q", name, h.Door())
			}
			return h.CheckDoor(t.Context())
		})
		if got := fault.CodeOf(err); (err != nil || c.want != "") && got != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
