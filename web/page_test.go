package web_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/net/html"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// evil is what somebody writes who wants to be more than text.
const evil = `<script>window.evil=1</script><img src=x onerror="window.evil=1"><b data-init="window.evil=1">"'</b>`

// client is a browser without scripts: it keeps no redirects, so that a test sees them.
type client struct {
	t    *testing.T
	base string
	// session is the cookie shown; empty is nobody.
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

// ada is somebody who is logged in.
func ada(t *testing.T, f *fake) client { return client{t: t, base: f.start(t), session: "good"} }

func TestWhatPeopleWriteIsOnlyText(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.house.Name, f.me.Name = evil, evil
	th := f.thread("evilevil", evil)
	th.Tags, th.SandboxId = []string{evil}, "box1"
	f.boxes["box1"] = &arbev1.Sandbox{Id: evil, Provider: evil, Status: evil}
	f.says(th.Id, f.me.Id, "", entry.Chat{Text: evil})
	f.says(th.Id, f.me.Id, "", entry.Chat{Text: "```html\n" + evil + "\n```\n\n[x](javascript:evil) ![i](https://example.com/i.png) <div onclick=evil>\n\n" + evil})
	f.says(th.Id, f.me.Id, "c1", entry.Command{Command: "echo '" + evil + "'"})
	f.says(th.Id, "", "c1.result", entry.CommandResult{CommandID: "c1", SandboxID: evil, ExitCode: 1, Output: evil + "\x1b]8;;javascript:evil\x07link\x1b]8;;\x07\x1b]1338;url=http://e/x.png\x07", Error: evil})
	f.append(th.Id, evil, "", evil, `{"<script>":"<img src=x onerror=evil>"}`)
	f.append(th.Id, f.me.Id, "", "chat", `{"text":17}`)
	f.says(th.Id, "", "", entry.StatusChanged{From: evil, To: evil, Reason: evil})
	f.says(th.Id, "", "", entry.EnvironmentPrepared{SandboxID: "box1", Steps: []entry.PreparationStep{{Name: evil, ExitCode: 1, Output: evil}}})
	c := ada(t, f)

	for _, path := range []string{"/threads/evilevil", "/houses/home", "/threads/evilevil/entries/2", "/threads/" + url.PathEscape(evil), "/login?token=" + url.QueryEscape(evil)} {
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

// harmless fails the test when a page has an element or an attribute that is not one of ours.
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
	t.Run("a fresh link logs in and leads home", func(t *testing.T) {
		t.Parallel()
		res, _ := nobody.get("/login?token=fresh")
		want(t, res, http.StatusSeeOther, "/")
		c := res.Cookies()[0]
		if c.Name != "arbe_session" || c.Value != "good" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure {
			t.Errorf("the cookie is %v", c)
		}
	})
	t.Run("the cookie is for https alone when the link was opened over it", func(t *testing.T) {
		t.Parallel()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, nobody.base+"/login?token=fresh", nil)
		r.Header.Set("X-Forwarded-Proto", "https")
		if res, _ := nobody.send(r); !res.Cookies()[0].Secure {
			t.Error("the cookie is not Secure")
		}
	})
	t.Run("looking at a link with HEAD does not use it up", func(t *testing.T) {
		t.Parallel()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodHead, nobody.base+"/login?token=fresh", nil)
		if res, _ := nobody.send(r); res.StatusCode != http.StatusOK || len(res.Cookies()) > 0 {
			t.Errorf("HEAD answers %d with the cookies %v", res.StatusCode, res.Cookies())
		}
	})
	t.Run("a used link says so, and how to get another", func(t *testing.T) {
		t.Parallel()
		res, text := nobody.get("/login?token=used")
		want(t, res, http.StatusUnauthorized, "")
		contains(t, text, "This login link was used already.", "Make a new one with arbe login.")
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
		for range 2 { // sent twice is said once
			res, _ := c.post("/threads/saysthread/entries", form)
			want(t, res, http.StatusSeeOther, "/threads/saysthread#e1")
		}
		if p := f.logs["saysthread"][0].Payload; len(f.logs["saysthread"]) != 1 || p != `{"text":"Hello\nworld"}` {
			t.Errorf("the log has %d entries, the first is %s", len(f.logs["saysthread"]), p)
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
			want(t, res, http.StatusSeeOther, "/threads/newthread1")
		}
		if name := f.threads["newthread1"].Name; name != "Fix the login" || len(f.logs["newthread1"]) != 1 {
			t.Errorf("the thread is %q with %d entries", name, len(f.logs["newthread1"]))
		}
	})
	t.Run("a thread is renamed, tagged, pinned, closed and deleted", func(t *testing.T) {
		t.Parallel()
		th := f.thread("changeme01", "Old")
		c.post("/threads/changeme01", url.Values{"name": {" New "}})
		c.post("/threads/changeme01", url.Values{"tags": {"a, b,,a"}})
		c.post("/threads/changeme01", url.Values{"pinned": {"true"}})
		c.post("/threads/changeme01", url.Values{"status": {"closed"}})
		if th.Name != "New" || strings.Join(th.Tags, "+") != "a+b" || th.PinnedAt == nil || th.Status != "closed" {
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
		"a text of a MiB":              {func() (*http.Response, string) { return say(strings.Repeat("x", 1<<20)) }, 429, []string{"Shorten it, or put it into a file."}},
		"a form larger than any text":  {func() (*http.Response, string) { return say(strings.Repeat("x", 5<<20)) }, 429, []string{"larger than 4 MiB"}},
		"a form with an id of its own": {func() (*http.Response, string) {
			return c.post("/threads/badbadbad/entries", url.Values{"entry": {`"><b>`}, "text": {"kept"}})
		}, 400, []string{"not one of ours", ">kept</textarea>"}},
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
		contains(t, text, "The house has no environment.", "Set one with arbe house update.", ">!make</textarea>", `value="abcdefgh"`)
	})
	t.Run("to the script, at the place it waits", func(t *testing.T) {
		t.Parallel()
		res, text := c.post("/threads/refused01/entries", form, "Datastar-Request", "true")
		want(t, res, http.StatusOK, "")
		contains(t, text, `id="out-abcdefgh"`, "refused", "Not sent. The house has no environment. Set one with arbe house update.")
	})
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
	contains(t, second, "thread number 29.", "thread number 0.", "/houses/home/tail?page=100")
	lacks(t, second, "thread number 30.", "Older threads")
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
			t.Errorf("the forms have %d ids of their own, want 5", len(seen))
		}
	})
	t.Run("the form makes one fork, however often it is sent, and leads to it", func(t *testing.T) {
		for range 2 {
			res, _ := c.post("/threads/sourcesource/entries/1/fork", url.Values{"thread": {"forkatone1"}})
			want(t, res, http.StatusSeeOther, "/threads/forkatone1")
		}
		if log := f.log("forkatone1"); len(log) != 2 || f.threads["forkatone1"].ForkedFrom.Seq != 1 {
			t.Errorf("the fork says %v", log)
		}
	})
	t.Run("a command is taken along with its result, if it has one", func(t *testing.T) {
		for entry, at := range map[string]int64{"2": 4, "3": 3, "5": 5} {
			c.post("/threads/sourcesource/entries/"+entry+"/fork", url.Values{"thread": {"commandfork" + entry}})
			if from := f.threads["commandfork"+entry].ForkedFrom; from.GetSeq() != at {
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
		contains(t, text, "not ended when this thread was forked", `<a href="/threads/sourcesource?at=5#e5">See how it ends</a>`, "exit 0")
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
		contains(t, text, "a deleted thread", "forked from sourcesource at 6", "not ended when this thread was forked", "one.")
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
			t.Errorf("they are %d bytes", total)
		}
	})
}

// wire is how many bytes a path takes, packed.
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

func TestHeaders(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("headers1", "Headers")
	c := ada(t, f)
	res, page := c.get("/threads/headers1")
	policy := res.Header.Get("Content-Security-Policy")
	contains(t, policy, "default-src 'none'", "script-src 'self' 'unsafe-eval';", "style-src 'self';", "frame-ancestors 'none'", "base-uri 'none'")
	lacks(t, policy, "unsafe-inline")
	asset := regexp.MustCompile(`/static/arbe-[0-9a-f]+\.css`).FindString(page)
	res, _ = c.get(asset)
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
