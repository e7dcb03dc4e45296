package door_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/httpd"
)

// inUse returns the bytes that this process has in use.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// It is not parallel, because it measures the whole process.
func TestReadersThatDoNotReadHoldLittleMemory(t *testing.T) {
	w := newWorld(t)
	const readers, total, each = 60, 64 << 20, 32 << 20
	w.do("PUT", "big", "", asJSON).want(201)
	for range 12 {
		w.do("POST", "big", `["`+strings.Repeat("x", 900<<10)+`"]`, asJSON).want(204)
	}
	w.do("PUT", "many", "", asJSON).want(201)
	line := `"` + strings.Repeat("x", 1<<10) + `"`
	for range 10 {
		w.do("POST", "many", "["+strings.Repeat(line+",", 999)+line+"]", asJSON).want(204)
	}
	w.do("PUT", "small", `["ours"]`, asJSON).want(201)
	w.do("PUT", "small", `["theirs"]`, asJSON, "Authorization: Bearer "+w.stranger.key).want(201)
	for version := 1; version <= 2; version++ {
		for _, read := range []string{"big", "big?offset=-1&live=long-poll", "big?offset=-1&live=sse", "many"} {
			w.run(t, fmt.Sprint("HTTP/", version, " ", read), func(t *testing.T, w *world) {
				d := door.New(door.Config{
					Log: w.log, Authorize: w.authorize, Logger: slog.New(slog.DiscardHandler),
					Memory: httpd.NewMemory(total, each), MemoryWait: 100 * time.Millisecond,
				})
				var handled sync.WaitGroup
				server := httptest.NewUnstartedServer(nil)
				server.Config = httpd.New(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					handled.Add(1)
					defer handled.Done()
					d.ServeHTTP(rw, r)
				}), httpd.Limits{Stall: 3 * time.Second}, slog.New(slog.DiscardHandler))
				server.Start()
				t.Cleanup(server.Close)
				client := &http.Transport{
					Protocols:         new(http.Protocols),
					DisableKeepAlives: version == 1,
					DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
						conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
						if err == nil && version == 1 { // HTTP/2 has a window for each answer
							conn.(*net.TCPConn).SetReadBuffer(4 << 10)
						}
						return conn, err
					},
					// The client's memory is measured too, because the client is part of this process.
					HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
				}
				client.Protocols.SetHTTP1(version == 1)
				client.Protocols.SetUnencryptedHTTP2(version == 2)
				t.Cleanup(client.CloseIdleConnections)

				before := inUse()
				var mu sync.Mutex
				answers := map[int]int{}
				var all sync.WaitGroup
				for range readers {
					all.Go(func() {
						res, err := client.RoundTrip(w.request(server.URL, "GET", "/api/stream/"+read, "", "Authorization: Bearer "+w.ours.key))
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							answers[0]++
							return
						}
						t.Cleanup(func() { res.Body.Close() })
						answers[res.StatusCode]++
						if res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") == "" {
							t.Error("it does not say when to retry")
						}
					})
				}
				all.Wait()
				held := inUse() - before
				for range 4 { // what is only on its way to the readers is no longer there at the next look
					held = min(held, inUse()-before)
				}
				t.Logf("%v, %d MiB held", answers, held>>20)
				if held > 2*each {
					t.Errorf("%d readers hold %d MiB, of %d that one member may", readers, held>>20, each>>20)
				}
				if answers[http.StatusOK] == 0 || answers[http.StatusServiceUnavailable] == 0 {
					t.Errorf("they are answered %v: some, and not all of them, with what they asked for", answers)
				}
				res, err := http.DefaultClient.Do(w.request(server.URL, "GET", "/api/stream/small", "", "Authorization: Bearer "+w.stranger.key))
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if text, _ := io.ReadAll(res.Body); string(text) != `["theirs"]` {
					t.Errorf("meanwhile another house is answered %d: %s", res.StatusCode, text)
				}
				gone := make(chan struct{})
				go func() { handled.Wait(); close(gone) }()
				select {
				case <-gone:
				case <-time.After(patience):
					t.Error("the server waits for them still")
				}
			})
		}
	}
}

func TestHowManyFollowAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("notes")
	w.do("PUT", "notes", "", asText, "Authorization: Bearer "+w.stranger.key).want(201)
	const most = 3
	server := httptest.NewServer(door.New(door.Config{Log: w.log, Authorize: w.authorize, Logger: slog.New(slog.DiscardHandler), MaxFollowers: most}))
	t.Cleanup(server.Close)
	follow := func(key string) *http.Response {
		res, err := http.DefaultClient.Do(w.request(server.URL, "GET", "/api/stream/notes?offset=now&live=sse", "", "Authorization: Bearer "+key))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	var followers []*http.Response
	for range most {
		followers = append(followers, follow(w.ours.key))
	}
	for _, live := range []string{"sse", "long-poll"} {
		refused := w.at(server.URL, "GET", "/api/stream/notes?offset=now&live="+live, "", "Authorization: Bearer "+w.ours.key).want(429)
		if refused.failure(); refused.header.Get("Retry-After") == "" {
			t.Error("it does not say when to retry")
		}
	}
	if res := follow(w.stranger.key); res.StatusCode != http.StatusOK {
		t.Errorf("another member is answered %d", res.StatusCode)
	}
	followers[0].Body.Close()
	for deadline := time.Now().Add(patience); follow(w.ours.key).StatusCode != http.StatusOK; {
		if time.Now().After(deadline) {
			t.Fatal("a client that left still counts")
		}
	}
}

func TestBodiesTakeMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("notes")
	d := door.New(door.Config{
		Log: w.log, Authorize: w.authorize, Logger: slog.New(slog.DiscardHandler),
		Memory: httpd.NewMemory(8<<20, 4<<20), MemoryWait: 100 * time.Millisecond,
	})
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	send := func(key, body string) response {
		return w.at(server.URL, "POST", "/api/stream/notes", body, asText, "Authorization: Bearer "+key)
	}
	at := strings.TrimPrefix(server.URL, "http://")
	var conns []net.Conn
	stall := func() {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST /api/stream/notes HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			w.ours.key, 1<<20, strings.Repeat("x", 900<<10))
		conns = append(conns, conn)
	}
	large := strings.Repeat("x", 1<<20)
	// While the whole body is in memory, a stalled one may be refused. Then the next stalled one takes its place.
	for deadline := time.Now().Add(patience); send(w.ours.key, large).status != http.StatusServiceUnavailable; stall() {
		if time.Now().After(deadline) {
			t.Fatal("there is no end of bodies that do not arrive")
		}
	}
	send(w.ours.key, "small").want(204)
	send(w.stranger.key, large).want(404)
	for _, conn := range conns {
		conn.Close()
	}
	for deadline := time.Now().Add(patience); send(w.ours.key, large).status != http.StatusNoContent; {
		if time.Now().After(deadline) {
			t.Fatal("what was given back is not there")
		}
	}
}
