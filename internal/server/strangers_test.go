package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

func TestStrangersHoldNoConnection(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	s, err := server.StartLimited(t.Context(), cfg, httpd.Limits{Header: 4 * time.Second, Stall: 4 * time.Second, Idle: 4 * time.Second})
	if err != nil {
		t.Fatalf("starting: %s", fault.From(err).Detail())
	}
	t.Cleanup(func() { s.Stop() })
	key := login(t, cfg).Token

	// The beginnings of requests that never complete, one per door.
	const unknown = "Authorization: Bearer arbe_unknown\r\n"
	heads := map[string]string{
		"nothing":       "",
		"half a header": "GET / HTTP/1.1\r\nHost: a\r\n",
		"HTTP/2":        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a request":     "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", // followed by no other request
	}
	body := func(method, path, headers string) {
		for _, length := range []string{"Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n"} {
			heads[method+" "+path+" "+headers+length] = method + " " + path + " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + headers + length + "\r\n"
		}
	}
	for _, path := range []string{"/", "/login", "/logout", "/theme", "/threads/x/entries", "/healthz", "/nowhere"} {
		body("POST", path, "")
		body("POST", path, "Cookie: arbe_session=unknown\r\n")
		body("GET", path, "")
	}
	for _, path := range append(rpc.Paths(), arbev1connect.AgentServiceWhoAmIProcedure, arbev1connect.AgentServiceRedeemLoginLinkProcedure, arbev1connect.EntryServiceTailProcedure) {
		body("POST", path, "")
		body("POST", path, unknown)
		body("POST", path, "Authorization: Bearer "+key+"\r\n")
	}
	for _, prefix := range door.Prefixes {
		for _, name := range []string{"s", "", "../x", "__ds/subscriptions/s", "__ds/subscriptions/s/ack"} {
			for _, method := range []string{"PUT", "POST", "GET", "DELETE", "OPTIONS", "PATCH"} {
				body(method, prefix+name, "")
				body(method, prefix+name, unknown)
				body(method, prefix+name, "Authorization: Bearer "+key+"\r\n")
			}
		}
	}
	address := strings.TrimPrefix(s.URL(), "http://")
	var all sync.WaitGroup
	for name, head := range heads {
		all.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, head)
			conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
			if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("%s: the connection is open still", name)
			}
		})
	}
	all.Wait()

	t.Run("and send no large bodies", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+arbev1connect.AgentServiceRedeemLoginLinkProcedure,
			strings.NewReader(`{"token":"`+strings.Repeat("x", 100<<10)+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusTooManyRequests {
			t.Errorf("it answers %d: %s", res.StatusCode, text)
		}
	})
}
