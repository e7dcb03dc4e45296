package rpc_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"

	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// serveGRPC serves the services over HTTP/2, which gRPC clients need, and returns a client and the address.
func serveGRPC(t *testing.T, s rpc.Services) (*http.Client, string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(rpc.Handler(s))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.Client(), srv.URL
}

func TestGRPCToolsFindOutWhatThereIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var down atomic.Bool
	client, url := serveGRPC(t, rpc.Services{Auth: b.auth, Logger: b.logged.logger(), Ready: func(context.Context) error {
		if down.Load() {
			return errors.New("down")
		}
		return nil
	}})

	t.Run("reflection lists the services, with their messages, to a stranger", func(t *testing.T) {
		stream := grpcreflect.NewClient(client, url, connect.WithGRPC()).NewStream(t.Context())
		defer stream.Close()
		names, err := stream.ListServices()
		must(t, err)
		var all []string
		for _, name := range names {
			all = append(all, string(name))
		}
		if got := strings.Join(all, " "); !strings.Contains(got, arbev1connect.EntryServiceName) || !strings.Contains(got, arbev1connect.ThreadServiceName) {
			t.Errorf("it lists %s", got)
		}
		files, err := stream.FileContainingSymbol(arbev1connect.EntryServiceName)
		must(t, err)
		if len(files) == 0 || !strings.HasSuffix(files[0].GetName(), "entry.proto") {
			t.Errorf("it describes %v", files)
		}
	})

	check := func(t *testing.T, service string) answer {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/grpc.health.v1.Health/Check", strings.NewReader(`{"service": "`+service+`"}`))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		return answer{res.StatusCode, res.Header, body}
	}
	for _, c := range []struct {
		name, service string
		down          bool
		status        string
	}{
		{"serves", "", false, "SERVING_STATUS_SERVING"},
		{"serves one service", arbev1connect.EntryServiceName, false, "SERVING_STATUS_SERVING"},
		{"does not without its database", "", true, "SERVING_STATUS_NOT_SERVING"},
	} {
		t.Run("health says that the server "+c.name, func(t *testing.T) {
			down.Store(c.down)
			if got := check(t, c.service); got.status != http.StatusOK || !strings.Contains(string(got.body), `"`+c.status+`"`) {
				t.Errorf("it answers %d %s, want %s", got.status, got.body, c.status)
			}
		})
	}
	t.Run("health knows no other service", func(t *testing.T) {
		check(t, "arbe.v1.Nothing").refused(t, http.StatusNotFound, connect.CodeNotFound, "no such service")
	})
}
