package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web"
)

// patched is one patch as a browser receives it, and received is one event.
type patched struct{ S, M, H string }
type received struct {
	T, C string
	P    []patched
	End  bool
}

// listener is a live connection like a browser's.
type listener struct {
	t      testing.TB
	events chan received
	// cursors are the last cursors, by topic.
	cursors map[string]string
	leave   context.CancelFunc
}

// listen follows topics over one connection.
func listen(t testing.TB, base string, topics ...string) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/live?"+url.Values{"t": topics}.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "arbe_session", Value: "good"})
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{t: t, events: make(chan received, 1000), cursors: map[string]string{}, leave: cancel}
	t.Cleanup(cancel)
	go func() {
		defer res.Body.Close()
		defer close(l.events)
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var e received
				if json.Unmarshal([]byte(text), &e) != nil {
					return
				}
				l.events <- e
			}
		}
	}()
	return l
}

// next waits for the next event.
func (l *listener) next() received {
	l.t.Helper()
	select {
	case e, ok := <-l.events:
		if !ok {
			l.t.Fatal("the connection ended")
		}
		if e.C != "" {
			l.cursors[e.T] = e.C
		}
		return e
	case <-time.After(patience):
		l.t.Fatal("waited too long for an event")
	}
	return received{}
}

// end waits for the end of the connection.
func (l *listener) end() {
	l.t.Helper()
	late := time.After(patience)
	for {
		select {
		case _, ok := <-l.events:
			if !ok {
				return
			}
		case <-late:
			l.t.Fatal("the connection did not end")
		}
	}
}

// live waits until all topics are live.
func (l *listener) live(topics ...string) {
	l.t.Helper()
	waiting := map[string]bool{}
	for _, t := range topics {
		waiting[t] = true
	}
	for len(waiting) > 0 {
		delete(waiting, l.next().T)
	}
}

func TestAChangeSendsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.now = time.Now().Add(-time.Hour)
	for i := range 50 {
		f.now = f.now.Add(time.Second)
		f.thread(fmt.Sprintf("change%04d", i), fmt.Sprintf("thread number %d.", i))
	}
	l := listen(t, f.start(t), "house/home/", "list/home/")
	whole := map[string]received{}
	for len(whole) < 2 {
		e := l.next()
		whole[e.T] = e
	}
	if len(whole["list/home"].P) != 1 || !strings.Contains(whole["list/home"].P[0].H, "thread number 0.") || len(whole["house/home"].C) < 16 {
		t.Fatalf("the first events are %.300v", whole)
	}
	both := func(is func(received)) {
		t.Helper()
		seen := map[string]bool{}
		for len(seen) < 2 {
			e := l.next()
			seen[e.T] = true
			is(e)
		}
	}
	t.Run("a new name is one row, in its place", func(t *testing.T) {
		f.update("change0020", func(t *arbev1.Thread) { t.Name = "renamed." })
		both(func(e received) {
			if len(e.P) != 1 || e.P[0].M != "" || !strings.HasSuffix(e.P[0].S, "-change0020") || !strings.Contains(e.P[0].H, "renamed.") || len(e.P[0].H) > 2000 {
				t.Errorf("the event is %v", e)
			}
		})
	})
	t.Run("one that something was said in moves to the top, and the others stay", func(t *testing.T) {
		f.update("change0010", func(t *arbev1.Thread) { t.LastActivityAt = timestamppb.Now() })
		both(func(e received) {
			if len(e.P) != 2 || e.P[0].M != "remove" || e.P[1].M == "" || !strings.Contains(e.P[1].H, "change0010") {
				t.Errorf("the event is %v", e)
			}
		})
	})
	t.Run("one that is pinned makes a section of its own", func(t *testing.T) {
		f.update("change0030", func(t *arbev1.Thread) { t.PinnedAt = timestamppb.Now() })
		both(func(e received) {
			if len(e.P) != 1 || (e.P[0].S != "#places" && e.P[0].S != "#threads") {
				t.Errorf("the event is %.200v", e)
			}
		})
	})
	t.Run("a page that has everything only gets the event that it is live", func(t *testing.T) {
		again := listen(t, f.start(t), "list/home/"+l.cursors["list/home"])
		if e := again.next(); len(e.P) != 0 || e.T != "list/home" {
			t.Errorf("the event is %.200v", e)
		}
	})
	t.Run("and the page itself has what the connection tells", func(t *testing.T) {
		_, page := ada(t, f).get("/houses/home")
		contains(t, page, "list/home/"+l.cursors["list/home"])
	})
}

func TestEveryThreadGetsItsHead(t *testing.T) {
	t.Parallel()
	f := newFake()
	var topics []string
	for n := range 100 {
		id := fmt.Sprintf("everyhead%02d", n)
		f.thread(id, "Head")
		topics = append(topics, "thread/"+id+"/0")
	}
	base := f.start(t)
	for range 10 {
		// All begin together, and a watch may run before the connection that it serves has joined it.
		l := listen(t, base, topics...)
		for heads := map[string]bool{}; len(heads) < len(topics); {
			if e := l.next(); strings.Contains(fmt.Sprint(e.P), `id="thread-head"`) {
				heads[e.T] = true
			}
		}
		l.leave()
	}
}

func TestABadTopicIsRefused(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := ada(t, f)
	for _, query := range []string{"", "t=", "t=river/home/", "t=thread", "t=" + strings.Repeat("&t=house/", 201)} {
		if res, _ := c.get("/live?" + query); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%.40q: the answer is %d", query, res.StatusCode)
		}
	}
	t.Run("and one that is not there ends, without the others", func(t *testing.T) {
		f.thread("isthere01", "There")
		l := listen(t, f.start(t), "thread/nothere01/0", "house/elsewhere/", "thread/isthere01/0")
		ended := map[string]bool{}
		for len(ended) < 2 {
			if e := l.next(); e.End {
				ended[e.T] = true
			}
		}
		f.says("isthere01", f.me.Id, "", entry.Chat{Text: "hello there."})
		for e := l.next(); e.C != "1"; e = l.next() {
			continue
		}
		if ended["thread/isthere01"] {
			t.Error("the thread that is there ended")
		}
	})
}

func TestASessionFollowsSoManyTopics(t *testing.T) {
	t.Parallel()
	var f web.Following
	leave, err := f.Enter("ada", web.MaxFollowed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Enter("ada", 1); fault.CodeOf(err) != fault.Exhausted {
		t.Errorf("one topic too many: the error is %v, want exhausted", err)
	}
	if _, err := f.Enter("bob", 1); err != nil {
		t.Errorf("a topic of another session is refused: %v", err)
	}
	leave()
	if _, err := f.Enter("ada", 1); err != nil {
		t.Errorf("a topic is refused after the others were left: %v", err)
	}
}

// shows waits for an event that contains a text.
func (l *listener) shows(text string) {
	l.t.Helper()
	for e := l.next(); !strings.Contains(fmt.Sprint(e.P), text); e = l.next() {
		continue
	}
}

// A build without steps leaves no entry that ends its output.
func TestBuildsWithoutStepsLeaveRoomForOutput(t *testing.T) {
	t.Parallel()
	t.Run("that ended", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.thread("builtmany", "Built")
		l := listen(t, f.start(t), "thread/builtmany/0")
		l.live("thread/builtmany")
		for i := range 20 {
			id, box := fmt.Sprint("c", i), fmt.Sprint("sb", i)
			f.says("builtmany", f.me.Id, id, entry.Command{Command: "make"})
			f.delta("builtmany", entry.PreparationID(box), 0, fmt.Sprintf("==> start %d.\n", i))
			l.shows(fmt.Sprintf("start %d.", i))
			f.prints("builtmany", id, 0, fmt.Sprintf("output %d.\n", i))
			l.shows(fmt.Sprintf("output %d.", i))
			f.says("builtmany", "", entry.ResultID(id), entry.CommandResult{CommandID: id, SandboxID: box, Output: "done", OutputBytes: 4})
		}
	})
	t.Run("that somebody who comes late hears of", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.thread("builtlate", "Built")
		f.says("builtlate", f.me.Id, "c1", entry.Command{Command: "make"})
		for i := range 20 {
			f.delta("builtlate", entry.PreparationID(fmt.Sprint("sb", i)), 0, "==> start a sandbox\n")
		}
		f.prints("builtlate", "c1", 0, "the output.\n")
		listen(t, f.start(t), "thread/builtlate/1").shows("the output.")
	})
}

// Finding a build's command may require reading the log. If that fails, the browser reconnects and misses nothing.
func TestABuildIsShownAfterTheLogCouldNotBeRead(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("buildfail", "Build")
	f.says("buildfail", f.me.Id, "c1", entry.Command{Command: "make"})
	f.says("buildfail", f.me.Id, "", entry.Chat{Text: "meanwhile."})
	base := f.start(t)
	l := listen(t, base, "thread/buildfail/2")
	l.live("thread/buildfail")
	f.fails("List", refused(connect.CodeUnavailable, "the database cannot be reached", "try again in a moment"))
	f.delta("buildfail", entry.PreparationID("sb1"), 0, "installing\n")
	l.end()
	f.fails("List", nil)
	listen(t, base, "thread/buildfail/2").shows("installing")
}

// Open tabs cause no calls while nothing changes.
func TestAnIdleTabCostsNoCalls(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("idleidle1", "Idle")
	base := f.start(t)
	for range 10 {
		l := listen(t, base, "house/home/", "list/home/", "thread/idleidle1/0")
		l.live("house/home", "list/home", "thread/idleidle1")
	}
	f.mu.Lock()
	before := f.calls
	f.mu.Unlock()
	// A change arrives over the streams that are already open.
	l := listen(t, base, "house/home/")
	l.live("house/home")
	for i := range 5 {
		f.update("idleidle1", func(t *arbev1.Thread) { t.Name = fmt.Sprint("name ", i, ".") })
		for e := l.next(); !strings.Contains(fmt.Sprint(e.P), fmt.Sprint("name ", i, ".")); e = l.next() {
			continue
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls != before {
		t.Errorf("%d calls were made", f.calls-before)
	}
}

// Over HTTP/1.1 a browser opens at most six connections to a server, so eight live tabs must share one.
func TestEightTabsOfOneBrowser(t *testing.T) {
	t.Parallel()
	f := newFake()
	base, open := f.counting(t)
	const tabs = 8
	for i := range tabs {
		f.thread(fmt.Sprintf("eight%04d", i), fmt.Sprintf("Number %d", i))
	}
	first := newTab(t, base)
	all := []*tab{first}
	for len(all) < tabs {
		all = append(all, first.another())
	}
	for i, b := range all {
		b.open(fmt.Sprintf("/threads/eight%04d", i))
	}
	for _, b := range all {
		b.untilLive()
	}
	f.until(t, "one connection for all", func() bool { return f.tails == tabs })
	for i, b := range all {
		f.says(fmt.Sprintf("eight%04d", i), f.me.Id, "", entry.Chat{Text: fmt.Sprintf("to number %d.", i)})
		b.until("what was said in its thread", says(fmt.Sprintf("to number %d.", i), 1))
	}
	last := all[tabs-1]
	last.write("said in the last one")
	last.until("what was said there", says("said in the last one", 1))
	last.until("an empty outbox", "document.querySelectorAll('#outbox form').length === 0")
	f.update("eight0003", func(t *arbev1.Thread) { t.Name = "Another name" })
	for i, b := range all {
		b.until("the new name in the places", "document.querySelector('#place-eight0003').innerText.includes('Another name')")
		b.until("its own place marked", fmt.Sprintf("document.querySelector('#places [aria-current]')?.id === 'place-eight%04d'", i))
	}
	// On a slow machine a tab may have had a connection of its own first.
	f.until(t, "exactly one connection", func() bool { return open.Load() == 1 })
}

// counting serves the web app over the fake, and counts the open live connections.
func (f *fake) counting(t *testing.T) (base string, open *atomic.Int32) {
	t.Helper()
	app, open := f.app(t), new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" {
			open.Add(1)
			f.count(0) // wakes a test that waits for the number
			defer func() { open.Add(-1); f.count(0) }()
		}
		app.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL, open
}

// A browser may load a page in a hidden tab. Such a tab follows nothing.
func TestAPageThatLoadsHiddenConnectsWhenItIsSeen(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("hiddennew", "Hidden")
	b := newTab(t, f.start(t))
	b.before(`Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })
		window.received = []
		window.SharedWorker = class extends window.SharedWorker {
			constructor(...how) {
				super(...how)
				const post = this.port.postMessage.bind(this.port)
				this.port.postMessage = message => { window.received.push(message); post(message) }
				this.port.addEventListener('message', ({ data }) => { if (data.ready) setTimeout(() => { window.answered = true }) })
			}
		}`)
	b.open("/threads/hiddennew")
	b.until("the worker's answer", "window.answered === true")
	if received := eval[string](b, "JSON.stringify(window.received)"); received != "[]" {
		t.Errorf("the hidden page says to the worker: %s", received)
	}
	f.says("hiddennew", f.me.Id, "", entry.Chat{Text: "meanwhile."})
	eval[bool](b, "(delete document.hidden, document.dispatchEvent(new Event('visibilitychange')))")
	b.until("what was said meanwhile", says("meanwhile.", 1))
	b.untilLive()
}

// Browsers do not report that a loading page becomes visible if they first treat it as hidden.
func TestAPageThatIsSeenWithoutAnEventConnects(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("unreported", "Unreported")
	b := newTab(t, f.start(t))
	b.before("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })")
	b.open("/threads/unreported")
	eval[bool](b, "delete document.hidden")
	b.untilLive()
}

// A shared worker may end with the previous page, just after it has answered the next page.
func TestAPageWhoseWorkerEndedBeginsAnother(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("deadworker", "Dead")
	b := newTab(t, f.start(t))
	b.before(`const Real = window.SharedWorker
		let first = true
		window.SharedWorker = class {
			constructor(...how) {
				if (!first) return new Real(...how)
				first = false
				this.port = { postMessage() {}, set onmessage(f) { setTimeout(() => f({ data: { ready: true } }), 50) } }
			}
		}`)
	b.open("/threads/deadworker")
	b.untilLive()
	f.says("deadworker", f.me.Id, "", entry.Chat{Text: "still here."})
	b.until("what is said then", says("still here.", 1))
}

// If a worker answers late, as on a slow machine, the page moves to it from the page's own connection.
func TestAWorkerThatAnswersLateIsUsed(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("lateworker", "Late")
	base, open := f.counting(t)
	b := newTab(t, base)
	b.before(`const Real = window.SharedWorker, held = []
		window.SharedWorker = class {
			constructor(...how) {
				const { port } = new Real(...how)
				let take
				this.port = { postMessage: message => port.postMessage(message), close: () => port.close(), set onmessage(f) { take = f } }
				port.onmessage = event => window.released ? take(event) : held.push(event)
				window.answer = () => { window.released = true; held.forEach(event => take(event)); return held.length }
			}
		}`)
	b.open("/threads/lateworker")
	b.untilLive()
	f.says("lateworker", f.me.Id, "", entry.Chat{Text: "over its own."})
	b.until("what is said over its own connection", says("over its own.", 1))
	other := b.another()
	other.open("/threads/lateworker")
	other.untilLive()
	f.until(t, "two connections", func() bool { return open.Load() == 2 })
	b.until("the worker's answer", "window.answer() > 0")
	f.until(t, "one connection for both", func() bool { return open.Load() == 1 && f.tails == 1 })
	f.says("lateworker", f.me.Id, "", entry.Chat{Text: "over the worker's."})
	for _, tab := range []*tab{b, other} {
		tab.until("what is said over the worker's connection", says("over the worker's.", 1))
		tab.until("what was said before, once", says("over its own.", 1))
	}
}

func TestAPageRetriesToLoadItsConnection(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("noscript1", "No script")
	app := f.app(t)
	var broken atomic.Bool
	broken.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/static/connection-") && broken.Load() {
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return
		}
		app.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	b := newTab(t, server.URL)
	b.allow("502", "Failed to fetch a worker script")
	b.open("/threads/noscript1")
	b.until("that it is lost", "document.documentElement.dataset.connection === 'lost'")
	f.says("noscript1", f.me.Id, "", entry.Chat{Text: "meanwhile."})
	broken.Store(false)
	b.until("what was said meanwhile", says("meanwhile.", 1))
	b.until("silence", "!document.documentElement.dataset.connection")
	b.untilLive()
}

// The tabs of a browser share one connection, so a second tab of a thread joins a topic that is already live.
func TestASecondTabShowsWhatIsThere(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("secondtab", "Second")
	f.says("secondtab", f.me.Id, "c1", entry.Command{Command: "make"})
	base := f.start(t)
	first := newTab(t, base)
	first.open("/threads/secondtab")
	first.untilLive()
	f.prints("secondtab", "c1", 0, "compiling, which takes long\n")
	const compiles = "document.querySelector('.screen')?.innerText.includes('compiling')"
	first.until("the output", compiles)
	second := first.another()
	second.open("/threads/secondtab")
	second.until("the output, of which no more comes", compiles)
	second.untilLive()
	first.untilLive()
	f.prints("secondtab", "c1", 28, "done\n")
	for _, b := range []*tab{first, second} {
		b.until("what is printed later", "/compiling, which takes long\\ndone/.test(document.querySelector('.screen')?.innerText)")
	}
}

func TestWithoutASharedWorkerATabConnectsByItself(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"the browser has none":     "window.SharedWorker = undefined\n",
		"the worker never answers": "window.SharedWorker = class { port = {} }\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.thread("aloneone1", "Alone")
			app := f.app(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/static/arbe-") && strings.HasSuffix(r.URL.Path, ".js") {
					w.Header().Set("Content-Type", "text/javascript")
					_, _ = w.Write([]byte(script))
					r.Header.Del("Accept-Encoding")
					app.ServeHTTP(&bodyOnly{ResponseWriter: w}, r)
					return
				}
				app.ServeHTTP(w, r)
			}))
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			b := newTab(t, server.URL)
			b.open("/threads/aloneone1")
			b.untilLive()
			f.says("aloneone1", f.me.Id, "", entry.Chat{Text: "hello alone."})
			b.until("what is said", says("hello alone.", 1))
			b.open("/houses/home")
			b.untilLive()
			f.until(t, "the end of the page's connection", func() bool { return f.tails == 0 })
		})
	}
}

// bodyOnly discards the headers and the status of an answer.
type bodyOnly struct{ http.ResponseWriter }

func (*bodyOnly) Header() http.Header { return http.Header{} }
func (*bodyOnly) WriteHeader(int)     {}
