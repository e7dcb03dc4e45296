package door_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/door"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	var seen *http.Request
	var body string
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("live") == "sse" {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "event: data\n\n")
			w.(http.Flusher).Flush()
			<-more
			fmt.Fprint(w, "event: control\n\n")
			return
		}
		text, _ := io.ReadAll(r.Body)
		seen, body = r, string(text)
		w.Header().Set("Stream-Next-Offset", "7")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer upstream.Close()
	to, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(door.Proxy(to, slog.New(slog.DiscardHandler)))
	defer proxy.Close()
	send := func(t *testing.T, method, path, text string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, proxy.URL+path, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer scoped")
		req.Header.Set("Producer-Seq", "3")
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}

	t.Run("sends method, path, query, body and headers on as they came", func(t *testing.T) {
		res := send(t, "POST", "/api/stream/arbe-thread-1?x=a%20b", `{"id":"1"}`)
		if res.StatusCode != http.StatusNoContent || res.Header.Get("Stream-Next-Offset") != "7" {
			t.Errorf("the answer is %v", res)
		}
		if seen.Method != "POST" || seen.RequestURI != "/api/stream/arbe-thread-1?x=a%20b" || body != `{"id":"1"}` ||
			seen.Header.Get("Authorization") != "Bearer scoped" || seen.Header.Get("Producer-Seq") != "3" || seen.Header.Get("X-Forwarded-For") != "" {
			t.Errorf("the server saw %s %s %q with %v", seen.Method, seen.RequestURI, body, seen.Header)
		}
	})
	t.Run("passes a live read on as it is written", func(t *testing.T) {
		lines := bufio.NewReader(send(t, "GET", "/v1/stream/events?offset=-1&live=sse", "").Body)
		if line, err := lines.ReadString('\n'); line != "event: data\n" {
			t.Fatalf("it begins with %q, %v", line, err)
		}
		close(more)
		if rest, err := io.ReadAll(lines); string(rest) != "\nevent: control\n\n" {
			t.Errorf("it ends with %q, %v", rest, err)
		}
	})
	for _, path := range []string{"/", "/arbe.v1.AgentService/WhoAmI", "/api/stream/", "/api/stream/../../login", "/x/api/stream/s"} {
		t.Run("does not forward "+path, func(t *testing.T) {
			seen = nil
			if res := send(t, "GET", path, ""); res.StatusCode != http.StatusNotFound || seen != nil {
				t.Errorf("status %d, the server saw %v", res.StatusCode, seen)
			}
		})
	}
	t.Run("says when the server cannot be reached", func(t *testing.T) {
		upstream.Close()
		res := send(t, "GET", "/api/stream/s?offset=-1", "")
		text, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusBadGateway || !strings.Contains(string(text), `"unavailable"`) {
			t.Errorf("status %d: %s", res.StatusCode, text)
		}
	})
}
