package web_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/net/html"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web"
)

// evil is a text that tries many ways to run a script.
const evil = `<script>window.evil=1</script><img src=x onerror="window.evil=1"><b data-init="window.evil=1">"'</b>`

// client is a browser without scripts. It does not follow redirects, so that a test sees them.
type client struct {
	t    *testing.T
	base string
	// session is the session cookie. It is empty if nobody is logged in.
	session string
}

func (c client) send(r *http.Request) (*http.Response, string) {
	c.t.Helper()
	if c.session != "" {
		r.AddCookie(&http.Cookie{Name: "arbe_session", Value: c.session})
	}
	stay := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := stay.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res, string(text)
}

func (c client) get(path string) (*http.Response, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.base+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.send(r)
}

func (c client) post(path string, form url.Values, headers ...string) (*http.Response, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return c.send(r)
}

// ada returns a client that is logged in.
func ada(t *testing.T, f *fake) client { return client{t: t, base: f.start(t), session: "good"} }

func TestWhatPeopleWriteIsOnlyText(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.house.Name, f.me.Name = evil, evil
	th := f.thread("evilevil", evil)
	th.Tags, th.SandboxId = []string{evil}, "box1"
	f.boxes["box1"] = &arbev1.Sandbox{Id: evil, Provider: evil}
	f.says(th.Id, f.me.Id, "", entry.Chat{Text: evil})
	f.says(th.Id, f.me.Id, "", entry.Chat{Text: "```html\n" + evil + "\n```\n\n[x](javascript:evil) ![i](https://example.com/i.png) <div onclick=evil>\n\n" + evil})
	f.says(th.Id, f.me.Id, "c1", entry.Command{Command: "echo '" + evil + "'"})
	f.says(th.Id, "", "c1.result", entry.CommandResult{CommandID: "c1", SandboxID: evil, ExitCode: 1, Output: evil + "\x1b]8;;javascript:evil\x07link\x1b]8;;\x07\x1b]1338;url=http://e/x.png\x07", Error: evil})
	f.append(th.Id, evil, "", evil, `{"<script>":"<img src=x onerror=evil>"}`)
	f.append(th.Id, f.me.Id, "", "chat", `{"text":17}`)
	f.says(th.Id, "", "", entry.StatusChanged{From: evil, To: evil, Reason: evil})
	f.says(th.Id, "", "", entry.EnvironmentPrepared{SandboxID: "box1", Steps: []entry.PreparationStep{{Name: evil, ExitCode: 1, Output: evil}}})
	c := ada(t, f)

	for _, path := range []string{"/threads/evilevil", "/houses/home", "/threads/evilevil/entries/2", "/threads/" + url.PathEscape(evil), "/login?token=fresh", "/login?token=" + url.QueryEscape(evil)} {
		t.Run("on "+clipped(path), func(t *testing.T) {
			t.Parallel()
			_, text := c.get(path)
			harmless(t, text)
		})
	}
	t.Run("and all of it can be read", func(t *testing.T) {
		t.Parallel()
		_, text := c.get("/threads/evilevil")
		if n := strings.Count(text, "&lt;script&gt;"); n < 12 {
			t.Errorf("the page shows it %d times as text, want at least 12", n)
		}
	})
}

// harmless fails the test if a page has an element or an attribute that no template has.
func harmless(t *testing.T, page string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "img" || n.Data == "style" || n.Data == "script" && !strings.HasPrefix(attribute(n, "src"), "/static/") {
			t.Errorf("the page has <%s %v>", n.Data, n.Attr)
		}
		for _, a := range n.Attr {
			datastar := strings.HasPrefix(a.Key, "data-init") || strings.HasPrefix(a.Key, "data-on")
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "style":
				t.Errorf("<%s> has the attribute %s", n.Data, a.Key)
			case datastar && strings.Contains(a.Val, "evil"):
				t.Errorf("an expression has what somebody wrote: %s=%q", a.Key, a.Val)
			case a.Key == "href" && strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.Val)), "javascript:"):
				t.Errorf("a link runs a script: %q", a.Val)
			}
		}
	}
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func clipped(s string) string { return s[:min(len(s), 30)] }

func TestLogin(t *testing.T) {
	t.Parallel()
	f := newFake()
	nobody := client{t: t, base: f.start(t)}

	t.Run("a page without a session leads to the login page", func(t *testing.T) {
		t.Parallel()
		res, _ := nobody.get("/threads/whatever")
		want(t, res, http.StatusSeeOther, "/login")
		_, text := nobody.get("/login")
		contains(t, text, "arbe login")
	})
	t.Run("opening a link asks, and uses nothing up", func(t *testing.T) {
		t.Parallel()
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodGet} {
			r, _ := http.NewRequestWithContext(t.Context(), method, nobody.base+"/login?token=fresh", nil)
			res, text := nobody.send(r)
			if res.StatusCode != http.StatusOK || len(res.Cookies()) > 0 {
				t.Errorf("%s answers %d with the cookies %v", method, res.StatusCode, res.Cookies())
			}
			if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Referrer-Policy") != "strict-origin" {
				t.Errorf("the token may leak: the headers are %v", res.Header)
			}
			if method == http.MethodGet {
				contains(t, text, `method="post" action="/login"`, `name="token" value="fresh"`, "Log in as Ada</button>")
				lacks(t, text, "You are logged in")
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.redeemed != 0 {
			t.Errorf("%d login links were used", f.redeemed)
		}
	})
	t.Run("the form logs in and leads home", func(t *testing.T) {
		f := newFake()
		nobody := client{t: t, base: f.start(t)}
		res, _ := nobody.post("/login", url.Values{"token": {"fresh"}}, "Sec-Fetch-Site", "same-origin", "X-Forwarded-Proto", "https")
		want(t, res, http.StatusSeeOther, "/")
		c := res.Cookies()[0]
		if c.Name != "arbe_session" || c.Value != "good" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure {
			t.Errorf("the cookie is %v", c)
		}
		if len(f.ended) > 0 {
			t.Errorf("the sessions %q ended", f.ended)
		}
	})
	t.Run("another site's form does not log in", func(t *testing.T) {
		t.Parallel()
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
		} {
			res, _ := nobody.post("/login", url.Values{"token": {"other"}}, header...)
			if res.StatusCode != http.StatusForbidden || len(res.Cookies()) > 0 {
				t.Errorf("with %q it answers %d with the cookies %v", header, res.StatusCode, res.Cookies())
			}
		}
		res, _ := nobody.post("/login?token=other", nil)
		if len(res.Cookies()) > 0 {
			t.Error("opening a login link logs in without confirmation")
		}
	})
	t.Run("somebody else's link says whose it is, and who is logged in", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		in := ada(t, f)
		_, text := in.get("/login?token=other")
		contains(t, text, "Log in as Mallory?", "You are logged in as <strong>Ada</strong> now.", "Stay logged in as Ada")
		_, text = in.get("/login?token=fresh")
		contains(t, text, "You are logged in as Ada already.")
		res, _ := in.post("/login", url.Values{"token": {"other"}})
		want(t, res, http.StatusSeeOther, "/")
		if f.mu.Lock(); len(f.ended) != 1 || f.ended[0] != "__Host-arbe_session=good" {
			t.Errorf("the sessions %q ended, want the one before", f.ended)
		}
		f.mu.Unlock()
	})
	t.Run("cookies are for https alone where browsers use it", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.secure = true
		nobody := client{t: t, base: f.start(t)}
		login, _ := nobody.post("/login", url.Values{"token": {"fresh"}})
		theme, _ := nobody.post("/theme", url.Values{"theme": {"dark"}})
		for name, res := range map[string]*http.Response{"__Host-arbe_session": login, "__Host-arbe_theme": theme} {
			if c := res.Cookies()[0]; c.Name != name || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" {
				t.Errorf("the cookie is %v", c)
			}
		}
		get := func(cookie string) *http.Response {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, nobody.base+"/", nil)
			r.Header.Set("Cookie", cookie)
			res, _ := nobody.send(r)
			return res
		}
		want(t, get("__Host-arbe_session=good"), http.StatusSeeOther, "/houses/home")
		want(t, get("arbe_session=good"), http.StatusSeeOther, "/login") // another host of the domain can set this one
	})
	t.Run("a used link says so, and how to get another", func(t *testing.T) {
		t.Parallel()
		for _, answer := range []func() (*http.Response, string){
			func() (*http.Response, string) { return nobody.get("/login?token=used") },
			func() (*http.Response, string) { return nobody.post("/login", url.Values{"token": {"used"}}) },
		} {
			res, text := answer()
			want(t, res, http.StatusUnauthorized, "")
			contains(t, text, "This login link was used already.", "Log in with a new link.")
		}
	})
	t.Run("a session that ended leads to the login page, but never loses a text", func(t *testing.T) {
		t.Parallel()
		f.thread("ended123", "Ended")
		ended := client{t: t, base: nobody.base, session: "old"}
		res, _ := ended.get("/threads/ended123")
		want(t, res, http.StatusSeeOther, "/login")
		res, text := ended.post("/threads/ended123/entries", url.Values{"entry": {"abcdefgh"}, "text": {"a long thought"}})
		want(t, res, http.StatusUnauthorized, "")
		contains(t, text, ">a long thought</textarea>", `value="abcdefgh"`)
	})
	t.Run("a login leads to the page that was asked for before it", func(t *testing.T) {
		t.Parallel()
		nobody := client{t: t, base: newFake().start(t)}
		after := func(cookie string) string {
			t.Helper()
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, nobody.base+"/login", strings.NewReader("token=fresh"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if cookie != "" {
				r.AddCookie(&http.Cookie{Name: "arbe_wanted", Value: cookie})
			}
			res, _ := nobody.send(r)
			if res.StatusCode != http.StatusSeeOther {
				t.Errorf("the answer is %d", res.StatusCode)
			}
			return res.Header.Get("Location")
		}
		for asked, want := range map[string]string{
			"/threads/deep1234":                      "/threads/deep1234",
			"/threads/deep1234?at=17":                "/threads/deep1234?at=17#e17",
			"/threads/deep1234?at=%3Cb%3E":           "/threads/deep1234?at=%3Cb%3E",
			"/houses/home?page=a%2Fb":                "/houses/home?page=a%2Fb",
			"/threads/" + strings.Repeat("x", 4_000): "/", // too long to remember
		} {
			res, _ := nobody.get(asked)
			var cookie *http.Cookie
			for _, c := range res.Cookies() {
				if c.Name == "arbe_wanted" {
					cookie = c
				}
			}
			if cookie == nil || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode {
				t.Fatalf("%.60s: the cookies are %v", asked, res.Cookies())
			}
			if got := after(cookie.Value); got != want {
				t.Errorf("%.60s leads to %q, want %q", asked, got, want)
			}
		}
		for _, evil := range []string{"https://evil.example/", "//evil.example", "/\\evil.example", "/%09/evil.example", "javascript:alert(1)", "%zz", ""} {
			if got := after(url.QueryEscape(evil)); got != "/" && !strings.HasPrefix(got, "/%09/") {
				t.Errorf("%q leads to %q", evil, got)
			}
			if got := after(evil); strings.HasPrefix(got, "//") || strings.Contains(got, ":") {
				t.Errorf("%q leads to %q", evil, got)
			}
		}
	})
	t.Run("logging out forgets the cookie", func(t *testing.T) {
		t.Parallel()
		res, _ := client{t: t, base: nobody.base, session: "good"}.post("/logout", nil)
		want(t, res, http.StatusSeeOther, "/login")
		if c := res.Cookies()[0]; c.Value != "" || c.MaxAge > 0 {
			t.Errorf("the cookie is %v", c)
		}
	})
}

func TestWithoutAScript(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("plainplain", "Plain")
	c := ada(t, f)

	t.Run("who has one house goes right in", func(t *testing.T) {
		t.Parallel()
		res, _ := c.get("/")
		want(t, res, http.StatusSeeOther, "/houses/home")
	})
	t.Run("a form says something and leads to it", func(t *testing.T) {
		t.Parallel()
		f.thread("saysthread", "")
		form := url.Values{"entry": {"firstfirst"}, "text": {"Hello\r\nworld"}}
		for range 2 { // sending it twice writes one entry
			res, _ := c.post("/threads/saysthread/entries", form)
			want(t, res, http.StatusSeeOther, "/threads/saysthread#e1")
		}
		if log := f.log("saysthread"); len(log) != 1 || log[0].Payload != `{"text":"Hello\nworld"}` {
			t.Errorf("the log is %v", log)
		}
	})
	t.Run("a text that begins with ! or /run is a command", func(t *testing.T) {
		t.Parallel()
		f.thread("runsthread", "")
		c.post("/threads/runsthread/entries", url.Values{"entry": {"firstfirst"}, "text": {"!ls -l"}})
		c.post("/threads/runsthread/entries", url.Values{"entry": {"secondsecond"}, "text": {"/run make test"}})
		_, text := c.get("/threads/runsthread")
		contains(t, text, "ls -l", "make test", "/threads/runsthread/commands/firstfirst/cancel")
	})
	t.Run("a new thread starts with its first message, once", func(t *testing.T) {
		t.Parallel()
		form := url.Values{"thread": {"newthread1"}, "entry": {"entryentry"}, "text": {"Fix the login\nplease"}}
		for range 2 {
			res, _ := c.post("/houses/home/threads", form)
			want(t, res, http.StatusSeeOther, "/threads/newthread1#composer-text")
		}
		if name, log := f.row("newthread1").Name, f.log("newthread1"); name != "Fix the login" || len(log) != 1 {
			t.Errorf("the thread is %q with the log %v", name, log)
		}
	})
	t.Run("a thread is renamed, tagged, pinned, closed and deleted", func(t *testing.T) {
		t.Parallel()
		th := f.thread("changeme01", "Old")
		c.post("/threads/changeme01", url.Values{"name": {" New "}})
		c.post("/threads/changeme01", url.Values{"tags": {"a, b,,a"}})
		c.post("/threads/changeme01", url.Values{"pinned": {"true"}})
		c.post("/threads/changeme01", url.Values{"status": {"closed"}})
		if th.Name != "New" || strings.Join(th.Tags, "+") != "a+b" || th.PinnedAt == nil || th.Status != arbev1.ThreadStatus_THREAD_STATUS_CLOSED {
			t.Errorf("the thread is %v", th)
		}
		res, _ := c.post("/threads/changeme01/delete", nil)
		want(t, res, http.StatusSeeOther, "/houses/home")
		res, _ = c.get("/threads/changeme01")
		want(t, res, http.StatusNotFound, "")
	})
	t.Run("the theme is remembered and goes back to the page", func(t *testing.T) {
		t.Parallel()
		res, _ := c.post("/theme", url.Values{"theme": {"dark"}, "back": {"/threads/plainplain"}})
		want(t, res, http.StatusSeeOther, "/threads/plainplain")
		if got := res.Cookies()[0]; got.Name != "arbe_theme" || got.Value != "dark" {
			t.Errorf("the cookie is %v", got)
		}
		res, _ = c.post("/theme", url.Values{"theme": {"dark"}, "back": {"//example.com"}})
		want(t, res, http.StatusSeeOther, "/")
	})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("badbadbad", "Bad")
	c := ada(t, f)
	say := func(text string) (*http.Response, string) {
		return c.post("/threads/badbadbad/entries", url.Values{"entry": {"abcdefgh"}, "text": {text}})
	}
	cases := map[string]struct {
		ask    func() (*http.Response, string)
		status int
		says   []string
	}{
		"a thread that is not there":   {func() (*http.Response, string) { return c.get("/threads/nope") }, 404, []string{"There is no thread nope.", "List the threads of the house."}},
		"a house that is not there":    {func() (*http.Response, string) { return c.get("/houses/nope") }, 404, []string{"There is no house nope."}},
		"a page that is not there":     {func() (*http.Response, string) { return c.get("/nope") }, 404, []string{"There is no such page."}},
		"an entry that is not there":   {func() (*http.Response, string) { return c.get("/threads/badbadbad/entries/9") }, 404, []string{"no entry 9"}},
		"a position that is no number": {func() (*http.Response, string) { return c.get("/threads/badbadbad?at=x") }, 400, []string{"is not a position in a log", "Use a whole number, such as 1."}},
		"an empty text":                {func() (*http.Response, string) { return say(" \n") }, 400, []string{"Write something."}},
		"a command without a command":  {func() (*http.Response, string) { return say("!") }, 400, []string{"There is nothing to run.", ">!</textarea>"}},
		"a text that is not UTF-8":     {func() (*http.Response, string) { return say("a\xffb") }, 400, []string{"not valid UTF-8"}},
		"a text of a MiB":              {func() (*http.Response, string) { return say(strings.Repeat("x", 1<<20)) }, 413, []string{"This is larger than 1 MiB.", "Shorten it, or put it into a file."}},
		"a form larger than any text":  {func() (*http.Response, string) { return say(strings.Repeat("x", 5<<20)) }, 413, []string{"Request Entity Too Large", "larger than 4 MiB"}},
		"a form with an id of its own": {func() (*http.Response, string) {
			return c.post("/threads/badbadbad/entries", url.Values{"entry": {`"><b>`}, "text": {"kept"}})
		}, 400, []string{"id is not valid", ">kept</textarea>"}},
		"a form sent from another site": {func() (*http.Response, string) {
			return c.post("/threads/badbadbad/delete", nil, "Sec-Fetch-Site", "cross-site")
		}, 403, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, text := tc.ask()
			want(t, res, tc.status, "")
			contains(t, text, tc.says...)
		})
	}
}

func TestARefusedTextComesBack(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("refused01", "Refused")
	f.failWith(refused(connect.CodeFailedPrecondition, "the house has no environment", "set one with arbe house update"))
	c := ada(t, f)
	form := url.Values{"entry": {"abcdefgh"}, "text": {"!make"}}

	t.Run("on a page, with the reason and what to do", func(t *testing.T) {
		t.Parallel()
		res, text := c.post("/threads/refused01/entries", form)
		want(t, res, http.StatusPreconditionFailed, "")
		contains(t, text, "The house has no environment.", "Choose or change an environment under Members and settings.", ">!make</textarea>", `value="abcdefgh"`)
	})
	t.Run("what is too large is said to the script too", func(t *testing.T) {
		t.Parallel()
		res, text := c.post("/threads/refused01/entries", url.Values{"entry": {"abcdefgh"}, "text": {strings.Repeat("x", 5<<20)}}, "Datastar-Request", "true")
		want(t, res, http.StatusRequestEntityTooLarge, "")
		if text != "This is larger than 4 MiB. Shorten it, or put it into a file." {
			t.Errorf("it says %.200q", text)
		}
	})
	t.Run("what may pass is no refusal to the script, which tries again", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.thread("passing01", "Passing")
		f.failWith(refused(connect.CodeUnavailable, "the database is away", "try again"))
		res, _ := ada(t, f).post("/threads/passing01/entries", form, "Datastar-Request", "true")
		want(t, res, http.StatusServiceUnavailable, "")
	})
	t.Run("to the script, at the place it waits", func(t *testing.T) {
		t.Parallel()
		res, text := c.post("/threads/refused01/entries", form, "Datastar-Request", "true")
		want(t, res, http.StatusOK, "")
		contains(t, text, `id="out-abcdefgh"`, "refused", "Not sent. The house has no environment. Choose or change an environment under Members and settings.")
	})
}

func TestAClosedThreadHasNoComposer(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("closedone", "Done").Status = arbev1.ThreadStatus_THREAD_STATUS_CLOSED
	c := ada(t, f)
	_, text := c.get("/threads/closedone")
	contains(t, text, `class="thread-head closed"`, "This thread is closed.", ">Reopen</button>")
	res, text := c.post("/threads/closedone/entries", url.Values{"entry": {"abcdefgh"}, "text": {"kept"}})
	want(t, res, http.StatusPreconditionFailed, "")
	contains(t, text, "This thread is closed.", "Reopen it to write or run something in it.", ">kept</textarea>")
	c.post("/threads/closedone", url.Values{"status": {"open"}})
	res, _ = c.post("/threads/closedone/entries", url.Values{"entry": {"abcdefgh"}, "text": {"kept"}})
	want(t, res, http.StatusSeeOther, "/threads/closedone#e1")
}

func TestWhatASandboxWaitsForIsShownOnce(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("bootboot", "Boot").EnvironmentId = "env7"
	build := func(command, sandbox string, exit int) {
		f.says("bootboot", f.me.Id, command, entry.Command{Command: "make " + command})
		f.says("bootboot", "", entry.PreparationID(sandbox), entry.EnvironmentPrepared{SandboxID: sandbox, Steps: []entry.PreparationStep{
			{Name: "clone", DurationMS: 1200, Output: "Cloning " + sandbox}, {Name: "setup", ExitCode: exit, DurationMS: 3000, Output: "output of " + sandbox}}})
	}
	build("bad", "sbone", 3)
	f.says("bootboot", "", entry.ResultID("bad"), entry.CommandResult{CommandID: "bad", ExitCode: -1,
		Error: "the sandbox could not be made ready: setup failed with exit code 3\noutput of sbone; mend the environment"})
	build("good", "sbtwo", 0)
	f.says("bootboot", "", entry.ResultID("good"), entry.CommandResult{CommandID: "good", SandboxID: "sbtwo", Output: "done\n", OutputBytes: 5})
	for range 120 {
		f.says("bootboot", f.me.Id, "", entry.Chat{Text: "talk"})
	}
	c := ada(t, f)
	_, text := c.get("/threads/bootboot/entries?before=8")

	t.Run("a failed setup, with what to do", func(t *testing.T) {
		for _, once := range []string{"output of sbone", "setup failed with exit code 3", "did not run"} {
			if n := strings.Count(text, once); n != 1 {
				t.Errorf("%q is there %d times", once, n)
			}
		}
		contains(t, text, `action="/threads/bootboot/entries/1/again"`, ">Retry</button>", `href="/environments/env7">Edit environment</a>`, `action="/environments/env7/diagnose"`)
	})
	t.Run("one that went well, before the output of its command", func(t *testing.T) {
		steps, output, foot := strings.Index(text, "Sandbox ready: clone 1.2s, setup 3.0s."), strings.Index(text, "done"), strings.Index(text, "exit 0")
		if steps < 0 || output < steps || foot < output {
			t.Errorf("the steps are at %d, the output at %d, its end at %d", steps, output, foot)
		}
	})
	t.Run("and by its own line when its command is far up", func(t *testing.T) {
		_, text := c.get("/threads/bootboot/entries?after=1")
		contains(t, text, `id="e2"`)
	})
	t.Run("Retry runs the command again, once", func(t *testing.T) {
		for range 2 {
			res, _ := c.post("/threads/bootboot/entries/1/again", url.Values{"entry": {"againagain"}})
			want(t, res, http.StatusSeeOther, "/threads/bootboot#e127")
		}
		if e := f.last("bootboot"); e.Id != "againagain" || e.Payload != `{"command":"make bad"}` {
			t.Errorf("the log ends with %v", e)
		}
		res, text := c.post("/threads/bootboot/entries/7/again", url.Values{"entry": {"againagain2"}})
		want(t, res, http.StatusBadRequest, "")
		contains(t, text, "Entry 7 is not a command.")
		res, _ = c.post("/threads/bootboot/entries/1/again", url.Values{"entry": {"<b>"}})
		want(t, res, http.StatusBadRequest, "")
	})
}

// The script keeps drafts, comments and waiting messages under their writer's id, which it takes from the page.
func TestPagesNameTheirReader(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("reader01", "Reader")
	c := ada(t, f)
	for _, path := range []string{"/houses/home", "/threads/reader01", "/threads/reader01/diff"} {
		_, text := c.get(path)
		if n := strings.Count(text, `data-me="`+f.me.Id+`"`); n != 1 {
			t.Errorf("%s has the reader %d times", path, n)
		}
	}
}

func TestACommandRunsAgainAsItRan(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("sameplace", "Same place")
	ran := f.says("sameplace", f.me.Id, "", entry.Command{Argv: []string{"make", "test"}, Directory: "proto/ts", Env: map[string]string{"CI": "1"}})
	f.says("sameplace", f.me.Id, "", entry.Command{Argv: []string{"/x/arbe-runner", "apply", "/x/changes/art1"}, Directory: "/workspace", Changes: "art1"})
	c := ada(t, f)
	t.Run("in its directory, with its variables", func(t *testing.T) {
		res, _ := c.post("/threads/sameplace/entries/1/again", url.Values{"entry": {"againagain"}})
		want(t, res, http.StatusSeeOther, "/threads/sameplace#e3")
		if e := f.last("sameplace"); e.Payload != ran.Payload {
			t.Errorf("%s runs after %s", e.Payload, ran.Payload)
		}
	})
	t.Run("or not at all if it needs the changes of a run", func(t *testing.T) {
		res, text := c.post("/threads/sameplace/entries/2/again", url.Values{"entry": {"againagain2"}}, "Datastar-Request", "true")
		want(t, res, http.StatusPreconditionFailed, "")
		contains(t, text, "Open the changes, and apply them or open a branch there.")
		if n := len(f.log("sameplace")); n != 3 {
			t.Errorf("there are %d entries", n)
		}
	})
}

func TestALongTextFoldsSmall(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("pastepaste", "Paste")
	for _, text := range []string{strings.Repeat("a line of a paste\n", 11_000), strings.Repeat("x", 200<<10), strings.Repeat("a\n", 300)} {
		f.says("pastepaste", f.me.Id, "", entry.Chat{Text: text})
	}
	c := ada(t, f)
	_, page := c.get("/threads/pastepaste")
	if n := strings.Count(page, "a line of a paste"); n != 24 {
		t.Errorf("%d lines of the first are shown", n)
	}
	contains(t, page, strings.Repeat("x", 2<<10)+"…", "Show all, 192.9 KiB more", "Show all, 198.0 KiB more", "Show all, 552 bytes more")
	lacks(t, page, strings.Repeat("x", 2<<10+1))
	_, whole := c.get("/threads/pastepaste/entries/1")
	if n := strings.Count(whole, "a line of a paste"); n != 11_000 {
		t.Errorf("%d lines of the whole are shown", n)
	}
}

func TestOutputIsDownloaded(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("download1", "Download")
	f.says("download1", f.me.Id, "c1", entry.Command{Command: "make"})
	f.says("download1", "", entry.ResultID("c1"), entry.CommandResult{CommandID: "c1", Output: "<script>head", OutputTail: "tail", Truncated: true, OutputBytes: 3 << 20})
	c := ada(t, f)
	_, page := c.get("/threads/download1")
	contains(t, page, `href="/threads/download1/entries/2/output" download`)
	res, text := c.get("/threads/download1/entries/2/output")
	want(t, res, http.StatusOK, "")
	if text != "<script>head\n… 3.0 MiB left out …\ntail" {
		t.Errorf("it is %q", text)
	}
	contains(t, res.Header.Get("Content-Disposition"), "attachment")
	contains(t, res.Header.Get("Content-Type"), "text/plain")
	res, _ = c.get("/threads/download1/entries/1/output")
	want(t, res, http.StatusNotFound, "")
}

func TestAListSaysWhatRunsAndWhatWasSaidLast(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("quietone", "Quiet")
	since := time.Now().Add(-75 * time.Second)
	f.thread("busyone1", "Busy").Running = &arbev1.Running{CommandId: "c1/2", Since: timestamppb.New(since)}
	f.threads["busyone1"].LastSaid = &arbev1.LastSaid{AuthorName: "Bob", Text: "$ make <all>"}
	f.thread("gonegone", "Gone").LastSaid = &arbev1.LastSaid{Text: "bye"}
	c := ada(t, f)
	_, list := c.get("/houses/home")
	contains(t, list, "<title id=\"title\">● 1 running · Home · arbe</title>", "Nothing said yet", "<b>Bob</b> $ make &lt;all&gt;", "<b>former member</b> bye",
		`action="/threads/busyone1/stop"`, `class="thread-item running"`)
	elapsed := regexp.MustCompile(`<time class="elapsed"[^>]*>(\d+m) (\d+s)</time>`).FindStringSubmatch(list)
	if elapsed == nil {
		t.Fatalf("the list does not say how long the command runs: %s", list)
	}
	if took, err := time.ParseDuration(elapsed[1] + elapsed[2]); err != nil || took < 75*time.Second || took > time.Since(since) {
		t.Errorf("the list says that the command runs for %q", elapsed[1:])
	}
	_, page := c.get("/threads/busyone1")
	contains(t, page, "● running · Busy · Home", `class="status pill running"`, `action="/threads/busyone1/stop"`)
	_, page = c.get("/threads/quietone")
	contains(t, page, ">Quiet · Home<", `class="status running" title="running"`) // in the list of places
	lacks(t, page, "/stop")
	t.Run("and which bot is at work", func(t *testing.T) {
		f.thread("botatwork", "Asked").Running = &arbev1.Running{TurnId: "t1", AgentId: bee, AgentName: "Bee <b>", Since: timestamppb.New(since)}
		_, list := c.get("/houses/home")
		contains(t, list, "● 2 running · Home", `action="/threads/botatwork/stop"`, "Bee &lt;b&gt; at work")
		_, page := c.get("/threads/botatwork")
		contains(t, page, "● running · Asked · Home", `<span class="pill-word">Bee &lt;b&gt; at work</span>`, `action="/threads/botatwork/stop"`)
	})
}

// The Stop in the head of a thread stops what runs when it is pressed, whatever ran when the page was made.
func TestStopIsForWhatRunsNow(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	th := f.thread("stopnow01", "Busy")
	c := ada(t, f)
	const stop = "/threads/stopnow01/stop"
	runs := func(now *arbev1.Running) {
		f.update("stopnow01", func(t *arbev1.Thread) { t.Running = now })
	}
	runs(&arbev1.Running{CommandId: "c1", Since: timestamppb.Now()})
	_, page := c.get("/threads/stopnow01")
	contains(t, page, `action="`+stop+`"`)

	runs(&arbev1.Running{CommandId: "c2", Since: timestamppb.Now()})
	res, _ := c.post(stop, nil)
	want(t, res, http.StatusSeeOther, "/threads/stopnow01")
	if log := f.logs["stopnow01"]; len(log) != 1 || log[0].Id != entry.ResultID("c2") {
		t.Errorf("its log is %v", log)
	}
	runs(&arbev1.Running{TurnId: "t1", AgentId: bee, Since: timestamppb.Now()})
	c.post(stop, nil)
	if !slices.Equal(f.stoppedTurns, []string{"t1"}) {
		t.Errorf("stopped %v", f.stoppedTurns)
	}
	runs(nil)
	res, page = c.post(stop, nil)
	want(t, res, http.StatusPreconditionFailed, "")
	contains(t, page, "othing runs in this thread any more")
	f.update("stopnow01", func(t *arbev1.Thread) { t.AgentId, t.Status = bee, arbev1.ThreadStatus_THREAD_STATUS_RUNNING })
	c.post(stop, nil)
	if !slices.Equal(f.runs, []string{"stop " + th.Id}) {
		t.Errorf("asked %v", f.runs)
	}
}

func TestAListSaysWhatWaitsForAYes(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("busyone1", "Busy").Running = &arbev1.Running{CommandId: "c1", Since: timestamppb.Now()}
	asks := f.thread("asksasks", "Asks")
	asks.Running, asks.OpenApprovals = &arbev1.Running{TurnId: "t1", AgentId: bee, AgentName: "Bee", Since: timestamppb.Now()}, 1
	c := ada(t, f)
	_, list := c.get("/houses/home")
	contains(t, list, "<title id=\"title\">◕ 1 waiting · ● 1 running · Home · arbe</title>", `class="thread-item waiting"`,
		`<span class="state-word status waiting" aria-hidden="true">waits for approval</span>`, `action="/threads/asksasks/stop"`)
	_, page := c.get("/threads/asksasks")
	contains(t, page, "waits for approval · Asks · Home", `<span class="pill-word">waits for approval</span>`)
	lacks(t, page, `class="status pill running"`)
}

func TestWhoStoppedACommandIsNamed(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("stopped01", "Stopped")
	f.says("stopped01", f.me.Id, "c1", entry.Command{Command: "make"})
	f.says("stopped01", "", entry.ResultID("c1"), entry.CommandResult{CommandID: "c1", SandboxID: "box1", ExitCode: 130, Cancelled: true, CancelledBy: f.me.Id, Signal: "SIGINT", DurationMS: 1200})
	f.says("stopped01", f.me.Id, "c2", entry.Command{Command: "make <all>"})
	f.says("stopped01", f.me.Id, "", entry.Chat{Text: "meanwhile"})
	f.says("stopped01", "", entry.ResultID("c2"), entry.CommandResult{CommandID: "c2", Cancelled: true, CancelledBy: f.me.Id, DurationMS: 3000})
	f.says("stopped01", f.me.Id, "c3", entry.Command{Command: "make"})
	f.says("stopped01", "", entry.ResultID("c3"), entry.CommandResult{CommandID: "c3", Cancelled: true, DurationMS: 2000})
	_, page := ada(t, f).get("/threads/stopped01")
	contains(t, page, "stopped by Ada with SIGINT · exit 130 · 1.2s", "cancelled · 2s")
	if n := strings.Count(page, "stopped by Ada · 3s"); n != 2 {
		t.Errorf("the end of a command that others wrote below is shown %d times, want in its block and where it ended", n)
	}
}

func TestSomebodyWhoLeftKeepsTheirName(t *testing.T) {
	t.Parallel()
	const bob, unknown = "7f6f0a52-0000-4000-8000-0000000000b0", "7f6f0a52-0000-4000-8000-0000000000b1"
	f := newFake()
	f.house.PrimaryThreadId = "primary1"
	f.thread("primary1", "Home")
	f.says("primary1", f.me.Id, "", entry.MemberRemoved{AgentID: bob, Name: "<b>Bob</b>", By: "Ada"})
	f.thread("leftleft", "Left").LastSaid = &arbev1.LastSaid{AuthorAgentId: bob, Text: "bye"}
	f.says("leftleft", bob, "", entry.Chat{Text: "bye"})
	f.says("leftleft", unknown, "", entry.Chat{Text: "who am I?"})
	c := ada(t, f)
	_, page := c.get("/threads/leftleft")
	contains(t, page, `<b class="left" title="&lt;b&gt;Bob&lt;/b&gt; left this house">&lt;b&gt;Bob&lt;/b&gt;</b>`, ">former member</b>")
	_, list := c.get("/houses/home")
	contains(t, list, "<b>&lt;b&gt;Bob&lt;/b&gt;</b> bye")
	t.Run("and a live list says the same as the page", func(t *testing.T) {
		l := listen(t, c.base, "list/home/")
		e := l.next()
		contains(t, list, "list/home/"+e.C)
		contains(t, fmt.Sprint(e.P), "<b>&lt;b&gt;Bob&lt;/b&gt;</b> bye")
	})
}

func TestAnUnknownCommandStartsNoThread(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := ada(t, f)
	for text, says := range map[string]string{"/deploy <now>\nplease": "There is no command /deploy.", "/run": "There is nothing to run.", "!": "There is nothing to run."} {
		res, page := c.post("/houses/home/threads", url.Values{"thread": {"unknown01"}, "entry": {"abcdefgh"}, "name": {"a <name>"}, "text": {text}})
		want(t, res, http.StatusBadRequest, "")
		contains(t, page, says, html.EscapeString(text)+"</textarea>", `value="a &lt;name&gt;"`, `value="unknown01"`, "<code>/run COMMAND</code>", `<input type="hidden" name="back" value="/houses/home"`)
	}
	if len(f.threads) != 0 {
		t.Errorf("there are %d threads", len(f.threads))
	}
	res, _ := c.post("/houses/home/threads", url.Values{"thread": {"unknown01"}, "entry": {"abcdefgh"}, "text": {"//deploy is a word"}})
	want(t, res, http.StatusSeeOther, "/threads/unknown01#composer-text")
}

func TestAChildStandsUnderItsParent(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.now = time.Now()
	add := func(id, parent string) *arbev1.Thread {
		f.now = f.now.Add(time.Second)
		th := f.thread(id, strings.ToUpper(id))
		th.ParentThreadId = parent
		return th
	}
	add("parent", "")
	add("child", "parent")
	add("unrelated", "")
	add("elsewhere", "parent").PinnedAt = timestamppb.Now()
	add("orphan", "notonthispage")
	c := ada(t, f)
	_, text := c.get("/houses/home")
	order := regexp.MustCompile(`<li id="t-(\w+)" class="thread-item( child)? open"`).FindAllStringSubmatch(text, -1)
	var got []string
	for _, m := range order {
		got = append(got, m[1]+m[2])
	}
	if want := "elsewhere orphan unrelated parent child child"; strings.Join(got, " ") != want {
		t.Errorf("the list is %q, want %q", got, want)
	}
	contains(t, text, `<span class="in-parent">in PARENT · </span>`)
	_, text = c.get("/threads/child")
	contains(t, text, "Child of</dt>", `<a href="/threads/parent" dir="auto">PARENT</a>`)
	_, text = c.get("/threads/orphan")
	contains(t, text, "Child of</dt>", "a deleted thread")
	lacks(t, text, "notonthispage")
}

func TestDaysAreDivided(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("daysdays", "Days")
	for _, day := range []int{3, 3, 5} {
		f.now = time.Date(2026, 2, day, 12, 0, 0, 0, time.UTC)
		f.says("daysdays", f.me.Id, "", entry.Chat{Text: "something."})
	}
	_, text := ada(t, f).get("/threads/daysdays")
	got := regexp.MustCompile(`<p class="day">([^<]*)</p>\s*<article id="(e\d)"`).FindAllStringSubmatch(text, -1)
	if len(got) != 2 || got[0][1] != "Tuesday, 3 February 2026" || got[0][2] != "e1" || got[1][1] != "Thursday, 5 February 2026" || got[1][2] != "e3" {
		t.Errorf("the days are %q", got)
	}
}

func TestAPageAdvisesWhatAPageCanDo(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("advice01", "Advice")
	c := ada(t, f)
	for _, refusal := range []struct {
		code       connect.Code
		next, want string
	}{
		{connect.CodeNotFound, "list the threads with: arbe thread list", "It may have been deleted; go back and choose another one."},
		{connect.CodeFailedPrecondition, "see its status with: arbe thread show advice01", ""},
		{connect.CodeInvalidArgument, "shorten it", "Shorten it."},
	} {
		f.failWith(refused(refusal.code, "this is refused", refusal.next))
		_, text := c.post("/threads/advice01/entries", url.Values{"entry": {"abcdefgh"}, "text": {"hello"}})
		contains(t, text, "This is refused.", refusal.want)
		lacks(t, text, ": arbe ")
	}
}

func TestEveryKindOfEntryHasItsOwnFace(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("kindkind", "Kinds")
	for _, k := range entry.Kinds() {
		f.append("kindkind", "", "", k.Type, `{"text":"t","command":"t","to":"open","name":"t","steps":[{"name":"clone"}],"command_id":"gone","sandbox_id":"b"}`)
	}
	f.append("kindkind", "", "", "pi.unheard_of", `{"a":1}`)
	_, text := ada(t, f).get("/threads/kindkind")
	if n := strings.Count(text, `class="generic"`); n != 1 {
		t.Errorf("%d entries are shown generically, want only the one of an unknown kind", n)
	}
	contains(t, text, "pi.unheard_of", "&#34;a&#34;: 1")
}

func TestALongThread(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("longlong", "Long")
	for i := range 400 {
		f.says("longlong", f.me.Id, fmt.Sprintf("id%d", i+1), entry.Chat{Text: fmt.Sprintf("message number %d.", i+1)})
	}
	c := ada(t, f)

	t.Run("opens with its last entries and a way to the older ones", func(t *testing.T) {
		t.Parallel()
		_, text := c.get("/threads/longlong")
		contains(t, text, "number 400.", "number 351.", "/threads/longlong/entries?before=351")
		lacks(t, text, "number 350.")
	})
	t.Run("shows the older ones on a page of their own", func(t *testing.T) {
		t.Parallel()
		_, text := c.get("/threads/longlong/entries?before=351")
		contains(t, text, "<!doctype html>", "number 350.", "number 301.", "entries?before=301", "entries?after=350")
		lacks(t, text, "number 351.")
	})
	t.Run("opens at an entry that is far up", func(t *testing.T) {
		t.Parallel()
		_, text := c.get("/threads/longlong?at=100")
		contains(t, text, `id="e100"`, "entries?before=76", "entries?after=125")
	})
	t.Run("opens at its end for an entry that is there", func(t *testing.T) {
		t.Parallel()
		_, text := c.get("/threads/longlong?at=380")
		contains(t, text, `id="e380"`, "number 400.", `id="next-401"`)
	})
	t.Run("names every author and moment", func(t *testing.T) {
		t.Parallel()
		_, text := c.get("/threads/longlong")
		if names, times := strings.Count(text, ">Ada<"), strings.Count(text, "<time"); names < 50 || times < 50 {
			t.Errorf("50 entries have %d names and %d times", names, times)
		}
	})
}

func TestAHouseWithManyThreads(t *testing.T) {
	t.Parallel()
	f := newFake()
	for i := range 130 {
		f.thread(fmt.Sprintf("many%04d", i), fmt.Sprintf("thread number %d.", i))
	}
	c := ada(t, f)
	_, first := c.get("/houses/home")
	contains(t, first, "thread number 129.", "thread number 30.", "/houses/home?page=100")
	lacks(t, first, "thread number 29.")
	_, second := c.get("/houses/home?page=100")
	list := second[strings.Index(second, `id="threads"`):]
	contains(t, list, "thread number 29.", "thread number 0.", `<a href="/houses/home">Newer threads</a>`)
	lacks(t, list, "thread number 30.", "Older threads")

	t.Run("keeps its pins and its places on every page", func(t *testing.T) {
		f.update("many0128", func(t *arbev1.Thread) { t.PinnedAt = timestamppb.Now() })
		_, second := c.get("/houses/home?page=100")
		contains(t, second, `id="place-many0128"`, `id="t-many0128"`, `id="place-many0129"`)
		lacks(t, second, `id="t-many0129"`)
	})
	t.Run("leads back page by page", func(t *testing.T) {
		_, third := c.get("/houses/home?page=100&newer=60&newer=20")
		contains(t, third, `<a href="/houses/home?newer=20&amp;page=60">Newer threads</a>`)
		_, middle := c.get("/houses/home?newer=20&page=10")
		contains(t, middle, `href="/houses/home?newer=10&amp;newer=20&amp;page=100">Older threads`)
	})
}

func TestCommands(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("cmdthread", "Commands")
	f.says("cmdthread", f.me.Id, "slow", entry.Command{Command: "make slow"})
	for i := range 60 {
		f.says("cmdthread", f.me.Id, "", entry.Chat{Text: fmt.Sprint("talk ", i)})
	}
	f.says("cmdthread", "", entry.ResultID("slow"), entry.CommandResult{CommandID: "slow", ExitCode: 2, DurationMS: 61000, Output: "the end of slow\n"})
	f.says("cmdthread", f.me.Id, "quick", entry.Command{Command: "make quick"})
	f.says("cmdthread", "", entry.ResultID("quick"), entry.CommandResult{CommandID: "quick", DurationMS: 1200, Output: strings.Repeat("a line\n", 99) + "\x1b[31mthe last\x1b[0m\n", OutputBytes: 900})
	f.says("cmdthread", f.me.Id, "huge", entry.Command{Command: "make huge"})
	f.says("cmdthread", "", entry.ResultID("huge"), entry.CommandResult{CommandID: "huge", Output: "the head", OutputTail: "the tail", OutputBytes: 200 << 20, Truncated: true})
	c := ada(t, f)
	_, last := c.get("/threads/cmdthread")
	_, first := c.get("/threads/cmdthread/entries?before=20")

	t.Run("a result stands in the block of its command", func(t *testing.T) {
		contains(t, last, "make quick", "exit 0 · 1.2s", `<span class="term-fg31">the last</span>`)
	})
	t.Run("more than 24 lines are folded, behind a link that says how many there are", func(t *testing.T) {
		contains(t, last, "Show all 100 lines")
		if n := strings.Count(last, "a line"); n != 23 {
			t.Errorf("the fold shows %d lines and the last one, want 23", n)
		}
		_, whole := c.get("/threads/cmdthread/entries/63")
		if n := strings.Count(whole, "a line"); n != 99 {
			t.Errorf("the whole has %d lines and the last one, want 99", n)
		}
	})
	t.Run("what the log leaves out is stated", func(t *testing.T) {
		contains(t, last, "the tail", "200.0 MiB left out")
		_, whole := c.get("/threads/cmdthread/entries/65")
		contains(t, whole, "the head", "200.0 MiB left out here", "the tail")
	})
	t.Run("a result far below its command leads back to it", func(t *testing.T) {
		contains(t, last, `href="/threads/cmdthread?at=1#e1"`, "make slow", "exit 2 · 1m1s")
		lacks(t, last, "the end of slow")
	})
	t.Run("a command whose result is on a later page has ended there too", func(t *testing.T) {
		contains(t, first, "make slow", "the end of slow", "exit 2 · 1m1s")
		lacks(t, first, "Stop")
	})
}

func TestForks(t *testing.T) {
	t.Parallel()
	f := newFake()
	source := f.thread("sourcesource", "Source")
	f.says("sourcesource", f.me.Id, "", entry.Chat{Text: "one."})
	f.says("sourcesource", f.me.Id, "ended", entry.Command{Command: "make ended"})
	f.says("sourcesource", f.me.Id, "", entry.Chat{Text: "meanwhile."})
	f.says("sourcesource", "", entry.ResultID("ended"), entry.CommandResult{CommandID: "ended", Output: "done\n", OutputBytes: 5})
	f.says("sourcesource", f.me.Id, "going", entry.Command{Command: "make going"})
	f.says("sourcesource", f.me.Id, "", entry.Chat{Text: "last."})
	c := ada(t, f)

	t.Run("every entry that somebody made has a form that forks there", func(t *testing.T) {
		_, text := c.get("/threads/sourcesource")
		for _, seq := range []string{"1", "2", "3", "5", "6"} {
			contains(t, text, `action="/threads/sourcesource/entries/`+seq+`/fork"`)
		}
		ids := regexp.MustCompile(`name="thread" value="([a-z0-9]{8,32})"`).FindAllStringSubmatch(text, -1)
		seen := map[string]bool{}
		for _, id := range ids {
			seen[id[1]] = true
		}
		if len(seen) != 5 {
			t.Errorf("the forms have %d different ids, want 5", len(seen))
		}
	})
	t.Run("the form makes one fork, however often it is sent, and leads to it", func(t *testing.T) {
		for range 2 {
			res, _ := c.post("/threads/sourcesource/entries/1/fork", url.Values{"thread": {"forkatone1"}})
			want(t, res, http.StatusSeeOther, "/threads/forkatone1")
		}
		if log := f.log("forkatone1"); len(log) != 2 || f.row("forkatone1").ForkedFrom.Seq != 1 {
			t.Errorf("the fork says %v", log)
		}
	})
	t.Run("a command is taken along with its result, if it has one", func(t *testing.T) {
		for entry, at := range map[string]int64{"2": 4, "3": 3, "5": 5} {
			c.post("/threads/sourcesource/entries/"+entry+"/fork", url.Values{"thread": {"commandfork" + entry}})
			if from := f.row("commandfork" + entry).ForkedFrom; from.GetSeq() != at {
				t.Errorf("at entry %s it is forked at %d, want %d", entry, from.GetSeq(), at)
			}
		}
	})
	t.Run("at no entry is not found", func(t *testing.T) {
		for _, path := range []string{"/threads/sourcesource/entries/0/fork", "/threads/sourcesource/entries/99/fork", "/threads/nosuch00/entries/1/fork"} {
			res, _ := c.post(path, url.Values{"thread": {"nothing000"}})
			want(t, res, http.StatusNotFound, "")
		}
		res, _ := c.post("/threads/sourcesource/entries/x/fork", nil)
		want(t, res, http.StatusBadRequest, "")
	})
	t.Run("a page of another site cannot send it", func(t *testing.T) {
		res, _ := c.post("/threads/sourcesource/entries/1/fork", url.Values{"thread": {"notmineatall"}}, "Sec-Fetch-Site", "cross-site")
		want(t, res, http.StatusForbidden, "")
	})

	f.fork("forkatend1", source, 6)
	t.Run("its page leads to where it comes from, and its source's page to it", func(t *testing.T) {
		_, text := c.get("/threads/forkatend1")
		contains(t, text, "Fork of</dt>", `<a href="/threads/sourcesource?at=6#e6">Source</a>`, "forked from <a href=\"/threads/sourcesource?at=6#e6\">another thread</a> at 6")
		_, text = c.get("/threads/sourcesource")
		contains(t, text, "<h2>Forks</h2>", `<a href="/threads/forkatend1">Fork of Source</a>`)
		lacks(t, text, "Fork of</dt>")
	})
	t.Run("a command that had not ended there does not run for ever", func(t *testing.T) {
		_, text := c.get("/threads/forkatend1")
		contains(t, text, "still running when this thread was forked", `<a href="/threads/sourcesource?at=5#e5">See how it ended</a>`, "exit 0")
		lacks(t, text, "Stop</span>", `class="elapsed"`)
		_, text = c.get("/threads/sourcesource")
		contains(t, text, "Stop</span>", `class="elapsed"`)
		f.says("forkatend1", f.me.Id, "own", entry.Command{Command: "make own"})
		_, text = c.get("/threads/forkatend1")
		contains(t, text, "Stop</span>", "/threads/forkatend1/commands/own/cancel")
	})
	t.Run("when its source was deleted it says so, and leads nowhere", func(t *testing.T) {
		f.delete("sourcesource")
		_, text := c.get("/threads/forkatend1")
		contains(t, text, "a deleted thread", "forked from sourcesource at 6", "still running when this thread was forked", "one.")
		lacks(t, text, `href="/threads/sourcesource`)
	})
}

func TestWeight(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("heavy123", "Heavy")
	for i := range 50 {
		f.says("heavy123", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("Look at `file%d.go`: it **fails** when the list is empty, see #%d.\n\n```go\nfor i := range %d { fmt.Println(i) }\n```", i, i*7, i)})
		id := fmt.Sprint("c", i)
		f.says("heavy123", f.me.Id, id, entry.Command{Command: fmt.Sprintf("go test ./pkg%d/...", i)})
		f.says("heavy123", "", entry.ResultID(id), entry.CommandResult{CommandID: id, ExitCode: i % 2, Output: strings.Repeat(fmt.Sprintf("ok  \tgithub.com/arbe-dev/arbe/pkg%d\t0.%02ds\n", i, i), 60)})
	}
	c := ada(t, f)

	t.Run("a page of 100 entries is at most 60 KB on the wire", func(t *testing.T) {
		t.Parallel()
		pages := 0
		for _, path := range []string{"/threads/heavy123", "/threads/heavy123/entries?before=101"} {
			pages += c.wire(path)
		}
		if pages > 60<<10 {
			t.Errorf("it is %d bytes", pages)
		}
	})
	t.Run("scripts and styles are at most 60 KB on the wire", func(t *testing.T) {
		t.Parallel()
		_, page := c.get("/threads/heavy123")
		total := 0
		for _, m := range regexp.MustCompile(`"(/static/[^"]+\.(?:js|css))"`).FindAllStringSubmatch(page, -1) {
			total += c.wire(m[1])
		}
		if total == 0 || total > 60<<10 {
			t.Errorf("scripts and styles are %d bytes", total)
		}
	})
}

// wire returns the size of a compressed answer in bytes.
func (c client) wire(path string) int {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.base+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	res, text := c.send(r)
	if res.Header.Get("Content-Encoding") != "gzip" {
		c.t.Fatalf("%s is not packed", path)
	}
	if _, err := gzip.NewReader(strings.NewReader(text)); err != nil {
		c.t.Fatal(err)
	}
	return len(text)
}

// Every answer of the app has the security headers, whatever is requested and by whom.
func TestHeaders(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("headers1", "Headers")
	f.says("headers1", f.me.Id, "abcdefgh", entry.Chat{Text: "hello"})
	in := ada(t, f)
	_, page := in.get("/threads/headers1")
	asset := regexp.MustCompile(`/static/(arbe-[0-9a-f]+\.css)`).FindStringSubmatch(page)
	values := strings.NewReplacer("{$}", "", "{house}", "home", "{thread}", "headers1", "{seq}", "1", "{command}", "abcdefgh", "{turn}", "t1", "{name}", asset[1])
	paths := []string{"GET /login?token=fresh", "GET /nowhere", "GET /static/nothing", "PUT /threads/headers1", "GET /threads/nothing", "GET /threads/headers1/entries/99"}
	for _, pattern := range web.Routes() {
		if method, path, ok := strings.Cut(pattern, " "); ok && path != "/threads/{thread}/delete" {
			paths = append(paths, method+" "+values.Replace(path))
		}
	}
	for _, path := range append(paths, "POST /threads/headers1/delete") { // last, because it deletes the thread
		for _, session := range []string{"", "good"} {
			for _, site := range []string{"same-origin", "cross-site"} {
				if session != "good" && strings.HasSuffix(path, "/delete") {
					continue
				}
				method, address, _ := strings.Cut(path, " ")
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				r, err := http.NewRequestWithContext(ctx, method, in.base+address, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Sec-Fetch-Site", site)
				if session != "" {
					r.AddCookie(&http.Cookie{Name: "arbe_session", Value: session})
				}
				res, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				cancel() // the headers have arrived, and a live connection never ends on its own
				res.Body.Close()
				policy := res.Header.Get("Content-Security-Policy")
				for _, part := range []string{"default-src 'none'", "script-src 'self' 'unsafe-eval';", "style-src 'self';", "worker-src 'self';", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"} {
					if !strings.Contains(policy, part) {
						t.Errorf("%s (%d): the policy lacks %s: %q", path, res.StatusCode, part, policy)
					}
				}
				if strings.Contains(policy, "unsafe-inline") {
					t.Errorf("%s: the policy is %q", path, policy)
				}
				for name, value := range map[string]string{
					"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
					"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
				} {
					if got := res.Header.Get(name); got != value {
						t.Errorf("%s (%d): %s is %q", path, res.StatusCode, name, got)
					}
				}
				if got := res.Header.Get("Referrer-Policy"); got != "same-origin" && got != "strict-origin" {
					t.Errorf("%s: Referrer-Policy is %q", path, got)
				}
				if got := res.Header.Get("Cache-Control"); !strings.HasPrefix(address, "/static/") && strings.Contains(got, "public") {
					t.Errorf("%s: Cache-Control is %q", path, got)
				}
			}
		}
	}
	res, _ := in.get(asset[0])
	contains(t, res.Header.Get("Cache-Control"), "immutable")
	contains(t, res.Header.Get("Content-Type"), "text/css")
}

func want(t *testing.T, res *http.Response, status int, location string) {
	t.Helper()
	if got := res.Header.Get("Location"); res.StatusCode != status || got != location {
		t.Errorf("the answer is %d to %q, want %d to %q", res.StatusCode, got, status, location)
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing", part)
		}
	}
}

func lacks(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%q is there", part)
		}
	}
}

// However often somebody reacts, a page shows as many messages as before, and continues behind the last reaction.
func TestReactionsTakeNoRoomOnAPage(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("liked123", "Liked")
	for i := range 60 {
		f.says("liked123", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("number %d.", i+1)})
	}
	react := func(n int) {
		for range n {
			f.says("liked123", f.me.Id, "", entry.ChatReacted{EntryID: "x", Seq: 1, Emoji: "👍"})
		}
	}
	react(100)
	base := f.start(t)
	c := client{t: t, base: base, session: "good"}
	_, text := c.get("/threads/liked123")
	contains(t, text, "number 60.", "number 11.", "/threads/liked123/entries?before=11", `id="next-161"`, "thread/liked123/160")
	_, text = c.get("/threads/liked123/entries?before=11")
	contains(t, text, "number 10.", "number 1.", "entries?after=10")
	lacks(t, text, `entries?before=1"`)
	_, text = c.get("/threads/liked123/entries?after=55")
	contains(t, text, "number 56.", "number 60.", `id="next-161"`)
	f.says("liked123", f.me.Id, "", entry.Chat{Text: "the last."})
	listen(t, base, "thread/liked123/160").shows("the last.")

	// The way back from among the reactions leads to the messages, too.
	_, text = c.get("/threads/liked123/entries?before=161")
	contains(t, text, "number 60.", "number 11.", "entries?after=160")
}
