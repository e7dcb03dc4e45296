package door_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/door"
)

func TestAReaderThatStopsReading(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("large")
	const pieces = 40 // 10 MB: more than sockets and the log's recent entries hold
	padding := strings.Repeat("x", 256<<10)

	stopped, moving := w.follower("large", "-1"), w.follower("large", "-1")
	read := make(chan bool, 1)
	go func() { read <- moving.readTo(pieces) }()
	for i := range pieces {
		w.post("large", fmt.Sprintf("%d\n%s\n", i, padding)).want(204)
	}
	w.run(t, "delays neither writers nor other readers", func(t *testing.T, _ *world) {
		if !<-read {
			t.Error("the other one did not get everything")
		}
	})
	w.run(t, "continues later without gaps or repetitions", func(t *testing.T, _ *world) {
		if !stopped.readTo(pieces) {
			t.Error("it did not get everything")
		}
	})
}

// dial requests a stream over a new connection.
func (w *world) dial(name string) net.Conn {
	w.t.Helper()
	at, err := url.Parse(w.url + name)
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", at.RequestURI(), at.Host, w.ours.key)
	return conn
}

func TestReadersThatGoAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("quiet")
	var served sync.WaitGroup
	d := door.New(door.Config{Log: w.log, Authorize: w.authorize, Logger: slog.New(slog.DiscardHandler), LongPoll: time.Hour})
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		served.Add(1)
		defer served.Done()
		arrived <- struct{}{}
		d.ServeHTTP(rw, r)
	}))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	for _, live := range []string{"sse", "sse", "long-poll", "long-poll"} {
		go func() {
			req := w.request(server.URL+"/api/stream/", "GET", "quiet?offset=-1&live="+live, "", "Authorization: Bearer "+w.ours.key)
			if res, err := http.DefaultClient.Do(req.WithContext(ctx)); err == nil {
				defer res.Body.Close()
				bufio.NewReader(res.Body).ReadString(0)
			}
		}()
		<-arrived
	}
	leave()

	waits, enough := context.WithTimeout(t.Context(), patience)
	defer enough()
	gone := make(chan struct{})
	go func() { served.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-waits.Done():
		t.Error("the server still works for readers that have left")
	}
	// The door may have taken followers over from the server's handler.
	if err := d.Close(waits); err != nil {
		t.Errorf("the door still works for readers that have left: %v", err)
	}
}

func TestFollowingOverEveryHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("talk", "Stream-Closed: true")
	server := httptest.NewUnstartedServer(door.New(door.Config{Log: w.log, Authorize: w.authorize, Logger: slog.New(slog.DiscardHandler)}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	const path = "/api/stream/talk?live=sse&offset=-1"
	over := func(protocol func(*http.Protocols)) func(t *testing.T) *http.Response {
		return func(t *testing.T) *http.Response {
			client := &http.Transport{Protocols: new(http.Protocols)}
			protocol(client.Protocols)
			res, err := client.RoundTrip(w.request(server.URL, "GET", path, "", "Authorization: Bearer "+w.ours.key))
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
	}
	for version, get := range map[string]func(t *testing.T) *http.Response{
		"HTTP/1.0": func(t *testing.T) *http.Response {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nAuthorization: Bearer %s\r\n\r\n", path, w.ours.key)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			return res
		},
		"HTTP/1.1": over(func(p *http.Protocols) { p.SetHTTP1(true) }),
		"HTTP/2.0": over(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }),
	} {
		w.run(t, version, func(t *testing.T, _ *world) {
			res := get(t)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			answer := response{t, res.StatusCode, res.Header, string(body)}.want(http.StatusOK)
			if res.Proto != version || res.ContentLength != -1 || len(res.TransferEncoding) > 0 {
				t.Errorf("it answers over %s, with a length of %d and %v", res.Proto, res.ContentLength, res.TransferEncoding)
			}
			answer.says("Content-Type", "text/event-stream").says("Access-Control-Allow-Origin", "*").says("X-Content-Type-Options", "nosniff")
			if _, err := http.ParseTime(res.Header.Get("Date")); err != nil {
				t.Errorf("its date: %v", err)
			}
			answer.holds("event: control\ndata:{\"streamNextOffset\":\"0000000000000000_0000000000000000\",\"upToDate\":true,\"streamClosed\":true}\n\n")
		})
	}
}

func TestClosingADoor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("quiet")
	d := door.New(door.Config{Log: w.log, Authorize: w.authorize, Logger: slog.New(slog.DiscardHandler)})
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	follow := func() *http.Response {
		res, err := http.DefaultClient.Do(w.request(server.URL, "GET", "/api/stream/quiet?live=sse&offset=-1", "", "Authorization: Bearer "+w.ours.key))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	follower := follow()

	atOnce, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Close(atOnce); err == nil {
		t.Error("it says that nobody follows")
	}
	io.ReadAll(follower.Body) // until it is cut off
	waits, enough := context.WithTimeout(t.Context(), patience)
	defer enough()
	if err := d.Close(waits); err != nil {
		t.Errorf("it still works for a follower that was cut off: %v", err)
	}
	if text, _ := io.ReadAll(follow().Body); len(text) > 0 {
		t.Errorf("a later follower got %q", text)
	}
}
