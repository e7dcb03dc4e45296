package door_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
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

	t.Run("forwards method, path, query, body and headers unchanged", func(t *testing.T) {
		res := send(t, "POST", "/api/stream/arbe-thread-1?x=a%20b", `{"id":"1"}`)
		if res.StatusCode != http.StatusNoContent || res.Header.Get("Stream-Next-Offset") != "7" {
			t.Errorf("the answer is %v", res)
		}
		if seen.Method != "POST" || seen.RequestURI != "/api/stream/arbe-thread-1?x=a%20b" || body != `{"id":"1"}` ||
			seen.Header.Get("Authorization") != "Bearer scoped" || seen.Header.Get("Producer-Seq") != "3" || seen.Header.Get("X-Forwarded-For") != "" {
			t.Errorf("the server saw %s %s %q with %v", seen.Method, seen.RequestURI, body, seen.Header)
		}
	})
	t.Run("forwards a live read as it is written", func(t *testing.T) {
		lines := bufio.NewReader(send(t, "GET", "/v1/stream/events?offset=-1&live=sse", "").Body)
		if line, err := lines.ReadString('\n'); line != "event: data\n" {
			t.Fatalf("it begins with %q, %v", line, err)
		}
		close(more)
		if rest, err := io.ReadAll(lines); string(rest) != "\nevent: control\n\n" {
			t.Errorf("it ends with %q, %v", rest, err)
		}
	})
	t.Run("says when the server cannot be reached", func(t *testing.T) {
		upstream.Close()
		res := send(t, "GET", "/api/stream/s?offset=-1", "")
		text, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusBadGateway || !strings.Contains(string(text), `"unavailable"`) {
			t.Errorf("status %d: %s", res.StatusCode, text)
		}
	})
}

// rawUpstream is a server that records the requests that reach it as they were sent, and answers them with answer.
func rawUpstream(t *testing.T, answer string) (at *url.URL, requests chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	requests = make(chan string, 16)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				var head strings.Builder
				for in := bufio.NewReader(conn); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					if line == "\r\n" {
						break
					}
					head.WriteString(line)
				}
				requests <- head.String()
				io.WriteString(conn, answer)
			}()
		}
	}()
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}, requests
}

// throughProxy sends the head of a request, unchanged, to a proxy of upstream.
func throughProxy(t *testing.T, upstream *url.URL, line string, headers ...string) *http.Response {
	t.Helper()
	proxy := httptest.NewServer(door.Proxy(upstream, slog.New(slog.DiscardHandler)))
	t.Cleanup(proxy.Close)
	conn, err := net.Dial("tcp", proxy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s HTTP/1.1\r\n%s\r\n\r\n", line, strings.Join(append([]string{"Host: proxy.example", "Connection: close"}, headers...), "\r\n"))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

const noContent = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"

func TestTheProxyReachesOnlyStreams(t *testing.T) {
	t.Parallel()
	for sent, forwarded := range map[string]string{
		"/api/stream/a":                                 "/base/api/stream/a",
		"/v1/stream/a/b.c~d:e@f":                        "/base/v1/stream/a/b.c~d:e@f",
		"/v1/stream/%61%3Ab":                            "/base/v1/stream/a:b",
		"/v1/stream/a?x=..%2f&offset=-1":                "/base/v1/stream/a?x=..%2f&offset=-1",
		"/v1/stream/__ds/subscriptions/s":               "/base/v1/stream/__ds/subscriptions/s",
		"/v1/stream/__ds/subscriptions/s/streams/a%2Fb": "/base/v1/stream/__ds/subscriptions/s/streams/a/b",
		"http://elsewhere.example/api/stream/a":         "/base/api/stream/a",
		"/api/model/anthropic/v1/messages?beta=true":    "/base/api/model/anthropic/v1/messages?beta=true",
		"/api/model/google/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse": "/base/api/model/google/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",

		"/api/model/": "", "/api/model": "", "/api/model/../../login": "", "/api/model/a/%2e%2e/%2e%2e/login": "", "/api/model/a%2fb": "", "/api/model//a": "",

		"/": "", "/arbe.v1.AgentService/WhoAmI": "", "/api/stream/": "", "/api/stream": "", "/x/api/stream/s": "", "//api/stream/s": "",
		"/v1/stream/../../../other-app/api/stream/x":          "",
		"/v1/stream/../../other-app/v1/stream/x":              "",
		"/v1/stream/%2e%2e/%2e%2e/other/v1/stream/x":          "",
		"/v1/stream/..%2f..%2fother":                          "",
		"/v1/stream/a%2f..%2f..%2f..%2flogin":                 "",
		"/v1/stream/a//b":                                     "",
		"/v1/stream//a":                                       "",
		"/v1/stream/./a":                                      "",
		"/v1/stream/a%00":                                     "",
		"/v1/stream/a%5c..%5cb":                               "",
		"/v1/stream/..\\..\\login":                            "",
		"/v1/stream/a;x":                                      "",
		"/v1%2fstream/a":                                      "",
		"/api/../v1/stream/a":                                 "",
		"/v1/stream/__ds/subscriptions/s/streams/..%2f..%2fx": "",
		"/v1/stream/__ds/subscriptions/s/streams/%2e%2e":      "",
		"/v1/stream/__ds/subscriptions/s/claim/..%2fa":        "",
		"http://elsewhere.example/v1/stream/../../login":      "",
		"/other/v1/stream/a":                                  "",
	} {
		t.Run(sent, func(t *testing.T) {
			t.Parallel()
			upstream, requests := rawUpstream(t, noContent)
			upstream.Path = "/base/"
			res := throughProxy(t, upstream, "GET "+sent, "Authorization: Bearer scoped")
			select {
			case got := <-requests:
				if line, _, _ := strings.Cut(got, "\r\n"); forwarded == "" || line != "GET "+forwarded+" HTTP/1.1" {
					t.Errorf("it is forwarded as %q, want %q", line, forwarded)
				}
			default:
				if forwarded != "" || res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusBadRequest {
					t.Errorf("it answers %s without forwarding", res.Status)
				}
			}
		})
	}
}

func TestWhatTheProxyForwards(t *testing.T) {
	t.Parallel()
	t.Run("has no hop-by-hop headers, cookies or protocol upgrades", func(t *testing.T) {
		upstream, requests := rawUpstream(t, noContent)
		throughProxy(t, upstream, "GET /v1/stream/a", "Cookie: arbe_session=s", "Upgrade: websocket", "Connection: Upgrade, X-Mine", "X-Mine: 1",
			"X-Forwarded-For: 1.2.3.4", "Proxy-Authorization: Basic x", "Stream-Seq: 7")
		got := <-requests
		for _, name := range []string{"Cookie", "Upgrade", "X-Mine", "X-Forwarded-For", "Proxy-Authorization", "User-Agent", "Accept-Encoding", "proxy.example"} {
			if strings.Contains(got, name) {
				t.Errorf("%s is forwarded:\n%s", name, got)
			}
		}
		if !strings.Contains(got, "Stream-Seq: 7\r\n") || !strings.Contains(got, "Host: "+upstream.Host+"\r\n") {
			t.Errorf("it forwards\n%s", got)
		}
	})
	t.Run("has no other method", func(t *testing.T) {
		for _, method := range []string{"CONNECT", "TRACE", "PATCH", "GET,", "get"} {
			upstream, requests := rawUpstream(t, noContent)
			res := throughProxy(t, upstream, method+" /v1/stream/a")
			if res.StatusCode/100 != 4 || len(requests) > 0 {
				t.Errorf("%s answers %s, and forwards %d requests", method, res.Status, len(requests))
			}
		}
	})
	t.Run("has no smuggled request", func(t *testing.T) {
		upstream, requests := rawUpstream(t, noContent)
		res := throughProxy(t, upstream, "POST /v1/stream/a", "Content-Length: 4", "Transfer-Encoding: chunked")
		if res.StatusCode == http.StatusNoContent && strings.Contains(<-requests, "Content-Length: 4") {
			t.Errorf("both lengths are forwarded")
		}
	})
	t.Run("has no endless body", func(t *testing.T) {
		upstream, requests := rawUpstream(t, noContent)
		res := throughProxy(t, upstream, "POST /v1/stream/a", fmt.Sprint("Content-Length: ", 17<<20))
		if res.StatusCode != http.StatusRequestEntityTooLarge || len(requests) > 0 {
			t.Errorf("it answers %s", res.Status)
		}
	})
}

func TestWhatTheProxyAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"a redirect":              "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/v1/stream/a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		"a protocol upgrade":      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"bytes that are not HTTP": "hello\r\n\r\n",
		"a page with a cookie":    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
		"a server's own caching":  "HTTP/1.1 200 OK\r\nCache-Control: private, max-age=60\r\nVary: Accept, Authorization, Arbe-House\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream, _ := rawUpstream(t, answer)
			res := throughProxy(t, upstream, "GET /v1/stream/a", "Authorization: Bearer scoped")
			text, _ := io.ReadAll(res.Body)
			got := response{t, res.StatusCode, res.Header, string(text)}.harmless().says("Location", "")
			if strings.Contains(answer, " 200 OK") {
				got.want(200).holds("hi")
			} else {
				got.want(502).failure()
			}
			if strings.Contains(answer, "max-age") {
				got.says("Cache-Control", "private, max-age=60")
			}
		})
	}
}
