package server_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/server"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// The request of a streaming call stays in memory as long as the stream, so it must be small.
func TestARequestForAStreamIsSmall(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	start(t, cfg)
	c := client(t, cfg)
	padding := protowire.AppendTag(nil, 1000, protowire.BytesType)
	padding = protowire.AppendBytes(padding, bytes.Repeat([]byte("a"), 20<<10))
	tail := &arbev1.TailRequest{ThreadId: newThread(t, c)}
	tail.ProtoReflect().SetUnknown(padding)
	watch := &arbev1.WatchHouseRequest{HouseId: "pp0pn9ej0x9n"}
	watch.ProtoReflect().SetUnknown(padding)
	tailed, err := c.Entries.Tail(t.Context(), tail)
	if err == nil {
		tailed.Receive()
		err = tailed.Err()
	}
	watched, watchErr := c.Houses.WatchHouse(t.Context(), watch)
	if watchErr == nil {
		watched.Receive()
		watchErr = watched.Err()
	}
	for name, err := range map[string]error{"Tail": err, "WatchHouse": watchErr} {
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No door reads a large body with an invalid credential. It answers before most of the body was sent.
func TestALargeBodyIsReadForNobodyUnknown(t *testing.T) {
	t.Parallel()
	// With this limit, the server waits for a body longer than the clients wait for an answer.
	s, err := server.StartLimited(t.Context(), served(t), httpd.Limits{Stall: 10 * time.Minute})
	if err != nil {
		t.Fatalf("starting: %s", fault.From(err).Detail())
	}
	t.Cleanup(func() { s.Stop() })
	address := strings.TrimPrefix(s.URL(), "http://")
	const size, sent = 4 << 20, 100 << 10
	for _, credential := range []string{"Cookie: arbe_session=unknown", "Authorization: Bearer arbe_unknown", "Authorization: Bearer a.b.c"} {
		doors := map[string]string{
			arbev1connect.AgentServiceGetLoginLinkProcedure:    "application/json",
			arbev1connect.AgentServiceRedeemLoginLinkProcedure: "application/proto",
			arbev1connect.EntryServiceAppendProcedure:          "application/json",
			"/api/stream/s":                    "text/plain",
			"/api/artifact/x":                  "text/plain",
			"/api/stream/__ds/subscriptions/s": "application/json",
		}
		for _, path := range []string{"/login", "/theme", "/threads/x/entries", "/houses/x/threads"} {
			doors[path] = "application/x-www-form-urlencoded"
		}
		for path, contentType := range doors {
			t.Run(credential+" "+path, func(t *testing.T) {
				t.Parallel()
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(2 * time.Minute))
				method := "POST"
				if strings.HasPrefix(path, "/api/") {
					method = "PUT"
				}
				fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", method, path, address, credential, contentType, size)
				go conn.Write(bytes.Repeat([]byte("a"), sent))
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("it waits for the body: %v", err)
				}
				if res.StatusCode/100 != 4 && path != "/theme" { // /theme ignores a body that it could not read
					t.Errorf("it answers %s", res.Status)
				}
			})
		}
	}
}

func TestMemoryOfBodies(t *testing.T) {
	t.Parallel()
	const large = 1 << 20
	who := func(_ context.Context, h http.Header) (auth.Principal, error) {
		return auth.Principal{Agent: h.Get("Agent")}, nil
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write(make([]byte, 5<<20))
	w.Close()
	for name, body := range map[string]struct {
		text   []byte
		header string
	}{
		"plain":                 {make([]byte, large), "None"},
		"compressed":            {packed.Bytes(), "Content-Encoding"},
		"compressed in Connect": {packed.Bytes(), "Connect-Content-Encoding"},
		"compressed in gRPC":    {packed.Bytes(), "Grpc-Encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, goOn := make(chan struct{}, 10), make(chan struct{})
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				arrived <- struct{}{}
				<-goOn
			})
			var all sync.WaitGroup
			// Memory is enough for one such body per agent, and for two in total.
			front := httptest.NewServer(server.BoundBodies(who, httpd.NewMemory(2*large, large), handler))
			defer front.Close()
			send := func(agent string, text []byte) {
				all.Go(func() {
					req, _ := http.NewRequest("POST", front.URL, bytes.NewReader(text))
					req.Header.Set("Agent", agent)
					req.Header.Set("Authorization", "Bearer good")
					req.Header.Set(body.header, "gzip")
					if res, err := http.DefaultClient.Do(req); err == nil {
						res.Body.Close()
					}
				})
			}
			send("a", body.text)
			<-arrived
			send("a", body.text)
			send("a", []byte("a small one"))
			<-arrived
			send("b", body.text)
			<-arrived
			select {
			case <-arrived:
				t.Error("an agent has two large bodies in memory")
			case <-time.After(200 * time.Millisecond):
			}
			close(goOn)
			<-arrived
			all.Wait()
		})
	}
}

// The limits count each credential once, however it is written, so that a client cannot evade them by writing it differently.
func TestACredentialCountsAsOneHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	s, err := server.StartLimited(t.Context(), cfg, httpd.Limits{Requests: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	key := login(t, cfg).Token
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT /api/stream/s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: text/plain\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", key)
	// The server requests the body, so from now on the request counts.
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("the server answers %q (%v)", line, err)
	}
	status := func(headers []string) int {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/healthz", nil)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for name, headers := range map[string][]string{
		"as it is":              {"Authorization", "Bearer " + key},
		"with more space":       {"Authorization", "Bearer   " + key},
		"in another case":       {"Authorization", "bEARER " + key},
		"beside cookies":        {"Authorization", "Bearer " + key, "Cookie", "a=1"},
		"as a cookie":           {"Cookie", "arbe_session=" + key},
		"as one of two cookies": {"Cookie", "a=1; arbe_session=" + key},
		"beside another scheme": {"Authorization", "Basic x", "Cookie", "arbe_session=" + key},
	} {
		if got := status(headers); got != http.StatusTooManyRequests {
			t.Errorf("%s: it answers %d", name, got)
		}
	}
}
