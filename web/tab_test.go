package web_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/db/dbtest"
)

// headless is one browser for all tests. Each test has its own profile in it. It is Chromium's headless shell, which has the
// engine of Chromium without its windows, and takes half of its processor time. Without the shell, it is [chromium].
var headless = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		return chromium()
	}
	return launch(path)
})

// chromium is one browser for the tests of what only a browser with windows has.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("these tests drive a real browser; install chromium: %w", err)
	}
	return launch(path)
})

// launched are the browsers to close after the tests.
var launched struct {
	sync.Mutex
	browsers []context.Context
}

func launch(path string) (context.Context, error) {
	allocator, _ := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.WSURLReadTimeout(patience), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("host-resolver-rules", "MAP *.arbe.test 127.0.0.1"), // for tests of several hosts of one domain
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-background-networking", true))...)
	browser, _ := chromedp.NewContext(allocator)
	launched.Lock()
	defer launched.Unlock()
	launched.browsers = append(launched.browsers, browser)
	return browser, chromedp.Do(browser)
}

// TestMain closes the browsers after the tests.
func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		os.Exit(beServer())
	}
	dbtest.Main(m, func() {
		for _, browser := range launched.browsers {
			_ = chromedp.Cancel(browser)
		}
	})
}

// tab is a browser tab. An error in its console, such as a violation of the content security policy, fails the test.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string
	// allowed holds texts of expected errors, if any.
	allowed atomic.Pointer[[]string]
}

// allow makes the test accept console errors with one of these texts, and no others.
func (b *tab) allow(texts ...string) { b.allowed.Store(&texts) }

// newTab opens a tab in a fresh profile, logged in at base.
func newTab(t *testing.T, base string) *tab { t.Helper(); return newTabOf(t, headless, base) }

func newTabOf(t *testing.T, open func() (context.Context, error), base string) *tab {
	t.Helper()
	browser, err := open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := setUp(t, ctx, cancel, base)
	call(b, network.SetCookie, network.SetCookieParams{Name: "arbe_session", Value: "good", URL: base})
	return b
}

// another opens a second tab of the same profile.
func (b *tab) another() *tab {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	return setUp(b.t, ctx, cancel, b.base)
}

func setUp(t *testing.T, ctx context.Context, cancel context.CancelFunc, base string) *tab {
	t.Helper()
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, base: base}
	if err := chromedp.Do(ctx); err != nil { // opens the tab, which lives as long as this context
		t.Fatal(err)
	}
	console := chromedp.Console(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for message, err := range console {
			if err != nil {
				return
			}
			b.heard(message)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

// in returns the tab for a subtest.
func (b *tab) in(t *testing.T) *tab { return &tab{t: t, ctx: b.ctx, base: b.base} }

// logOut removes the session's cookie.
func (b *tab) logOut() {
	b.t.Helper()
	call(b, network.ClearBrowserCookies, cdp.Empty{})
}

func (b *tab) heard(message chromedp.ConsoleMessage) {
	if message.Type != "error" && message.Type != chromedp.ConsoleException {
		return
	}
	if strings.Contains(message.Text, "net::ERR_") {
		return // some tests kill the server, and the browser then reports that it cannot be reached
	}
	if allowed := b.allowed.Load(); allowed != nil && slices.ContainsFunc(*allowed, func(text string) bool { return strings.Contains(message.Text, text) }) {
		return
	}
	b.t.Errorf("the console says: %s (%s)", message.Text, message.URL)
}

// keysInto writes text into the element, as a person would. (chromedp.SendKeys of v0.22.1 reads an element's attributes
// before it takes their lock: a data race with a page that changes them during the typing.)
func keysInto(selector, text string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := chromedp.Focus(chromedp.CSS(selector), chromedp.NodeVisible)(ctx, t); err != nil {
			return err
		}
		_, err := chromedp.KeyEvent(text)(ctx, t)
		return err
	})
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// call sends one command of the browser's protocol to the tab.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

// before runs a script in every page that the tab opens, before the page's own scripts.
func (b *tab) before(script string) {
	b.t.Helper()
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// pictures takes pictures of the page in both colour schemes, wide and on a phone, if ARBE_SCREENSHOTS names a directory for them.
func (b *tab) pictures(name string) {
	b.t.Helper()
	dir := os.Getenv("ARBE_SCREENSHOTS")
	if dir == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1})
			b.until("the width", fmt.Sprintf("innerWidth === %d", width))
			shot, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
			if err != nil {
				b.t.Fatal(err)
			}
			if err := os.WriteFile(fmt.Sprintf("%s/%s-%s-%d.png", dir, name, scheme, width), shot.Data, 0o644); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 800, DeviceScaleFactor: 1})
}

// eval runs a script and returns its value.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// until waits until a script is true. The tab may go to another page meanwhile.
func (b *tab) until(what, script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		// A page that the tab is leaving cannot run the script, so errors are ignored until the time is up.
		if done, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err == nil && done {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("location + ' ' + JSON.stringify(document.documentElement.dataset) + ' ' + document.visibilityState + ' ' + document.querySelector('#live')?.dataset.topics + '\\n' + document.body.innerText.slice(0, 3000)"))
			b.t.Fatalf("waited too long for %s; the page is %s", what, text)
		}
	}
}

// untilStill waits until an element has not moved for ten checks.
func (b *tab) untilStill(selector string) {
	b.t.Helper()
	b.until(selector+" to stay where it is", fmt.Sprintf(`(top => {
		window.still = window.lastTop === top ? (window.still ?? 0) + 1 : 0
		window.lastTop = top
		return window.still >= 10
	})(document.querySelector(%q).getBoundingClientRect().top)`, selector))
}

// untilLive waits for the connection that keeps the page live.
func (b *tab) untilLive() {
	b.t.Helper()
	b.until("the live connection", "document.documentElement.dataset.live === ''")
}

// untilAnother does something that opens another page, and waits until that page is live. The page before it may show what
// changes first, but loses what is typed into it then.
func (b *tab) untilAnother(do func()) {
	b.t.Helper()
	eval[int](b, "window.left = 1")
	do()
	b.until("another page", "!window.left")
	b.untilLive()
}

// write types into the composer and sends with Enter.
func (b *tab) write(text string) {
	b.t.Helper()
	b.do(keysInto("#composer-text", text))
	b.enter()
}

// enter presses Enter as a keyboard does: with one event, whose default action the page can prevent.
func (b *tab) enter() {
	b.t.Helper()
	key := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13}
	call(b, input.DispatchKeyEvent, key)
	key.Type, key.Text = input.DispatchKeyEventTypeKeyUp, ""
	call(b, input.DispatchKeyEvent, key)
}

// hover moves the pointer to an element.
func (b *tab) hover(selector string) {
	b.t.Helper()
	at := eval[[]float64](b, fmt.Sprintf("(e => { e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })(document.querySelector(%q))", selector))
	call(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: at[0], Y: at[1]})
	b.until("the pointer on "+selector, fmt.Sprintf("document.querySelector(%q).matches(':hover')", selector))
}

// says returns a script that reports whether the log shows a text exactly this many times.
func says(text string, times int) string {
	return fmt.Sprintf("document.querySelector('#log').innerText.split(%q).length - 1 === %d", text, times)
}
