//go:build linux

package dispatch_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/turn"
)

// site is a web server that bots may reach, beside one that they may not.
type site struct {
	*botBench
	url, host string
	inside    *httptest.Server
	reached   atomic.Int32 // requests to the other one
}

func newSite(t *testing.T, f dispatch.Fetch, most time.Duration, serve http.HandlerFunc) *site {
	t.Helper()
	return newSiteWith(t, f, most, serve, nil)
}

func newSiteWith(t *testing.T, f dispatch.Fetch, most time.Duration, serve http.HandlerFunc, script func(s *site) modeltest.Script) *site {
	t.Helper()
	s := &site{}
	web := httptest.NewServer(serve)
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	s.inside = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.reached.Add(1) }))
	t.Cleanup(s.inside.Close)
	s.url, s.host = web.URL, strings.TrimPrefix(web.URL, "http://")
	var of modeltest.Script
	if script != nil {
		of = script(s)
	}
	s.botBench = benchWithBot(database(t), of)
	tune := s.tune
	s.tune = func(c *dispatch.Config) { tune(c); c.Fetch = f.Private(s.host, most) }
	s.driver = newGated()
	s.server = s.serve()
	return s
}

func (s *site) fetch(url string, offset int) (turn.Result, error) {
	s.t.Helper()
	text, _ := json.Marshal(args{"url": url, "offset": offset})
	return s.dispatcher.RunTool(s.t.Context(), entry.FetchTool, turn.Call{Arguments: text})
}

func TestABotFetchesAPage(t *testing.T) {
	t.Parallel()
	s := newSite(t, dispatch.Fetch{}, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		if len(r.Cookies()) > 0 || r.Header.Get("Authorization") != "" || r.Header.Get("Referer") != "" {
			t.Errorf("the request has the headers %v", r.Header)
		}
		http.SetCookie(w, &http.Cookie{Name: "id", Value: "1"})
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/page", http.StatusFound)
		case "/page":
			w.Header().Set("Content-Type", "text/html; charset=iso-8859-1")
			io.WriteString(w, "<script>evil()</script><h1>Caf\xe9</h1><p>See <a href='/next'>this</a> &amp; <b>that</b>.</p>")
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"a": [1]}`)
		case "/image":
			w.Header().Set("Content-Type", "image/png")
			w.Write([]byte("\x89PNG\r\n\x1a\n"))
		case "/long":
			io.WriteString(w, strings.Repeat("0123456789abcde\n", 10_000))
		default:
			http.Error(w, "nothing here", http.StatusNotFound)
		}
	})
	for path, want := range map[string]string{
		"/moved": s.url + "/page, status 200, text/html; charset=iso-8859-1\n\n# Café\n\nSee [this](" + s.url + "/next) & **that**.",
		"/json":  s.url + "/json, status 200, application/json\n\n{\"a\": [1]}",
		"/image": s.url + "/image, status 200, image/png\n\n(this is not text, but image/png of 8 bytes)",
	} {
		if got, err := s.fetch(s.url+path, 0); err != nil || got.Text != want || got.Failed {
			t.Errorf("%s: %q (%s), want %q", path, got.Text, detail(err), want)
		}
	}
	if got, err := s.fetch(s.url+"/gone", 0); err != nil || !got.Failed || !strings.Contains(got.Text, "status 404") {
		t.Errorf("a page that is not there: %+v (%s)", got, detail(err))
	}
	if got, err := s.fetch(s.url+"/long", 32<<10); err != nil || !strings.Contains(got.Text, "\n\n0123456789abcde\n") || !strings.HasSuffix(got.Text, "(bytes 32768 to 65536 of 160000; read on with offset 65536)") {
		t.Errorf("a part of a long page: %.100q … %q (%s)", got.Text, got.Text[max(0, len(got.Text)-100):], detail(err))
	}
}

func TestNoFetchReachesWhatIsNotPublic(t *testing.T) {
	t.Parallel()
	s := newSite(t, dispatch.Fetch{}, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/loop" {
			http.Redirect(w, r, "/loop", http.StatusFound)
			return
		}
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	port := s.inside.URL[strings.LastIndex(s.inside.URL, ":"):]
	for _, address := range []string{
		s.inside.URL, "http://localhost" + port, "http://[::ffff:127.0.0.1]" + port, "http://0" + port, "http://2130706433" + port, "http://169.254.169.254/latest/meta-data/",
		"http://[fe80::1%25lo]/", "http://10.0.0.1/", "https://192.168.0.1/", "http://metadata.google.internal./", "file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/",
		"http://a:b@127.0.0.1" + port, "//127.0.0.1" + port, "http:127.0.0.1", "http://", "\x00", "http://a\nb/", strings.Repeat("http://127.0.0.1/", 1000),
	} {
		for _, via := range []string{address, s.url + "/?to=" + strings.NewReplacer("%", "%25", "\n", "%0a", "&", "%26").Replace(address)} {
			if got, err := s.fetch(via, 0); err == nil && !strings.Contains(got.Text, "status 302") {
				t.Errorf("%.80q returns %q", via, got.Text)
			} else if err != nil && !slices.Contains([]fault.Code{fault.Invalid, fault.Forbidden}, fault.CodeOf(err)) {
				t.Errorf("%.80q: %s", via, detail(err))
			}
		}
	}
	if n := s.reached.Load(); n != 0 {
		t.Errorf("a server inside was reached %d times", n)
	}
	if _, err := s.fetch(s.url+"/loop", 0); fault.CodeOf(err) != fault.Invalid || !strings.Contains(detail(err), "redirects") {
		t.Errorf("a loop of redirects: %s", detail(err))
	}
}

func TestAHostileServerCostsAFetchLittle(t *testing.T) {
	t.Parallel()
	s := newSite(t, dispatch.Fetch{}, 2*time.Second, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/drip":
			for {
				if _, err := io.WriteString(w, "x"); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
				select {
				case <-r.Context().Done():
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		case "/silent":
			<-r.Context().Done()
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			z := gzip.NewWriter(w)
			for range 1 << 10 {
				if _, err := z.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		case "/deep":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, strings.Repeat("<div><b><i>", 100_000))
		case "/table":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, strings.Repeat("<table><tr><td><a>", 50_000))
		}
	})
	for _, path := range []string{"/drip", "/silent", "/bomb", "/deep", "/table"} {
		began := time.Now()
		got, err := s.fetch(s.url+path, 0)
		if took := time.Since(began); took > 20*time.Second || len(got.Text) > 48<<10 {
			t.Errorf("%s takes %s and returns %d bytes (%s)", path, took, len(got.Text), detail(err))
		}
		if (path == "/drip" || path == "/silent") && fault.CodeOf(err) != fault.Exhausted {
			t.Errorf("%s: %s", path, detail(err))
		}
	}
}

func TestTheOperatorLimitsWhatIsFetched(t *testing.T) {
	t.Parallel()
	s := newSite(t, dispatch.Fetch{Hosts: []string{"example.org"}}, time.Minute, func(http.ResponseWriter, *http.Request) {})
	for _, address := range []string{s.url, "http://example.org.evil.test/", "http://notexample.org/"} {
		if _, err := s.fetch(address, 0); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s: %s", address, detail(err))
		}
	}
	off := newSite(t, dispatch.Fetch{Off: true}, time.Minute, func(http.ResponseWriter, *http.Request) {})
	if slices.Contains(off.dispatcher.ToolNames(), entry.FetchTool) {
		t.Error("a tool that is turned off is there")
	}
	if slices.Contains(entry.DefaultTools, entry.FetchTool) {
		t.Error("a bot may fetch although nobody said so")
	}
}

func TestATurnMayFetchOnlySoOften(t *testing.T) {
	t.Parallel()
	served := atomic.Int32{}
	r := newSiteWith(t, dispatch.Fetch{}, time.Minute, func(http.ResponseWriter, *http.Request) { served.Add(1) }, func(s *site) modeltest.Script {
		var asked []any
		for i := range 60 {
			asked = append(asked, args{"url": fmt.Sprint(s.url, "/", i)})
		}
		return calls(entry.FetchTool, asked...)
	}).botBench
	r.th = r.conversation()
	r.says("q", "@bot go")
	r.answer("q")
	refused := 0
	for _, result := range of[entry.PiToolResult](r.entries()) {
		if result.IsError && strings.Contains(result.Text(), "a turn may call fetch 40 times") {
			refused++
		}
	}
	if served.Load() != 40 || refused != 20 {
		t.Errorf("%d of 60 were fetched, and %d refused", served.Load(), refused)
	}
}
