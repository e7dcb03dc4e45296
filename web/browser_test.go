package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
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
	f.threads["livelive"].Status = "closed"
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
	b.do(chromedp.SendKeys(chromedp.CSS("#composer-text"), "one"),
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
	b.until("a running block with Stop", "!!document.querySelector('.command.running .stop button') && document.querySelector('.prompt').innerText.includes('make test')")
	id := f.last("blockblock").Id

	f.prints("blockblock", id, 0, "\x1b[32mok\x1b[0m first\n")
	b.until("live output in colour", "document.querySelector('.screen .term-fg32')?.innerText === 'ok'")
	late := b.another()
	f.prints("blockblock", id, 9000, "and more\n")
	b.until("a gap in the output is stated", "document.querySelector('.cut')?.innerText.includes('not shown until it ends')")

	f.says("blockblock", "", entry.ResultID(id), entry.CommandResult{CommandID: id, DurationMS: 1234, Output: "all of it\n", OutputBytes: 10})
	b.until("the result in place of the preview", "document.querySelector('.screen')?.innerText.trim() === 'all of it'")
	b.until("the verdict", "document.querySelector('.foot').innerText.includes('exit 0 · 1.23s')")
	if n := eval[int](b, "document.querySelectorAll('.command').length"); n != 1 {
		t.Errorf("there are %d blocks, want one", n)
	}
	if eval[bool](b, "!!document.querySelector('.stop')") {
		t.Error("Stop is still there")
	}
	late.open("/threads/blockblock")
	if text := eval[string](late, "document.querySelector('#e2') ? document.querySelector('.foot').innerText : ''"); !strings.Contains(text, "exit 0") {
		t.Errorf("the page opened later says %q", text)
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
	b.until("the verdict", "document.querySelector('.foot').innerText.includes('cancelled')")
	if at := eval[string](b, "location.pathname"); at != "/threads/stopstop" {
		t.Errorf("the page went to %s", at)
	}
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
		t.Error("the page was loaded anew")
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
	eval[bool](b, "(() => { const twin = document.querySelector('#live').cloneNode(); twin.id = 'twin'; document.body.append(twin); return true })()")
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
		const now = Date.now
		Date.now = () => now() + 61_000
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
	for range 5 { // more than the connections a browser allows, in all
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
	eval[bool](b, "(now => { Date.now = () => now() + 20_000; return true })(Date.now)")
	b.until("what was said", says("into the wire.", 1))
}

// halfOpen is a connection that, once silenced, takes everything and delivers nothing; new ones are well.
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

// Unwrap lets a response controller through to the connection.
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

	times := b.opens("shortshort", "tenthousand")
	if short, long := times[0], times[1]; long > 2*short+100*time.Millisecond {
		t.Errorf("the long thread opens in %v, a short one in %v", long, short)
	}
	b.until("the end in view", inView("#e10000"))

	t.Run("scrolling up loads older ones without a jump", func(t *testing.T) {
		b := b.in(t)
		eval[float64](b, "document.querySelector('#scroller').scrollTop = -1e6")
		b.until("older entries", "!!document.querySelector('#e9901')")
		eval[float64](b, "document.querySelector('#e9920').scrollIntoView(), 0")
		b.until("a place in the middle", inView("#e9920"))
		before := eval[float64](b, "document.querySelector('#e9920').getBoundingClientRect().top")
		eval[float64](b, "document.querySelector('#older a').getBoundingClientRect().top")
		f.says("tenthousand", f.me.Id, "", entry.Chat{Text: "one more."})
		b.until("the new entry below", "!!document.querySelector('#e10001')")
		b.until("the pill", "document.querySelector('#jump.away #jump-text')?.innerText === '1 new'")
		if after := eval[float64](b, "document.querySelector('#e9920').getBoundingClientRect().top"); after < before-2 || after > before+2 {
			t.Errorf("the entry one reads moved from %v to %v", before, after)
		}
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
			if marked := eval[string](b, "document.querySelector(':target')?.id ?? ''"); marked != "e"+seq {
				t.Errorf("%s marks %q", path, marked)
			}
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

// inView is a script that tells whether an element can be seen in the log.
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
		b.do(chromedp.SendKeys(chromedp.CSS("#composer-text"), "half a thought"), chromedp.Reload())
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

func TestReadingAndPostingWithoutAScript(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("noscript", "No script")
	f.says("noscript", f.me.Id, "", entry.Chat{Text: "readable."})
	b := newTab(t, f.start(t))
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/threads/noscript")
	b.do(chromedp.SendKeys(chromedp.CSS("#composer-text"), "posted."), chromedp.Click(chromedp.CSS("#composer .send"), chromedp.NodeVisible))
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
		b.until("the action in sight", "document.activeElement.title === 'Fork from here' && getComputedStyle(document.querySelector('#e4 .actions')).opacity === '1'")
		b.enter()
		b.until("the fork", forked+" && document.querySelector('#log').innerText.includes('message 4.')")
	})
	t.Run("again after going back is another fork", func(t *testing.T) {
		b := b.in(t)
		b.open("/threads/forkfork")
		b.untilLive()
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

func TestThreadsStartFromTheHouse(t *testing.T) {
	t.Parallel()
	f := newFake()
	b := newTab(t, f.start(t))
	b.open("/houses/home")
	b.untilLive()
	f.thread("elsewhere", "Made elsewhere")
	b.until("a thread made elsewhere", "document.querySelector('#threads').innerText.includes('Made elsewhere')")
	b.do(chromedp.SendKeys(chromedp.CSS("#starter-text"), "Fix the login"))
	b.enter()
	b.until("the new thread", "location.pathname.startsWith('/threads/') && document.title.startsWith('Fix the login')")
	b.until("its first message", says("Fix the login", 1))
	b.open("/houses/home")
	if left := eval[string](b, "document.querySelector('#starter-text').value"); left != "" {
		t.Errorf("the house still has the draft %q", left)
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
