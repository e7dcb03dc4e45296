package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestTalkIsSeenLiveInEveryTab(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("livelive", "Live")
	ada := newTab(t, f.start(t))
	ada.open("/threads/livelive")
	other := ada.another()
	other.open("/threads/livelive")
	ada.untilLive()
	other.untilLive()

	ada.write("hello **there**")
	other.until("the message in the other tab", says("hello there", 1))
	ada.until("the message in one's own tab, once", says("hello there", 1))
	ada.until("an empty outbox", "document.querySelectorAll('#outbox form').length === 0")
	if text := eval[string](ada, "document.querySelector('#composer-text').value"); text != "" {
		t.Errorf("the composer still has %q", text)
	}

	f.says("livelive", "", "", entry.StatusChanged{From: "open", To: "closed"})
	f.mu.Lock()
	f.threads["livelive"].Status = arbev1.ThreadStatus_THREAD_STATUS_CLOSED
	f.wake()
	f.mu.Unlock()
	other.until("the new status in the title", "document.title.startsWith('closed')")
	other.until("the new status in the places", "!!document.querySelector('#place-livelive .status.closed')")
}

func TestShiftEnterBreaksALine(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("lineline", "Lines")
	b := newTab(t, f.start(t))
	b.open("/threads/lineline")
	b.untilLive()
	b.do(keysInto("#composer-text", "one"),
		chromedp.KeyEvent("\r", chromedp.KeyModifiers(chromedp.ModifierShift)), chromedp.KeyEvent("two"))
	b.enter()
	b.until("the message", says("two", 1))
	if p := f.last("lineline").Payload; p != `{"text":"one\ntwo"}` {
		t.Errorf("the log has %s", p)
	}
}

func TestACommandFromStartToEnd(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("blockblock", "Block")
	b := newTab(t, f.start(t))
	b.open("/threads/blockblock")
	b.untilLive()
	b.write("!make test")
	b.until("a running block with Stop", "!!document.querySelector('.foot.running .stop button') && document.querySelector('.prompt').innerText.includes('make test')")
	id := f.last("blockblock").Id

	f.prints("blockblock", id, 0, "\x1b[32mok\x1b[0m first\n")
	b.until("live output in colour", "document.querySelector('.screen .term-fg32')?.innerText === 'ok'")
	late := b.another()
	f.prints("blockblock", id, 9000, "and more\n")
	b.until("a gap in the output is stated", "document.querySelector('.cut')?.innerText.includes('not shown until it ends')")

	f.says("blockblock", "", entry.ResultID(id), entry.CommandResult{CommandID: id, DurationMS: 1234, Output: "all of it\n", OutputBytes: 10})
	b.until("the result in place of the preview", "document.querySelector('.screen')?.innerText.trim() === 'all of it'")
	b.until("the outcome", "document.querySelector('.foot').innerText.includes('exit 0 · 1.23s')")
	if n := eval[int](b, "document.querySelectorAll('.command').length"); n != 1 {
		t.Errorf("there are %d blocks, want one", n)
	}
	if eval[bool](b, "!!document.querySelector('.stop')") {
		t.Error("Stop is still there")
	}
	late.open("/threads/blockblock")
	late.until("the verdict in the page opened later", "!!document.querySelector('#e2') && document.querySelector('.foot').innerText.includes('exit 0')")
}

func TestTheBuildOfASandboxIsSeenBeforeTheOutput(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("buildlive", "Build")
	b := newTab(t, f.start(t))
	b.open("/threads/buildlive")
	b.untilLive()
	b.write("!make test")
	b.until("the command", "!!document.querySelector('.foot.running')")
	command := f.last("buildlive").Id
	f.delta("buildlive", entry.PreparationID("sb1"), 0, "==> setup\ninstalling 1 of 9\n")
	b.until("what the build prints", "document.querySelector('.boot').innerText.includes('installing 1 of 9')")
	late := newTab(t, b.base) // its connection knows the command only from the log
	late.open("/threads/buildlive")
	late.untilLive()
	late.until("what the build prints", "document.querySelector('.boot').innerText.includes('installing 1 of 9')")
	f.says("buildlive", "", entry.PreparationID("sb1"), entry.EnvironmentPrepared{SandboxID: "sb1", Steps: []entry.PreparationStep{{Name: "setup", DurationMS: 3000, Output: "installing 9 of 9"}}})
	f.prints("buildlive", command, 0, "testing\n")
	for _, tab := range []*tab{b, late} {
		tab.until("the steps, folded", "document.querySelector('.boot summary')?.innerText.trim() === 'Sandbox ready: setup 3.0s.'")
		tab.until("the output behind them", "document.querySelector('.output .screen')?.innerText.trim() === 'testing' && document.querySelectorAll('.boot').length === 1")
	}
	f.says("buildlive", "", entry.ResultID(command), entry.CommandResult{CommandID: command, SandboxID: "sb1", Output: "tested\n", OutputBytes: 7})
	b.until("the end, with the steps", "!!document.querySelector('.foot.completed') && document.querySelector('.boot summary')?.innerText.trim() === 'Sandbox ready: setup 3.0s.'")
}

// A build without steps has no entry that ends its preview, so the preview still exists when the next command runs.
func TestABuildIsNotShownForACommandInItsSandbox(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("builtbuilt", "Built")
	f.says("builtbuilt", f.me.Id, "c1", entry.Command{Command: "true", SandboxID: "sb1"})
	f.delta("builtbuilt", entry.PreparationID("sb1"), 0, "==> start a sandbox\n")
	b := newTab(t, f.start(t))
	b.open("/threads/builtbuilt")
	b.untilLive()
	f.prints("builtbuilt", "c1", 0, "of the command\n")
	b.until("the output", "document.querySelector('.output .screen')?.innerText.includes('of the command')")
	if text := eval[string](b, "document.querySelector('#log').innerText"); strings.Contains(text, "start a sandbox") {
		t.Errorf("the page says %q", text)
	}
}

func TestStopStops(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("stopstop", "Stop")
	b := newTab(t, f.start(t))
	b.open("/threads/stopstop")
	b.untilLive()
	b.write("/run sleep 1000")
	b.until("Stop", "!!document.querySelector('.stop button')")
	b.do(chromedp.Click(chromedp.CSS(".stop button")))
	b.until("the outcome", "document.querySelector('.foot').innerText.includes('stopped by Ada with SIGINT · exit 130 · 1.5s')")
	if at := eval[string](b, "location.pathname"); at != "/threads/stopstop" {
		t.Errorf("the page went to %s", at)
	}
}

func TestWhatRunsIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("runsruns", "Runs")
	list := newTab(t, f.start(t))
	list.open("/houses/home")
	list.untilLive()
	b := list.another()
	b.open("/threads/runsruns")
	b.untilLive()
	const icon = "document.querySelector('#favicon').href.includes('/icon-running-')"
	b.write("!make slow")
	b.until("the thread's title and icon", "document.title === '● running · Runs · Home' && "+icon)
	b.until("its head, with a clock and Stop", "!!document.querySelector('#thread-head .pill.running .elapsed') && !!document.querySelector('#thread-head .stop')")
	list.until("the title and icon of the list", "document.title === '● 1 running · Home · arbe' && "+icon)
	list.until("the place", "/^(\\d+s|\\d+m \\d+s|\\d+h \\d+m)$/.test(document.querySelector('#place-runsruns .elapsed')?.innerText)")
	list.until("the row, and what was said last", "document.querySelector('#t-runsruns.running .thread-last').innerText.trim() === 'Ada $ make slow'")
	f.update("runsruns", func(t *arbev1.Thread) { t.OpenApprovals = 1 })
	list.until("that somebody is asked for approval", "document.title === '◕ 1 waiting · Home · arbe' && !!document.querySelector('#place-runsruns .status.waiting')")
	b.until("that the thread waits", "document.title === 'waits for approval · Runs · Home' && !!document.querySelector('#thread-head .pill.waiting')")
	f.update("runsruns", func(t *arbev1.Thread) { t.OpenApprovals = 0 })
	list.until("that it goes on", "document.title === '● 1 running · Home · arbe'")
	list.do(chromedp.Click(chromedp.CSS("#t-runsruns .stop button")))
	list.until("nothing that runs", "document.title === 'Home · arbe' && !document.querySelector('.running') && !("+icon+")")
	b.until("nothing that runs in the thread", "document.title === 'Runs · Home' && !document.querySelector('.running, .stop') && !("+icon+")")
	if at := eval[string](list, "location.pathname"); at != "/houses/home" {
		t.Errorf("Stop leads to %s", at)
	}
}

func TestTheComposerIsAFewTabsAway(t *testing.T) {
	t.Parallel()
	f := newFake()
	for i := range 100 {
		f.thread(fmt.Sprintf("tabs%04d", i), fmt.Sprintf("Thread %d", i))
	}
	for i := range 50 {
		f.says("tabs0099", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("[a link](https://example.com/%d)", i)})
	}
	b := newTab(t, f.start(t))
	b.open("/threads/tabs0099")
	b.untilLive()
	tabs := 0
	for ; tabs < 30 && eval[string](b, "document.activeElement.id") != "composer-text"; tabs++ {
		b.do(chromedp.KeyEvent("\t"))
	}
	if id := eval[string](b, "document.activeElement.id"); id != "composer-text" {
		t.Errorf("after %d tabs %q has the focus", tabs, id)
	}
	t.Run("and arrow keys go through the places", func(t *testing.T) {
		b := b.in(t)
		eval[string](b, "document.querySelector('#place-tabs0099').focus(), ''")
		b.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowUp))
		b.until("the next place", "document.activeElement.id === 'place-tabs0098' && document.activeElement.tabIndex === 0")
	})
}

func TestItHealsAfterTheServerWasKilled(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("healheal", "Heal")
	for i := range 3 {
		f.says("healheal", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("before %d.", i)})
	}
	server := &restartable{t: t, handler: f.app(t), address: "127.0.0.1:0"}
	server.start()
	t.Cleanup(server.kill)
	b := newTab(t, "http://"+server.address)
	b.open("/threads/healheal")
	b.untilLive()
	eval[int](b, "window.sameDocument = 1")

	for round := range 2 {
		server.kill()
		b.until("the chip that says so", "getComputedStyle(document.querySelector('#connection .chip')).display !== 'none'")
		b.write(fmt.Sprintf("written while away %d.", round))
		f.says("healheal", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("missed %d.", round)})
		server.start()
		b.until("what was missed", says(fmt.Sprintf("missed %d.", round), 1))
		b.until("what was written", says(fmt.Sprintf("written while away %d.", round), 1))
		b.until("silence", "getComputedStyle(document.querySelector('#connection .chip')).display === 'none'")
	}
	b.until("no doubt left", "document.querySelectorAll('#outbox form').length === 0")
	order := eval[string](b, "[...document.querySelectorAll('[data-entry]')].map(e => e.id).join(' ')")
	if order != "e1 e2 e3 e4 e5 e6 e7" {
		t.Errorf("the page has %s", order)
	}
	if eval[int](b, "window.sameDocument || 0") != 1 {
		t.Error("the page was reloaded")
	}
}

func TestTwoConnectionsDoubleNothing(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("twiceover", "Twice")
	f.says("twiceover", f.me.Id, "", entry.Chat{Text: "first."})
	b := newTab(t, f.start(t))
	b.open("/threads/twiceover")
	b.untilLive()
	b.do(chromedp.Evaluate[chromedp.Void](`import(document.querySelector('meta[name=arbe-connection]').content).then(({ Connection }) => {
		new Connection().show(({ p = [] }) => {
			for (const { s: selector, m: mode = 'outer', h: elements = '' } of p) {
				if (!document.querySelector(selector)) continue
				document.dispatchEvent(new CustomEvent('datastar-fetch', { detail: { type: 'datastar-patch-elements', el: document.body, argsRaw: { selector, mode, elements } } }))
			}
			window.twin = true
		}, { 'thread/twiceover': '1', 'house/home': '', })
		return {}
	})`))
	b.until("the other connection", "window.twin === true")
	for i := range 5 {
		f.says("twiceover", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("again %d.", i)})
	}
	b.until("the last one", says("again 4.", 1))
	b.untilLive()
	if order := eval[string](b, "[...document.querySelectorAll('[data-entry]')].map(e => e.id).join(' ')"); order != "e1 e2 e3 e4 e5 e6" {
		t.Errorf("the page has %s", order)
	}
}

func TestATabNobodyLooksAtGivesItsConnectionBack(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("hiddentab", "Hidden")
	b := newTab(t, f.start(t))
	b.open("/threads/hiddentab")
	b.untilLive()
	eval[bool](b, `(() => {
		Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })
		document.dispatchEvent(new Event('visibilitychange'))
		return true
	})()`)
	f.until(t, "the end of the connection", func() bool { return f.tails == 0 })
	f.says("hiddentab", f.me.Id, "", entry.Chat{Text: "meanwhile."})
	eval[bool](b, "(delete document.hidden, document.dispatchEvent(new Event('visibilitychange')))")
	b.until("what was said meanwhile", says("meanwhile.", 1))
}

func TestAPageThatIsLeftGivesItsConnectionBack(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("thisone01", "This one")
	f.thread("otherone1", "Other one")
	b := newTab(t, f.start(t))
	for range 5 { // together more connections than a browser allows
		b.open("/threads/thisone01")
		b.untilLive()
		b.open("/threads/otherone1")
		b.untilLive()
	}
	f.until(t, "the end of all connections but one", func() bool { return f.tails == 1 })
	eval[int](b, "setTimeout(() => history.back())")
	b.until("the page before", "document.title.startsWith('This one')")
	f.says("thisone01", f.me.Id, "", entry.Chat{Text: "live again."})
	b.until("what comes live there", says("live again.", 1))
}

func TestASilentConnectionIsMadeAnew(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("silentone", "Silent")
	app := f.app(t)
	var silenced atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		app.ServeHTTP(&halfOpen{ResponseWriter: w, silenced: &silenced}, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	b := newTab(t, server.URL)
	b.open("/threads/silentone")
	b.untilLive()
	silenced.Store(true)
	f.says("silentone", f.me.Id, "", entry.Chat{Text: "into the wire."})
	eval[bool](b, "(now => { Date.now = () => now() + 50_000; return true })(Date.now)")
	b.until("what was said", says("into the wire.", 1))
}

// halfOpen is a connection that delivers nothing once it is silenced. Connections made after that work.
type halfOpen struct {
	http.ResponseWriter
	silenced *atomic.Bool
	dead     bool
	old      bool
}

func (h *halfOpen) Write(p []byte) (int, error) {
	if h.dead = h.dead || h.old && h.silenced.Load(); h.dead {
		return len(p), nil
	}
	h.old = !h.silenced.Load()
	return h.ResponseWriter.Write(p)
}

// Unwrap lets a response controller reach the connection.
func (h *halfOpen) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func TestAGapTooLargeIsLoadedAsItIsRead(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("gapgapgap", "Gap")
	f.says("gapgapgap", f.me.Id, "", entry.Chat{Text: "first."})
	server := &restartable{t: t, handler: f.app(t), address: "127.0.0.1:0"}
	server.start()
	t.Cleanup(server.kill)
	b := newTab(t, "http://"+server.address)
	b.open("/threads/gapgapgap")
	b.untilLive()
	server.kill()
	for i := range 320 {
		f.says("gapgapgap", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("missed %d.", i)})
	}
	server.start()
	b.until("the next page of it", "!!document.querySelector('#e51')")
	b.until("the end, once it was read down to it", "(document.querySelector('#newer')?.scrollIntoView(), !!document.querySelector('#next-322'))")
	f.says("gapgapgap", f.me.Id, "", entry.Chat{Text: "live again."})
	b.until("what comes live", says("live again.", 1))
	if n := eval[int](b, "document.querySelectorAll('[data-entry]').length"); n != 322 {
		t.Errorf("the page has %d entries, want 322", n)
	}
}

func TestTenThousandEntries(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("tenthousand", "Ten thousand")
	f.thread("shortshort", "Short")
	for i := range 10_000 {
		f.says("tenthousand", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("message %d.", i+1)})
	}
	for i := range 50 {
		f.says("shortshort", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("message %d.", i+1)})
	}
	b := newTab(t, f.start(t))

	entries := func(thread string) int {
		b.open("/threads/" + thread)
		b.untilLive()
		return eval[int](b, "document.querySelectorAll('[data-entry]').length")
	}
	if short, long := entries("shortshort"), entries("tenthousand"); short != 50 || long > 150 { // visible entries are loaded at once
		t.Errorf("the long thread opens with %d entries, a short one with %d", long, short)
	}
	b.until("the end in view", inView("#e10000"))

	t.Run("scrolling up loads older ones without a jump", func(t *testing.T) {
		b := b.in(t)
		eval[float64](b, "document.querySelector('#scroller').scrollTop = -1e6")
		b.until("older entries", "!!document.querySelector('#e9901')")
		eval[float64](b, "document.querySelector('#e9920').scrollIntoView(), 0")
		b.until("a place in the middle", inView("#e9920"))
		b.untilStill("#e9920") // older entries may still be loading above it
		before := eval[float64](b, "document.querySelector('#e9920').getBoundingClientRect().top")
		f.says("tenthousand", f.me.Id, "", entry.Chat{Text: "one more."})
		b.until("the new entry below", "!!document.querySelector('#e10001')")
		b.until("the pill", "document.querySelector('#jump.away #jump-text')?.innerText === '1 new'")
		b.until("the entry in the middle where it was", fmt.Sprintf("Math.abs(document.querySelector('#e9920').getBoundingClientRect().top - %v) <= 2", before))
	})
	t.Run("the pill leads to the end, where one follows again", func(t *testing.T) {
		b := b.in(t)
		b.do(chromedp.Click(chromedp.CSS("#jump")))
		b.until("the end", inView("#e10001"))
		b.until("no pill", "!document.querySelector('#jump.away')")
		f.says("tenthousand", f.me.Id, "", entry.Chat{Text: "followed."})
		b.until("the next one in view", inView("#e10002"))
	})
	t.Run("a link to an entry opens it, marked, wherever it is", func(t *testing.T) {
		b := b.in(t)
		for _, path := range []string{"/threads/tenthousand#e9990", "/threads/tenthousand#e17", "/threads/tenthousand?at=5000#e5000"} {
			seq := path[strings.LastIndex(path, "#e")+2:]
			b.open("/houses/home")
			b.open(path)
			b.until("the entry of "+path, inView("#e"+seq))
			b.until("its mark", "document.querySelector(':target')?.id === 'e"+seq+"'")
		}
	})
	t.Run("from the middle one reads on, down to what comes live", func(t *testing.T) {
		b := b.in(t)
		b.open("/threads/tenthousand?at=9900#e9900")
		b.until("the last page", "(document.querySelector('#newer')?.scrollIntoView(), !!document.querySelector('#next-10003'))")
		f.says("tenthousand", f.me.Id, "", entry.Chat{Text: "and live."})
		b.until("what comes live", "!!document.querySelector('#e10003')")
	})
}

// inView returns a script that reports whether an element can be seen in the log.
func inView(selector string) string {
	return fmt.Sprintf(`(() => {
		const e = document.querySelector(%q)?.getBoundingClientRect(), s = document.querySelector('#scroller').getBoundingClientRect()
		return !!e && e.bottom > s.top && e.top < s.bottom
	})()`, selector)
}

func TestNoTextIsEverLost(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("keepkeep", "Keep")
	server := &restartable{t: t, handler: f.app(t), address: "127.0.0.1:0"}
	server.start()
	t.Cleanup(server.kill)
	b := newTab(t, "http://"+server.address)
	b.open("/threads/keepkeep")
	b.untilLive()

	t.Run("a draft survives a reload", func(t *testing.T) {
		b := b.in(t)
		b.do(keysInto("#composer-text", "half a thought"), chromedp.Reload())
		b.until("the draft", "document.querySelector('#composer-text').value === 'half a thought'")
		eval[string](b, "document.querySelector('#composer-text').value = ''")
	})
	t.Run("a refused text says why and can be taken back", func(t *testing.T) {
		b := b.in(t)
		b.untilLive()
		f.failWith(refused(9, "the house has no environment", "set one first"))
		b.write("!make it so")
		b.until("the reason", "document.querySelector('.outgoing.refused .why')?.innerText === 'Not sent. The house has no environment. Set one first.'")
		f.failWith(nil)
		b.do(chromedp.Click(chromedp.CSS(".outgoing .retry")))
		b.until("the command", "document.querySelector('.prompt')?.innerText.includes('make it so')")
		b.until("an empty outbox", "document.querySelectorAll('#outbox form').length === 0")
	})
	t.Run("what could not be sent says so, survives a reload, and is sent once", func(t *testing.T) {
		b := b.in(t)
		server.kill()
		b.write("into the void.")
		b.until("that it waits", "document.querySelector('.outgoing.late .why')?.innerText.startsWith('Not sent')")
		server.start()
		b.do(chromedp.Reload())
		b.until("the message", says("into the void.", 1))
		b.until("an empty outbox", "document.querySelectorAll('#outbox form').length === 0")
		n := 0
		for _, e := range f.log("keepkeep") {
			n += strings.Count(e.Payload, "into the void.")
		}
		if n != 1 {
			t.Errorf("the log has it %d times", n)
		}
	})
}

// An edit that a reload interrupts goes on. Its text is never a draft, which would be sent as a new message.
func TestAnEditIsNoDraft(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("editedit", "Edit")
	f.says("editedit", "bot", "", entry.Chat{Text: "what do you want?"})
	f.says("editedit", f.me.Id, "", entry.Chat{Text: "helo to all"})
	b := newTab(t, f.start(t))
	open := func(b *tab) {
		b.open("/threads/editedit")
		b.untilLive()
	}
	edits := func(b *tab, what, text string) {
		b.t.Helper()
		b.until(what, fmt.Sprintf("document.querySelector('#composer-text').value === %q && document.querySelector('#composer').matches('.editing') && document.querySelector('#replying').checkVisibility() && document.querySelector('#replying').innerText === 'Editing your message'", text))
	}
	drafts := func(b *tab, what, text string) {
		b.t.Helper()
		b.until(what, fmt.Sprintf("document.querySelector('#composer-text').value === %q && !document.querySelector('#composer').matches('.editing') && !document.querySelector('#replying').innerText.includes('Editing')", text))
	}
	reload := func(b *tab) {
		b.do(chromedp.Reload())
		b.untilLive()
	}
	revise := func(b *tab) {
		b.until("that it can be edited", "!!document.querySelector('.own-last .revise')")
		eval[int](b, "(document.querySelector('.own-last .revise').click(), 1)")
		edits(b, "the edit", "helo to all")
		b.do(keysInto("#composer-text", ", and good night"))
	}
	open(b)
	b.do(keysInto("#composer-text", "half a thought"))

	t.Run("it goes on after a reload", func(t *testing.T) {
		b := b.in(t)
		revise(b)
		reload(b)
		edits(b, "the edit after a reload", "helo to all, and good night")
	})
	t.Run("another tab has the draft", func(t *testing.T) {
		other := b.in(t).another()
		open(other)
		drafts(other, "the draft", "half a thought")
	})
	t.Run("who leaves it has the draft", func(t *testing.T) {
		b := b.in(t)
		b.do(chromedp.Click(chromedp.CSS(".not-replying")))
		drafts(b, "the draft", "half a thought")
		reload(b)
		drafts(b, "the draft after a reload", "half a thought")
	})
	t.Run("a reply is no edit", func(t *testing.T) {
		b := b.in(t)
		revise(b)
		eval[int](b, "(document.querySelector('#e1 .reply').click(), 1)")
		drafts(b, "the draft", "half a thought")
		b.until("that it is a reply", "document.querySelector('#replying').innerText.startsWith('In reply to')")
		reload(b)
		drafts(b, "the draft after a reload", "half a thought")
	})
}

// noAnswer answers posts with an error while it is broken, like a proxy whose server is away.
type noAnswer struct {
	http.Handler
	f      *fake
	broken atomic.Bool
	tries  atomic.Int32
}

func (h *noAnswer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && h.broken.Load() {
		h.tries.Add(1)
		h.f.count(0) // wakes a test that waits for the tries
		http.Error(w, "bad gateway", http.StatusBadGateway)
		return
	}
	h.Handler.ServeHTTP(w, r)
}

// The page tries again every few seconds. The test speeds up its timers, and counts the tries.
func TestWhatCouldNotBeSentIsSentOnceWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("outage01", "Outage")
	h := &noAnswer{Handler: f.app(t), f: f}
	h.broken.Store(true)
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	b := newTab(t, server.URL)
	b.allow("502")
	b.open("/threads/outage01")
	b.untilLive()
	eval[bool](b, "(real => { window.setTimeout = (f, ms, ...rest) => real(f, ms / 50, ...rest); return true })(window.setTimeout)")
	b.write("said during the outage.")
	f.until(t, "more tries than fit into a minute", func() bool { return h.tries.Load() >= 20 })
	b.until("that it waits", "document.querySelector('.outgoing.late .why')?.innerText.startsWith('Not sent')")
	other := b.another()
	other.allow("502")
	other.open("/threads/outage01") // its outbox has the message too
	h.broken.Store(false)
	b.until("the message", says("said during the outage.", 1))
	b.until("an empty outbox", "document.querySelectorAll('#outbox form').length === 0")
	other.until("an empty outbox in the other tab", "document.querySelectorAll('#outbox form').length === 0")
	if log := f.log("outage01"); len(log) != 1 {
		t.Errorf("the log has %d entries", len(log))
	}
	b.do(chromedp.Reload())
	b.untilLive()
	if n := eval[int](b, "document.querySelectorAll('#outbox form').length"); n != 0 {
		t.Errorf("after a reload %d texts are sent again", n)
	}
}

func TestTextThatIsTooLargeStaysInTheComposer(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("toolarge1", "Too large")
	b := newTab(t, f.start(t))
	b.open("/threads/toolarge1")
	b.untilLive()
	eval[bool](b, "(area => { area.value = ('x'.repeat(63)+'\\n').repeat(24 * 1024); area.form.requestSubmit(); return true })(document.querySelector('#composer-text'))")
	b.until("the reason", "document.querySelector('#composer-error').innerText === 'Not sent. This has 1.5 MiB, and a message may have 1 MiB. Shorten it, or put it into a file.'")
	if n := eval[int](b, "document.querySelector('#composer-text').value.length"); n != 3<<19 {
		t.Errorf("the composer has %d characters", n)
	}
}

func TestReadingAndPostingWithoutAScript(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("noscript", "No script")
	f.says("noscript", f.me.Id, "", entry.Chat{Text: "readable."})
	b := newTab(t, f.start(t))
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/threads/noscript")
	b.do(keysInto("#composer-text", "posted."), chromedp.Click(chromedp.CSS("#composer .send"), chromedp.NodeVisible))
	f.until(t, "the entry", func() bool { return len(f.logs["noscript"]) == 2 })
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{})
	b.until("both", "document.querySelector('#log').innerText.includes('readable.') && document.querySelector('#log').innerText.includes('posted.')")
}

func TestForkingFromAnEntry(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("forkfork", "Try it")
	for i := range 3 {
		f.says("forkfork", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("message %d.", i+1)})
	}
	b := newTab(t, f.start(t))
	forked := "location.pathname !== '/threads/forkfork' && document.title.startsWith('Fork of Try it')"

	t.Run("with the mouse", func(t *testing.T) {
		b := b.in(t)
		b.open("/threads/forkfork")
		b.untilLive()
		b.hover("#e2")
		b.do(chromedp.Click(chromedp.CSS("#e2 .fork button")))
		b.until("the fork", forked)
		b.untilLive()
		b.write("another way.")
		b.until("what was said there", says("another way.", 1))
		if text := eval[string](b, "document.querySelector('#log').innerText"); !strings.Contains(text, "message 2.") || strings.Contains(text, "message 3.") {
			t.Errorf("the fork says %s", text)
		}
		b.do(chromedp.Click(chromedp.CSS("#log .note a")))
		b.until("the entry it was forked at, in its source", "location.pathname === '/threads/forkfork' && "+inView("#e2"))
		b.until("the fork, listed there", "document.querySelector('.forks')?.innerText.includes('Fork of Try it')")
	})
	t.Run("with keys alone, at an entry that came live", func(t *testing.T) {
		b := b.in(t)
		b.open("/threads/forkfork")
		b.untilLive()
		f.says("forkfork", f.me.Id, "", entry.Chat{Text: "message 4."})
		b.until("the live entry", "!!document.querySelector('#e4')")
		b.do(chromedp.KeyEvent("k"))
		b.until("the last entry chosen", "document.activeElement.id === 'e4'")
		for range 10 {
			b.do(chromedp.KeyEvent("\t"))
			if eval[bool](b, "document.activeElement.title === 'Fork from here'") {
				break
			}
		}
		b.until("the action in sight", "document.activeElement.title === 'Fork from here' && getComputedStyle(document.querySelector('#e4 .actions')).visibility === 'visible'")
		b.enter()
		b.until("the fork", forked+" && document.querySelector('#log').innerText.includes('message 4.')")
	})
	t.Run("again after going back is another fork", func(t *testing.T) {
		b := b.in(t)
		b.open("/threads/forkfork")
		b.untilLive()
		b.hover("#e1")
		b.do(chromedp.Click(chromedp.CSS("#e1 .fork button")))
		b.until("the fork", forked)
		first := eval[string](b, "location.pathname")
		eval[int](b, "setTimeout(() => history.back())")
		b.until("the source", "location.pathname === '/threads/forkfork' && !!document.querySelector('#e1')")
		b.untilLive()
		eval[int](b, "setTimeout(() => document.querySelector('#e1 .fork button').click())")
		b.until("another fork", forked+" && location.pathname !== '"+first+"'")
	})
	t.Run("without a script", func(t *testing.T) {
		b := newTab(t, b.base)
		call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		b.open("/threads/forkfork")
		b.hover("#e3")
		b.do(chromedp.Click(chromedp.CSS("#e3 .fork button")))
		call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{})
		b.until("the fork", forked+" && document.querySelector('#log').innerText.includes('message 3.')")
	})
}

func TestEvilTextDoesNothing(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.house.Name, f.me.Name = evil, evil
	f.thread("evilevil", evil)
	f.says("evilevil", f.me.Id, "", entry.Chat{Text: evil})
	b := newTab(t, f.start(t))
	b.open("/threads/evilevil")
	b.untilLive()
	b.write(evil)
	b.until("the text as text", "document.querySelector('#e2')?.innerText.includes('<script>')")
	f.says("evilevil", f.me.Id, "c1", entry.Command{Command: evil})
	f.prints("evilevil", "c1", 0, evil)
	b.until("the output as text", "document.querySelector('.screen')?.innerText.includes('<script>')")
	f.append("evilevil", evil, "", evil, `{"a":"<script>window.evil=1</script>"}`)
	b.until("the unknown entry", "!!document.querySelector('#e4 .generic')")
	b.open("/houses/home")
	b.untilLive()
	if eval[bool](b, "'evil' in window") {
		t.Error("a script ran")
	}
}

func TestTheDetailsFoldAway(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("foldfold", "Fold")
	b := newTab(t, f.start(t))
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1440, Height: 900, DeviceScaleFactor: 1})
	width := "document.querySelector('#context').getBoundingClientRect().width"
	b.open("/threads/foldfold")
	b.untilLive()
	b.until("the details", width+" > 200")
	b.do(chromedp.Click(chromedp.CSS(".context-button")))
	b.until("no details", width+" === 0")
	b.do(chromedp.Reload())
	b.untilLive()
	b.until("no details after a reload", width+" === 0")
	b.do(chromedp.Click(chromedp.CSS(".context-button")))
	b.until("the details again", width+" > 200")
}

func TestTheTitleIsChangedWhereItStands(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("titletitle", "Before")
	b := newTab(t, f.start(t))
	b.open("/threads/titletitle")
	b.untilLive()
	b.do(chromedp.DoubleClick(chromedp.CSS("#thread-head h1")))
	b.until("the title, chosen", "document.activeElement.name === 'name' && document.activeElement.value === 'Before'")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("the old title", "document.querySelector('#rename').hidden && document.querySelector('#thread-head h1').innerText === 'Before'")
	b.do(chromedp.DoubleClick(chromedp.CSS("#thread-head h1")))
	b.until("the title, chosen", "document.activeElement.name === 'name'")
	b.do(chromedp.KeyEvent("After"))
	b.enter()
	b.until("the new title", "document.querySelector('#thread-head h1').innerText === 'After' && document.title.startsWith('After') && document.querySelector('#rename').hidden")
}

func TestEscapeClosesAMenu(t *testing.T) {
	t.Parallel()
	b := newTab(t, newFake().start(t))
	b.open("/houses/home")
	b.untilLive()
	b.do(chromedp.Click(chromedp.CSS(".switch summary")))
	b.until("the menu", "document.querySelector('.switch').open")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("no menu, and the focus on its button", "!document.querySelector('.switch').open && document.activeElement.matches('.switch summary')")
}

func TestWhatIsWideScrollsByItself(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("tabletable", "Table")
	f.says("tabletable", f.me.Id, "", entry.Chat{Text: "|left|right|\n|:-|-:|\n" + strings.Repeat("|unbreakable_identifier_of_some_length|"+strings.Repeat("words ", 10)+"|\n", 2) +
		"\n|" + strings.Repeat("column_with_a_name|", 12) + "\n|" + strings.Repeat("-|", 12) + "\n\n- [x] done\n- [ ] open\n\n```\n" + strings.Repeat("code ", 100) + "\n```\n\n`short`\n\n```\nshort\n```"})
	f.says("tabletable", f.me.Id, "c1", entry.Command{Command: "wide"})
	f.says("tabletable", "", "c1.result", entry.CommandResult{CommandID: "c1", Output: strings.Repeat("wide ", 300), OutputBytes: 1500})
	b := newTab(t, f.start(t))
	b.open("/threads/tabletable")
	b.untilLive()
	b.until("a table that scrolls, and no word broken", `(([narrow, wide]) => wide.scrollWidth > wide.clientWidth &&
		[...wide.querySelectorAll('th')].every(th => th.getClientRects().length === 1 && th.offsetHeight < 40))([...document.querySelectorAll('.table')])`)
	b.until("what was aligned aligned", "getComputedStyle(document.querySelector('td[align=right]')).textAlign.endsWith('right')")
	b.until("what scrolls, and nothing else, a stop of Tab with a name",
		"[...document.querySelectorAll('.chat pre, .table, .screen')].every(e => (e.scrollWidth > e.clientWidth) === (e.tabIndex === 0) && (e.tabIndex === 0) === !!e.getAttribute('aria-label')) && "+
			"document.querySelectorAll('.screen[tabindex], pre[tabindex], .table[tabindex]').length >= 3")
	b.until("named boxes", "[...document.querySelectorAll('.chat input')].map(i => i.getAttribute('aria-label')).join() === 'Done,To do'")
	b.do(chromedp.Click(chromedp.CSS(".wrap-output")))
	b.until("wrapped output", "(s => s.scrollWidth <= s.clientWidth)(document.querySelector('.screen')) && document.querySelector('.wrap-output').ariaPressed === 'true'")
}

func TestRunAgainRunsTheCommandAgain(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("againagain", "Again")
	f.says("againagain", f.me.Id, "c1", entry.Command{Command: "make test"})
	f.says("againagain", "", "c1.result", entry.CommandResult{CommandID: "c1", Output: "ok", OutputBytes: 2})
	b := newTab(t, f.start(t))
	b.allow("412")
	b.open("/threads/againagain")
	b.untilLive()
	for n := range 2 {
		b.do(chromedp.Click(chromedp.CSS("#e1 .again button")))
		b.until("another command", fmt.Sprintf("document.querySelectorAll('.prompt').length === %d", n+2))
		b.until("an id for the next one", "!document.querySelector('#e1 .again.posting')")
	}
	f.update("againagain", func(t *arbev1.Thread) { t.Status = arbev1.ThreadStatus_THREAD_STATUS_CLOSED })
	// The notice disappears after a while, and the page changes when the thread is closed, so one click may not be enough.
	b.until("why not", "document.querySelector('#notice').innerText === 'This thread is closed. Reopen it to write or run something in it.' || (document.querySelector('#e1 .again:not(.posting) button')?.click(), false)")
}

// A page that is scrolled for a long time keeps only nearby entries, and loads the others again when needed.
func TestALongScrollStaysLight(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("longscroll", "Long")
	for i := range 700 {
		f.says("longscroll", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("message %d.", i+1)})
	}
	b := newTab(t, f.start(t))
	b.open("/threads/longscroll")
	b.untilLive()
	b.until("the first entry, loaded on the way up", "(document.querySelector('#scroller').scrollTop = -1e7, !!document.querySelector('#e1'))")
	count := "document.querySelectorAll('[data-entry]').length"
	b.until("few entries", count+" <= 600 && !document.querySelector('#e700')")
	if order := eval[bool](b, "[...document.querySelectorAll('[data-entry]')].every((e, i) => e.id === 'e' + (i + 1))"); !order {
		t.Error("entries are missing in between")
	}
	b.until("the last entry, loaded on the way down", "(document.querySelector('#newer')?.scrollIntoView(), !!document.querySelector('#next-701'))")
	b.until("few entries", count+" <= 600")
	f.says("longscroll", f.me.Id, "", entry.Chat{Text: "and live."})
	b.until("what comes live", "!!document.querySelector('#e701')")
}

func TestAReloadKeepsThePlace(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("placeplace", "Place")
	for i := range 400 {
		f.says("placeplace", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("message %d.", i+1)})
	}
	b := newTab(t, f.start(t))
	for _, seq := range []string{"370", "120"} { // an entry on this page, and one on an older page
		b.open("/login?x")
		b.open("/threads/placeplace?at=" + seq + "#e" + seq)
		b.until("the entry", inView("#e"+seq))
		eval[string](b, "history.replaceState(null, '', location.pathname), ''")
		top := "Math.round(document.querySelector('#e" + seq + "')?.getBoundingClientRect().top)"
		eval[string](b, "document.querySelector('#e"+seq+"').scrollIntoView({ block: 'start' }), ''")
		eval[int](b, "requestAnimationFrame(() => requestAnimationFrame(() => { window.noted = true }))")
		b.until("the place noted", "window.noted === true")
		before := eval[float64](b, top)
		eval[int](b, "setTimeout(() => { window.left = 1; location.reload() })")
		b.until("the page again", "!window.left && document.readyState === 'complete' && !!document.querySelector('#e"+seq+"')")
		b.until("the entry where it was", fmt.Sprintf("Math.abs(%s - %v) <= 4", top, before))
	}
}

// The list of threads overflows its column without moving anything.
func TestManyThreadsScrollNothingAway(t *testing.T) {
	t.Parallel()
	f := newFake()
	for i := range 300 {
		f.thread(fmt.Sprintf("many%04d", i), fmt.Sprintf("Thread number %d", i))
	}
	for i := range 60 {
		f.says("many0299", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("message %d.", i)})
	}
	b := newTab(t, f.start(t))
	const inPlace = "[document.scrollingElement, document.body, document.querySelector('.layout'), document.querySelector('.middle')].every(e => e.scrollTop === 0) && " +
		"document.querySelector('.layout').getBoundingClientRect().top === 0 && document.querySelector('.bar').getBoundingClientRect().top === 0"
	for _, path := range []string{"/threads/many0299#e11", "/threads/many0299#e9", "/houses/home"} {
		b.open("/login?leave")
		b.open(path)
		b.untilLive()
		for _, key := range []string{"k", "k", "j"} {
			b.do(chromedp.KeyEvent(key))
			b.until("something chosen", "!!document.querySelector('.chosen')")
		}
		eval[bool](b, "(scrollTo(0, 1e6), document.querySelector('.place:last-child')?.scrollIntoView(), true)")
		b.until("everything in its place on "+path, inPlace)
		if over := eval[int](b, "document.scrollingElement.scrollHeight - innerHeight"); over > 0 {
			t.Errorf("%s: the page is %d px longer than the window", path, over)
		}
	}
}

// A short page does not scroll.
func TestTheLoginPageFitsItsWindow(t *testing.T) {
	t.Parallel()
	b := newTab(t, newFake().start(t))
	b.open("/login")
	if over := eval[int](b, "document.scrollingElement.scrollHeight - innerHeight"); over > 0 {
		t.Errorf("the page is %d px longer than the window", over)
	}
}

func TestNewGivesItsBoxTheFocus(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("focusfocus", "Focus")
	b := newTab(t, f.start(t))
	focused := func(id string) string { return "document.activeElement.id === '" + id + "'" }
	for _, from := range []string{"/threads/focusfocus", "/houses/home"} {
		b.open(from)
		b.untilLive()
		for range 2 { // the second time the address does not change
			b.do(chromedp.Click(chromedp.CSS("[data-new]")))
			b.until("the house, its box in focus", "location.pathname === '/houses/home' && "+focused("starter-text"))
			eval[string](b, "document.activeElement.blur(), ''")
		}
	}
	b.do(chromedp.Click(chromedp.CSS("[data-new]")))
	b.until("the box", focused("starter-text"))
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("e"))
	b.enter()
	b.until("the new thread, its composer in focus", "location.pathname.startsWith('/threads/') && document.title.startsWith('je ') && "+focused("composer-text"))
	b.do(chromedp.KeyEvent("k"))
	b.until("what was typed", "document.querySelector('#composer-text').value === 'k'")
}

func TestADoubleClickOnOnesNameDoesNotLogOut(t *testing.T) {
	t.Parallel()
	b := newTab(t, newFake().start(t))
	b.open("/houses/home")
	b.untilLive()
	for range 2 {
		b.do(chromedp.Click(chromedp.CSS(".me summary")))
		b.until("what was clicked still under the pointer", `(r => !!document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2).closest('.me summary'))(
			window.clicked ??= document.querySelector('.me summary').getBoundingClientRect())`)
	}
	b.do(chromedp.Click(chromedp.CSS(".me summary")))
	b.until("the menu", "document.querySelector('.me details').open && document.querySelector('.me .menu-body').getBoundingClientRect().bottom <= window.clicked.top")
}

func TestThreadsStartFromTheHouse(t *testing.T) {
	t.Parallel()
	f := newFake()
	b := newTab(t, f.start(t))
	b.open("/houses/home")
	b.untilLive()
	f.thread("elsewhere", "Made elsewhere")
	b.until("a thread made elsewhere", "document.querySelector('#threads').innerText.includes('Made elsewhere')")
	b.do(keysInto("#starter-text", "Fix the login"))
	b.enter()
	b.until("the new thread", "location.pathname.startsWith('/threads/') && document.title.startsWith('Fix the login')")
	b.until("its first message", says("Fix the login", 1))
	b.untilLive() // its script has removed the draft
	b.open("/houses/home")
	b.untilLive() // its script has filled in the drafts
	if left := eval[string](b, "document.querySelector('#starter-text').value"); left != "" {
		t.Errorf("the house still has the draft %q", left)
	}
}

func TestGoingBackToTheHouseStartsAnotherThread(t *testing.T) {
	t.Parallel()
	f := newFake()
	b := newTab(t, f.start(t))
	b.open("/houses/home")
	b.untilLive()
	started := func(text string) string {
		b.do(keysInto("#starter-text", text))
		b.enter()
		b.until("the new thread", "location.pathname.startsWith('/threads/') && document.title.startsWith('"+text+"')")
		b.until("its first message", says(text, 1))
		b.untilLive() // its script has removed the draft
		return eval[string](b, "location.pathname")
	}
	first := started("Fix the login")
	eval[int](b, "setTimeout(() => history.back())")
	b.until("the house, without the text that was sent", "location.pathname === '/houses/home' && document.querySelector('#starter-text')?.value === '' && document.readyState === 'complete'")
	b.untilLive()
	if second := started("Paint the fence"); second == first {
		t.Error("the second text went into the first thread")
	}

	// What nobody has answered is sent again with the same ids.
	b.open("/houses/home")
	b.untilLive()
	f.mu.Lock()
	before := len(f.threads)
	f.fail = refused(connect.CodeUnavailable, "arbe does not answer right now", "try again")
	f.mu.Unlock()
	b.allow("503")
	b.do(keysInto("#starter-text", "Water the plants"))
	b.enter()
	b.until("the error", "!document.querySelector('#starter-text')")
	eval[int](b, "setTimeout(() => history.back())")
	b.until("the house, with the text", "document.querySelector('#starter-text')?.value === 'Water the plants'")
	f.mu.Lock()
	f.fail = nil
	f.mu.Unlock()
	b.do(chromedp.Click(chromedp.CSS(".starter .primary")))
	b.until("the new thread", "location.pathname.startsWith('/threads/') && document.title.startsWith('Water the plants')")
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.threads) - before; n != 1 {
		t.Errorf("there are %d more threads, want 1", n)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("keyskeys", "Keys")
	for i := range 3 {
		f.says("keyskeys", f.me.Id, "", entry.Chat{Text: fmt.Sprint("message ", i)})
	}
	b := newTab(t, f.start(t))
	b.open("/threads/keyskeys")
	b.untilLive()
	b.do(chromedp.KeyEvent("k"), chromedp.KeyEvent("k"))
	b.until("the second entry chosen", "document.activeElement.id === 'e2'")
	f.says("keyskeys", f.me.Id, "", entry.Chat{Text: "live"})
	b.until("a live entry", "!!document.querySelector('#e4')")
	b.until("the focus kept", "document.activeElement.id === 'e2'")
	b.do(chromedp.KeyEvent("?"))
	b.until("the sheet", "document.querySelector('#sheet').matches(':popover-open')")
	b.do(chromedp.KeyEvent("?"), chromedp.KeyEvent("c"))
	b.until("the composer", "document.activeElement.id === 'composer-text'")
	eval[string](b, "document.activeElement.blur(), ''")
	b.do(chromedp.KeyEvent("g"), chromedp.KeyEvent("h"))
	b.until("the house", "location.pathname === '/houses/home'")
}

func TestEveryWidth(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("widewide", strings.Repeat("A very long name without an end ", 5))
	f.says("widewide", f.me.Id, "", entry.Chat{Text: strings.Repeat("unbroken", 60) + "\n\n```\n" + strings.Repeat("wide ", 200) + "\n```\n\n|" + strings.Repeat("cell|", 30) + "\n|" + strings.Repeat("-|", 30)})
	f.says("widewide", f.me.Id, "c1", entry.Command{Command: strings.Repeat("long", 200)})
	f.says("widewide", "", "c1.result", entry.CommandResult{CommandID: "c1", Output: strings.Repeat("=", 4000) + "\n"})
	f.append("widewide", f.me.Id, "", strings.Repeat("type.", 30), `{"a":"`+strings.Repeat("x", 500)+`"}`)
	base := f.start(t)
	for _, width := range []int64{320, 390, 820, 1440} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			b := newTab(t, base)
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 844, DeviceScaleFactor: 1, Mobile: width < 800})
			for _, path := range []string{"/threads/widewide", "/houses/home", "/login"} {
				b.open(path)
				if over := eval[int](b, "Math.max(document.documentElement.scrollWidth - innerWidth, (document.querySelector('#scroller')?.scrollWidth ?? 0) - (document.querySelector('#scroller')?.clientWidth ?? 0))"); over > 0 {
					t.Errorf("%s is %d px too wide", path, over)
				}
			}
			if width < 720 {
				b.open("/threads/widewide")
				b.do(chromedp.Click(chromedp.CSS(".places-button")))
				b.until("the places", "document.querySelector('#places-column').getBoundingClientRect().width > 200")
			}
		})
	}
}

func TestATailThatCannotGoOnSaysSo(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("gonegone", "Gone")
	b := newTab(t, f.start(t))
	b.open("/threads/gonegone")
	b.untilLive()
	f.delete("gonegone")
	b.until("that the thread is gone", "document.querySelector('#live').innerText.includes('This thread is gone.')")

	f.thread("loggedout", "Logged out")
	b.open("/threads/loggedout")
	b.untilLive()
	call(b, network.SetCookie, network.SetCookieParams{Name: "arbe_session", Value: "old", URL: b.base})
	eval[bool](b, "(dispatchEvent(new Event('online')), true)")
	b.until("that one is logged out", "document.querySelector('#live').innerText.includes('You are logged out.')")
}

// After somebody has logged out, the Back button does not show their pages to the next person at the browser.
func TestNothingIsSeenByGoingBackAfterLoggingOut(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{true, false} { // browsers keep a page with a connection differently from one without
		t.Run(fmt.Sprintf("live %t", live), func(t *testing.T) {
			t.Parallel()
			f := newFake()
			const private = "A secret plan"
			f.thread("private01", private)
			b := newTab(t, f.start(t))
			path := "/threads/private01"
			if !live {
				path = "/houses/" + f.house.Id
			}
			b.open(path)
			b.until("the text", "document.body.innerText.includes('"+private+"')")
			b.open("/login?leave")
			eval[int](b, `setTimeout(() => { const f = document.createElement("form"); f.method = "post"; f.action = "/logout"; document.body.append(f); f.submit() })`)
			b.until("the page for who is not logged in", "location.pathname === '/login' && location.search === ''")
			eval[int](b, "window.left = 1; setTimeout(() => history.go(-2))")
			b.until("another page", "window.left === undefined && document.readyState === 'complete'")
			if text := eval[string](b, "document.body.innerText"); strings.Contains(text, private) {
				t.Error("a private page is shown after its reader has logged out")
			}
		})
	}
}
