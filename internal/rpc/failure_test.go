package rpc_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAFailureOfOurs(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.NewPool(t, 6)) // it limits new connections

	t.Run("says a reference, by which the log explains it, and nothing of its cause", func(t *testing.T) {
		b.exec(t, "alter table environments rename to elsewhere")
		defer b.exec(t, "alter table elsewhere rename to environments")
		_, err := b.ada.Environments.ListEnvironments(t.Context(), &arbev1.ListEnvironmentsRequest{HouseId: b.ada.house.Id})
		refused(t, err, connect.CodeInternal, "on the server")
		reference := arbe.Reference(err)
		if reference == "" || strings.Contains(err.Error(), "environments") {
			t.Errorf("it has the reference %q and says %v", reference, err)
		}
		if log := b.logged.String(); !strings.Contains(log, reference) || !strings.Contains(log, `\"environments\" does not exist`) {
			t.Errorf("the log says %s", log)
		}
	})
	t.Run("that panics does, too, and the server goes on", func(t *testing.T) {
		halfMade := httptest.NewServer(rpc.Handler(rpc.Services{Auth: b.auth, Logger: b.logged.logger()}))
		t.Cleanup(halfMade.Close)
		c := arbe.New(halfMade.URL, b.ada.key)
		for range 2 {
			_, err := c.Threads.ListThreads(t.Context(), &arbev1.ListThreadsRequest{HouseId: b.ada.house.Id})
			refused(t, err, connect.CodeInternal, "on the server")
			if log := b.logged.String(); arbe.Reference(err) == "" || !strings.Contains(log, arbe.Reference(err)) || !strings.Contains(log, "nil pointer") {
				t.Errorf("the reference is %q, and the log says %s", arbe.Reference(err), log)
			}
		}
	})
	t.Run("to reach the database says that a retry may help", func(t *testing.T) {
		limit := "alter database " + ask[string](t, b, "select current_database()") + " connection limit "
		b.exec(t, limit+"0")
		defer b.exec(t, limit+"-1")
		b.DB.Pool().Reset()
		err := errOf(b.ada.Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{}))
		refused(t, err, connect.CodeUnavailable, "the database cannot be reached")
	})
}
