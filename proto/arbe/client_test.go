package arbe_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAClientSaysItsVersionToTheServer(t *testing.T) {
	t.Parallel()
	agents := make(chan string, 3)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agents <- r.UserAgent()
		w.WriteHeader(http.StatusForbidden)
	}))
	defer srv.Close()
	c := arbe.New(srv.URL, token)
	if _, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{}); err == nil {
		t.Error("the call succeeded")
	}
	for _, err := range c.Tail(t.Context(), "t", 0) {
		if err == nil {
			t.Error("the tail goes on")
		}
	}
	if _, err := c.OpenArtifact(t.Context(), "a", 0); err == nil {
		t.Error("the artifact was opened")
	}
	for range 3 {
		if agent := <-agents; !strings.HasPrefix(agent, "arbe-go/") || !strings.Contains(agent, "connect-go/") {
			t.Errorf("it says %q", agent)
		}
	}
}
