package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/port/porttest"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// serveSite starts the site in the sandbox of a thread, and returns once the site listens.
func serveSite(t *testing.T, cfg server.Config, thread string, port int) {
	t.Helper()
	if got := output(t, cfg, thread, porttest.Start(port)); got != "listens\n" {
		t.Fatalf("the site does not start: %s", got)
	}
}

// dialPort connects to a port of the thread's sandbox.
func dialPort(t *testing.T, c *arbe.Client, thread string, port uint16) (*arbe.PortConn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := c.DialPort(ctx, thread, port)
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// askSite sends a request over a connection, and returns the body of the answer.
func askSite(t *testing.T, conn io.ReadWriter, path string) string {
	t.Helper()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestPortsOfASandboxAreReached(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	start(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	t.Run("without a sandbox there is nothing to reach, and none is built", func(t *testing.T) {
		if _, err := dialPort(t, c, thread, 3000); arbe.Reason(err) != string(fault.NoSandbox) {
			t.Errorf("the error is %v", err)
		}
		got, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
		if err != nil || got.Thread.SandboxId != "" {
			t.Errorf("the thread has sandbox %q (%v)", got.GetThread().GetSandboxId(), err)
		}
	})
	woken, err := c.WakeSandbox(t.Context(), thread, nil)
	if err != nil || woken.SandboxId == "" {
		t.Fatalf("waking builds %v (%v)", woken, err)
	}
	t.Run("nothing listens yet", func(t *testing.T) {
		if _, err := dialPort(t, c, thread, 3000); arbe.Reason(err) != string(fault.NobodyListens) || connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("the error is %v", err)
		}
	})
	serveSite(t, cfg, thread, 3000)
	t.Run("many connections at once, each its own", func(t *testing.T) {
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				conn, err := dialPort(t, c, thread, 3000)
				if err != nil {
					t.Error(err)
					return
				}
				if got := askSite(t, conn, fmt.Sprint("/", n)); !strings.HasPrefix(got, fmt.Sprintf("GET /%d\n", n)) {
					t.Errorf("%d gets %q", n, got)
				}
			})
		}
		all.Wait()
	})
	t.Run("a cookie, a stranger and a token of the thread open none", func(t *testing.T) {
		token, err := c.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: thread})
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range []string{"", "arbe_nothing", token.Token.GetToken()} {
			if _, err := dialPort(t, arbe.New(login(t, cfg).Host, shown), thread, 3000); connect.CodeOf(err) != connect.CodeUnauthenticated && connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("%.12q: %v", shown, err)
			}
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, login(t, cfg).Host+arbe.PortPath+thread+"/3000", nil)
		req.AddCookie(&http.Cookie{Name: "arbe_session", Value: login(t, cfg).Token})
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
			req.Header.Set(name, value)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("the cookie gets %s", res.Status)
		}
	})
	t.Run("a connection ends with the credential", func(t *testing.T) {
		key, err := c.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: houseOf(t, c, thread), Name: "leaves"})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := dialPort(t, arbe.New(login(t, cfg).Host, key.Key), thread, 3000)
		if err != nil {
			t.Fatal(err)
		}
		if got := askSite(t, conn, "/before"); !strings.HasPrefix(got, "GET /before") {
			t.Fatalf("it gets %q", got)
		}
		if _, err := c.Credentials.RevokeAPIKey(t.Context(), &arbev1.RevokeAPIKeyRequest{Id: key.ApiKey.Id}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("a connection ends with the sandbox", func(t *testing.T) {
		conn, err := dialPort(t, c, thread, 3000)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Sandboxes.DestroySandbox(t.Context(), &arbev1.DestroySandboxRequest{Id: woken.SandboxId, Discard: true}); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, conn)
		if _, err := dialPort(t, c, thread, 3000); arbe.Reason(err) != string(fault.NoSandbox) {
			t.Errorf("another one: %v", err)
		}
	})
}

func houseOf(t *testing.T, c *arbe.Client, thread string) string {
	t.Helper()
	got, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
	if err != nil {
		t.Fatal(err)
	}
	return got.Thread.HouseId
}

// previewer is a browser that has opened a preview, as far as HTTP goes.
type previewer struct {
	addr   string
	origin *url.URL
	pass   *http.Cookie
}

// openPreview opens the preview of a port, as the page of the thread does.
func openPreview(t *testing.T, c *arbe.Client, addr, thread string, port int32) *previewer {
	t.Helper()
	opened, err := c.Sandboxes.OpenPreview(t.Context(), &arbev1.OpenPreviewRequest{ThreadId: thread, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(opened.Url)
	if err != nil {
		t.Fatal(err)
	}
	p := &previewer{addr: addr, origin: &url.URL{Scheme: at.Scheme, Host: at.Host}}
	res, _ := p.send(t, http.MethodGet, at.RequestURI(), nil, nil)
	if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) != 1 {
		t.Fatalf("opening it answers %s with cookies %v", res.Status, res.Cookies())
	}
	p.pass = res.Cookies()[0]
	return p
}

// begin sends a request to the preview's host, and returns the answer as it arrives.
func (p *previewer) begin(t *testing.T, method, path string, header http.Header, body io.Reader) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = p.origin.Host
	for name, values := range header {
		req.Header[name] = values
	}
	if p.pass != nil {
		req.AddCookie(p.pass)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// send sends a request to the preview's host, and returns the answer and its text.
func (p *previewer) send(t *testing.T, method, path string, header http.Header, body io.Reader) (*http.Response, string) {
	t.Helper()
	res := p.begin(t, method, path, header, body)
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// TestASandboxThatIsStoppedIsStartedWhenSomebodySaysSo checks that a connection and a preview say that the sandbox is
// stopped, and do not start it.
func TestASandboxThatIsStoppedIsStartedWhenSomebodySaysSo(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.Local.IdleStop, cfg.Local.BackgroundStop = 300*time.Millisecond, 300*time.Millisecond
	start(t, cfg)
	c, addr := client(t, cfg), strings.TrimPrefix(login(t, cfg).Host, "http://")
	thread := newThread(t, c)
	p := openPreview(t, c, addr, thread, 3000)
	output(t, cfg, thread, "true")
	for pause, deadline := time.Second, time.Now().Add(2*time.Minute); ; pause *= 2 {
		time.Sleep(pause) // because each request counts as use
		conn, err := c.DialPort(t.Context(), thread, 3000)
		if arbe.Reason(err) == string(fault.NoSandbox) {
			if !strings.Contains(err.Error(), "the sandbox is stopped") {
				t.Errorf("the error is %v", err)
			}
			break
		}
		if err == nil {
			conn.Close()
		}
		if time.Now().After(deadline) {
			t.Fatalf("the sandbox is not stopped: %v", err)
		}
	}
	res, text := p.send(t, http.MethodGet, "/", http.Header{"Accept": {"text/html"}}, nil)
	for _, want := range []string{"The sandbox is stopped, and what ran in it has ended.", "/threads/" + thread + "/preview?port=3000&amp;start=yes", "Start it from the thread"} {
		if res.StatusCode != http.StatusPreconditionFailed || !strings.Contains(text, want) {
			t.Errorf("the preview answers %s and lacks %q: %s", res.Status, want, text)
		}
	}
	if strings.Contains(text, "http-equiv") {
		t.Error("the page asks again and again")
	}
	if _, err := c.DialPort(t.Context(), thread, 3000); arbe.Reason(err) != string(fault.NoSandbox) {
		t.Errorf("the preview has started it: %v", err)
	}
	if woken, err := c.WakeSandbox(t.Context(), thread, nil); err != nil || !woken.Started {
		t.Errorf("waking it answers %v, %v", woken, err)
	}
}

func TestAPreviewPassesRequestsOn(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	start(t, cfg)
	c, addr := client(t, cfg), strings.TrimPrefix(login(t, cfg).Host, "http://")
	thread := newThread(t, c)
	p := openPreview(t, c, addr, thread, 3000)
	t.Run("a thread without a sandbox gives a page that says so, and a port at which nothing listens one that tries again", func(t *testing.T) {
		page := http.Header{"Accept": {"text/html"}}
		if res, text := p.send(t, http.MethodGet, "/", page, nil); res.StatusCode != http.StatusPreconditionFailed || !strings.Contains(text, "The thread has no sandbox.") {
			t.Errorf("without a sandbox: %s %s", res.Status, text)
		}
		output(t, cfg, thread, "true")
		if res, text := p.send(t, http.MethodGet, "/", page, nil); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "Nothing listens on this port") || !strings.Contains(text, `http-equiv="refresh"`) {
			t.Errorf("without a program: %s %s", res.Status, text)
		}
	})
	serveSite(t, cfg, thread, 3000)
	t.Run("the program sees a request of its own machine, and none of arbe's cookies", func(t *testing.T) {
		_, text := p.send(t, http.MethodGet, "/x?y=1", http.Header{
			"Cookie": {"a=1; arbe_session=secret; __Host-arbe_session=secret; b=2"}, "Origin": {p.origin.String()}, "Referer": {p.origin.String() + "/z"}, "X-Forwarded-For": {"10.1.1.1"},
		}, nil)
		for _, want := range []string{"GET /x?y=1\n", "Host: localhost:3000", "Origin: http://localhost:3000", "Referer: http://localhost:3000/z", "Cookie: a=1; b=2\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("it lacks %q: %s", want, text)
			}
		}
		for _, secret := range []string{"arbe_", "secret", p.origin.Hostname(), "10.1.1.1"} {
			if strings.Contains(text, secret) {
				t.Errorf("it has %q: %s", secret, text)
			}
		}
	})
	t.Run("headers that would affect other origins are removed from answers", func(t *testing.T) {
		res, _ := p.send(t, http.MethodGet, "/hostile", nil, nil)
		for _, name := range []string{"Clear-Site-Data", "Strict-Transport-Security", "Access-Control-Allow-Origin"} {
			if res.Header.Get(name) != "" {
				t.Errorf("it has %s", name)
			}
		}
		if got := fmt.Sprint(res.Header.Values("Set-Cookie")); got != "[a=1; Path=/ b=2]" {
			t.Errorf("it sets %s", got)
		}
		if res.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" || res.Header.Get("X-Frame-Options") != "SAMEORIGIN" {
			t.Errorf("its headers are %v", res.Header)
		}
	})
	t.Run("answers before the last one are not passed on", func(t *testing.T) {
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			t.Errorf("it answers %d with %v", code, header)
			return nil
		}}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "http://"+addr+"/hints", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = p.origin.Host
		req.AddCookie(p.pass)
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || string(text) != "ok" {
			t.Errorf("it answers %s %q (%v)", res.Status, text, err)
		}
		for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "X-Hint"} {
			if res.Header.Get(name) != "" {
				t.Errorf("the last answer has the %s of another", name)
			}
		}
	})
	t.Run("a WebSocket passes", func(t *testing.T) {
		res := p.begin(t, http.MethodGet, "/socket", http.Header{
			"Origin": {p.origin.String()}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-WebSocket-Version": {"13"}, "Sec-WebSocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
		}, nil)
		socket, ok := res.Body.(io.ReadWriter)
		if res.StatusCode != http.StatusSwitchingProtocols || !ok {
			t.Fatalf("it answers %s", res.Status)
		}
		if _, err := socket.Write([]byte("\x81\x82\x00\x00\x00\x00hi")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(socket, got); err != nil || string(got) != "\x81\x02hi" {
			t.Errorf("it returns %q (%v)", got, err)
		}
	})
	t.Run("a redirect stays at the preview", func(t *testing.T) {
		if res, _ := p.send(t, http.MethodGet, "/redirect", nil, nil); res.Header.Get("Location") != p.origin.String()+"/there" {
			t.Errorf("it leads to %s", res.Header.Get("Location"))
		}
	})
	t.Run("large bodies pass", func(t *testing.T) {
		body := strings.NewReader(strings.Repeat("x", 20<<20))
		if _, text := p.send(t, http.MethodPost, "/upload", nil, body); text != fmt.Sprintf("POST /upload %d", 20<<20) {
			t.Errorf("it says %s", text)
		}
	})
	t.Run("pages of other hosts may open it, and nothing else", func(t *testing.T) {
		for _, c := range []struct {
			method string
			header http.Header
			want   int
		}{
			{"GET", http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}, http.StatusOK},
			{"GET", http.Header{"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"iframe"}}, http.StatusForbidden},
			{"GET", http.Header{"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Dest": {"empty"}}, http.StatusForbidden},
			{"GET", http.Header{"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Dest": {"script"}}, http.StatusForbidden},
			{"POST", http.Header{"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}, http.StatusForbidden},
			{"POST", http.Header{"Origin": {"http://" + addr}}, http.StatusForbidden},
			{"GET", http.Header{"Origin": {"http://" + addr}}, http.StatusForbidden},
			{"GET", http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}, http.StatusForbidden},
			{"GET", http.Header{"Sec-Fetch-Site": {"same-origin"}}, http.StatusOK},
		} {
			if res, _ := p.send(t, c.method, "/", c.header, nil); res.StatusCode != c.want {
				t.Errorf("%s with %v answers %s", c.method, c.header, res.Status)
			}
		}
	})
	t.Run("a pass opens its own preview, and no other door", func(t *testing.T) {
		other := openPreview(t, c, addr, newThread(t, c), 3000)
		other.pass = p.pass
		if res, _ := other.send(t, http.MethodGet, "/", nil, nil); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("another thread's preview answers %s", res.Status)
		}
		if _, err := arbe.New(login(t, cfg).Host, p.pass.Value).Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("the services answer %v", err)
		}
		house := *p
		house.origin = &url.URL{Scheme: "http", Host: addr}
		if res, _ := house.send(t, http.MethodGet, "/threads/"+thread, nil, nil); res.StatusCode == http.StatusOK {
			t.Errorf("the house's page answers %s", res.Status)
		}
		for _, path := range []string{"/login", "/api/stream/arbe-thread-" + thread, "/arbe.v1.AgentService/WhoAmI", "/static/arbe.css", "/healthz"} {
			if _, text := p.send(t, http.MethodGet, path, nil, nil); !strings.HasPrefix(text, "GET "+path) {
				t.Errorf("%s of the preview's host is not the program's: %s", path, text)
			}
		}
	})
	t.Run("a stranger gets nothing", func(t *testing.T) {
		stranger := *p
		for _, pass := range []*http.Cookie{nil, {Name: p.pass.Name, Value: "x"}, {Name: p.pass.Name, Value: p.pass.Value + "x"}, {Name: "arbe_session", Value: login(t, cfg).Token}} {
			stranger.pass = pass
			if res, text := stranger.send(t, http.MethodGet, "/", nil, nil); res.StatusCode != http.StatusUnauthorized || strings.Contains(text, "GET /") {
				t.Errorf("%v: it answers %s", pass, res.Status)
			}
		}
		if res, _ := stranger.send(t, http.MethodGet, "/.arbe/open?ticket="+p.pass.Value, nil, nil); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("a pass as a ticket: %s", res.Status)
		}
	})
	t.Run("its address is opened once, and again only where it is open", func(t *testing.T) {
		opened, err := c.Sandboxes.OpenPreview(t.Context(), &arbev1.OpenPreviewRequest{ThreadId: thread, Port: 3000})
		if err != nil {
			t.Fatal(err)
		}
		at, err := url.Parse(opened.Url)
		if err != nil {
			t.Fatal(err)
		}
		stranger, reader := *p, *p
		stranger.pass, reader.pass = nil, nil
		if res, _ := reader.send(t, http.MethodHead, at.RequestURI(), nil, nil); len(res.Cookies()) != 0 {
			t.Errorf("a look at the address gets cookies: %v", res.Cookies())
		}
		res, _ := reader.send(t, http.MethodGet, at.RequestURI(), nil, nil)
		if len(res.Cookies()) != 1 {
			t.Fatalf("opening it answers %s", res.Status)
		}
		reader.pass = res.Cookies()[0]
		if res, _ := stranger.send(t, http.MethodGet, at.RequestURI(), nil, nil); res.StatusCode != http.StatusUnauthorized || len(res.Cookies()) != 0 {
			t.Errorf("whoever finds it answers %s with cookies %v", res.Status, res.Cookies())
		}
		if res, _ := reader.send(t, http.MethodGet, at.RequestURI(), nil, nil); res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/" {
			t.Errorf("the reader who goes back gets %s", res.Status)
		}
	})
	t.Run("it ends with the membership, what is open included, and strangers to the house open none", func(t *testing.T) {
		house := houseOf(t, c, thread)
		invite, err := c.Houses.CreateInvite(t.Context(), &arbev1.CreateInviteRequest{HouseId: house})
		if err != nil {
			t.Fatal(err)
		}
		joined, err := arbe.New(login(t, cfg).Host, "").Houses.AcceptInvite(t.Context(), &arbev1.AcceptInviteRequest{Token: strings.TrimPrefix(invite.Path, "/join?token="), Name: "Bea"})
		if err != nil {
			t.Fatal(err)
		}
		bea := arbe.New(login(t, cfg).Host, joined.Session)
		hers := openPreview(t, bea, addr, thread, 3000)
		events := hers.begin(t, http.MethodGet, "/events", nil, nil)
		awaitLine(t, events.Body, "first")
		if _, err := c.Houses.RemoveMember(t.Context(), &arbev1.RemoveMemberRequest{HouseId: house, AgentId: joined.Agent.Id}); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, events.Body) // it ends
		if res, text := hers.send(t, http.MethodGet, "/", nil, nil); res.StatusCode != http.StatusNotFound || strings.Contains(text, "GET /") {
			t.Errorf("afterwards it answers %s", res.Status)
		}
		if _, err := bea.Sandboxes.OpenPreview(t.Context(), &arbev1.OpenPreviewRequest{ThreadId: thread, Port: 3000}); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("opening another: %v", err)
		}
		if _, err := dialPort(t, bea, thread, 3000); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("its port: %v", err)
		}
	})
	t.Run("it ends with the credential that opened it", func(t *testing.T) {
		key, err := c.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: houseOf(t, c, thread), Name: "leaves"})
		if err != nil {
			t.Fatal(err)
		}
		theirs := openPreview(t, arbe.New(login(t, cfg).Host, key.Key), addr, thread, 3000)
		if res, _ := theirs.send(t, http.MethodGet, "/", nil, nil); res.StatusCode != http.StatusOK {
			t.Fatalf("it answers %s", res.Status)
		}
		if _, err := c.Credentials.RevokeAPIKey(t.Context(), &arbev1.RevokeAPIKeyRequest{Id: key.ApiKey.Id}); err != nil {
			t.Fatal(err)
		}
		if res, _ := theirs.send(t, http.MethodGet, "/", nil, nil); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("afterwards it answers %s", res.Status)
		}
	})
	t.Run("a sandbox that was deleted shows nothing", func(t *testing.T) {
		got, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Sandboxes.DestroySandbox(t.Context(), &arbev1.DestroySandboxRequest{Id: got.Thread.SandboxId, Discard: true}); err != nil {
			t.Fatal(err)
		}
		if res, text := p.send(t, http.MethodGet, "/", http.Header{"Accept": {"text/html"}}, nil); res.StatusCode != http.StatusPreconditionFailed || !strings.Contains(text, "The thread has no sandbox.") {
			t.Errorf("it answers %s: %s", res.Status, text)
		}
	})
}
