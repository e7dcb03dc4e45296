package web_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// terminalText is a script: the text that the terminal shows.
const terminalText = "[...document.querySelectorAll('#tty-screen > .tty-lines:not([hidden], #tty-probe) > div')].map(l => l.textContent).join('\\n')"

// shows waits until the terminal shows a text.
func (b *tab) shows(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q in the terminal", text), terminalText+".includes("+quoted(text)+")")
}

// keys types text into the terminal as a keyboard does: with events whose default action the page can prevent.
func (b *tab) keys(text string) {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.CSS("#tty-input")))
	for _, c := range text {
		key := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: string(c), Text: string(c)}
		if c == '\r' {
			key.Key, key.WindowsVirtualKeyCode = "Enter", 13
		}
		call(b, input.DispatchKeyEvent, key)
	}
}

// ctrl and shift are modifiers of keys, as the browser's protocol names them.
const ctrl, shift = 2, 8

// chord presses a key with Ctrl.
func (b *tab) chord(key string, more int64) {
	b.t.Helper()
	press := input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeRawKeyDown, Key: key, Code: "Key" + strings.ToUpper(key), Modifiers: ctrl | more,
		WindowsVirtualKeyCode: int64(strings.ToUpper(key)[0]),
	}
	call(b, input.DispatchKeyEvent, press)
	press.Type = input.DispatchKeyEventTypeKeyUp
	call(b, input.DispatchKeyEvent, press)
}

// TestATerminalOnThePage uses a terminal as a person does, with a server, a sandbox and a browser.
func TestATerminalOnThePage(t *testing.T) {
	t.Parallel()
	a := installation(t)
	a.start()
	c := a.client()
	link, err := c.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t, "http://"+a.addr)
	b.logOut()
	b.open(link.Path)
	b.do(chromedp.Click(chromedp.CSS("form[action='/login'] button")))
	b.until("the house", "location.pathname.startsWith('/houses/')")
	thread := a.thread(c, 0)
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1440, Height: 900, DeviceScaleFactor: 1})

	t.Run("the panel of the sandbox opens a shell", func(t *testing.T) {
		b := b.in(t)
		b.open("/threads/" + thread)
		b.do(chromedp.Click(chromedp.CSS(".terminal-open button")))
		b.until("the terminal", "location.search.startsWith('?command=')")
		b.until("the prompt", "/[$#] *$/.test("+terminalText+".trim())")
	})
	if t.Failed() {
		return
	}
	t.Run("colours are classes, and markup is text", func(t *testing.T) {
		b := b.in(t)
		b.keys("printf '\\033[1;31mred\\033[0m <b>no %s</b>\\n' markup\r")
		b.shows("red <b>no markup</b>")
		b.until("red in bold", "document.querySelector('#tty-main .term-fg31.term-fg1')?.textContent === 'red'")
		if eval[int](b, "document.querySelectorAll('#tty-screen b').length") != 0 {
			t.Error("output became markup")
		}
	})
	t.Run("Ctrl-C ends what runs, and arrows bring it back", func(t *testing.T) {
		b := b.in(t)
		b.keys("(echo run''ning; exec sleep 1000); echo slept $?\r")
		b.shows("running") // only now does the shell pass the key on
		b.chord("c", 0)
		b.shows("^C")
		b.keys("echo back $((40+2))\r")
		b.shows("back 42")
	})
	t.Run("a program has the alternate screen, and gives back the shell", func(t *testing.T) {
		b := b.in(t)
		b.keys("printf '\\033[?1049h\\033[H\\033[2J\\033[3;5Hedi%s\\033[?25l' tor; read x; printf '\\033[?1049l\\033[?25h'; echo le''ft\r")
		b.until("the editor's screen", "document.querySelector('#tty-main').hidden && "+terminalText+".split('\\n')[2] === '    editor' && document.querySelector('#tty-cursor').hidden")
		b.keys("\r")
		b.shows("left")
		b.shows("back 42")
	})
	t.Run("the command knows the size of the window", func(t *testing.T) {
		b := b.in(t)
		for _, width := range []int64{1000, 1440} {
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1})
			b.until("the size", fmt.Sprintf("innerWidth === %d", width))
			columns := eval[int](b, `(() => { const s = document.querySelector('#tty-screen'), p = document.querySelector('#tty-probe').getBoundingClientRect().width / 10; return Math.floor((s.clientWidth - 16) / p) })()`)
			b.keys(fmt.Sprintf("until stty size | grep ' %d$'; do sleep .1; done; echo fi''ts %d\r", columns, width))
			b.shows(fmt.Sprintf("fits %d", width))
		}
	})
	t.Run("a paste is marked if the program asks", func(t *testing.T) {
		b := b.in(t)
		b.keys("echo rea''dy; cat -v\r")
		b.shows("ready") // only now is a paste for cat, which does not ask for marks, and not for the shell, which does
		b.do(chromedp.Evaluate[chromedp.Void](`{ const data = new DataTransfer(); data.setData('text', 'pas' + 'ted\n'); document.querySelector('#tty-input').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })) }`))
		b.until("it twice: echoed, and from cat", terminalText+".split('pasted').length >= 3")
		b.chord("d", 0)
	})
	t.Run("a second tab joins, and a reload keeps the screen", func(t *testing.T) {
		b := b.in(t)
		other := b.another()
		other.open(eval[string](b, "location.pathname + location.search"))
		other.shows("back 42")
		b.keys("echo in bo''th\r")
		other.shows("in both")
		b.do(chromedp.Reload())
		b.shows("in both")
		b.shows("back 42")
	})
	t.Run("much output does not stop the page", func(t *testing.T) {
		b := b.in(t)
		b.keys("seq 1 300000; echo do''ne\r")
		b.shows("done")
		if n := eval[int](b, "document.querySelectorAll('#tty-main > div').length"); n > 1300 {
			t.Errorf("the page keeps %d lines", n)
		}
		b.keys("clear; echo cle''ared\r")
		b.shows("cleared")
	})
	t.Run("keys that are sent again are typed once", func(t *testing.T) {
		b := b.in(t)
		eval[int](b, `((async () => {
			for (const again of ['', 'yes']) await fetch(document.querySelector('#tty').dataset.path + '/keys', { method: 'POST', body: new URLSearchParams({ tab: 'test', n: '1', keys: "echo on''ce\r", again }) })
			window.sentTwice = true
		})(), 1)`)
		b.until("both requests", "!!window.sentTwice")
		b.keys("echo aft''er\r")
		b.shows("after")
		if n := eval[int](b, terminalText+".split('\\n').filter(l => l === 'once').length"); n != 1 {
			t.Errorf("the keys were typed %d times", n)
		}
	})
	t.Run("another terminal takes it, and the page takes it back", func(t *testing.T) {
		b := b.in(t)
		log, err := c.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread, Last: true, Limit: 10, Types: []string{"command"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := c.Join(ctx, thread, log.Entries[len(log.Entries)-1], arbe.Terminal{In: strings.NewReader(""), Out: io.Discard, Size: &arbev1.TerminalSize{Rows: 24, Columns: 80}})
			gone <- err
		}()
		b.until("that it is elsewhere", "document.querySelector('#tty-status').textContent.includes('somewhere else') && !document.querySelector('#tty-again').hidden")
		b.do(chromedp.Click(chromedp.CSS("#tty-again")))
		<-gone // the other one lost it
		leave()
		b.until("the connection", "document.querySelector('#tty-status').textContent === ''")
		b.keys("echo mine ag''ain\r")
		b.shows("mine again")
	})
	t.Run("it goes on after the server was killed", func(t *testing.T) {
		b := b.in(t)
		b.keys("marker=still-there; echo no''ted\r")
		b.shows("noted") // a key that is under way when the server dies is lost, because it may have been typed already
		a.kill()
		b.until("that it is lost", "document.querySelector('#tty-status').textContent.includes('Reconnecting')")
		a.start()
		b.until("the connection", "document.querySelector('#tty-status').textContent === ''")
		b.keys("echo it is $marker\r")
		b.shows("it is still-there")
	})
	t.Run("the keyboard can leave it, and it is accessible", func(t *testing.T) {
		b := b.in(t)
		b.keys("clear; for i in 1 2 3 4 5 6; do printf \"\\033[3${i}mink \\033[0m\\033[4${i}mground\\033[0m \\033[38;5;${i}9m256\\033[0m \\033[7minverse\\033[0m \\342\\224\\200 \\344\\270\\226|\\n\"; done; echo col''ours\r")
		b.shows("colours")
		b.chord("l", shift)
		b.until("the way back", "document.activeElement.id === 'tty-leave'")
		b.accessibleEverywhere("a terminal")
		if dir := os.Getenv("ARBE_TEST_SCREENSHOTS"); dir != "" {
			pictures(b, dir)
		}
		call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1440, Height: 800, DeviceScaleFactor: 1})
	})
	t.Run("it ends with the shell, and another one opens", func(t *testing.T) {
		b := b.in(t)
		b.keys("exit 3\r")
		b.until("the end", "document.querySelector('#tty-status').textContent.startsWith('The shell ended (exit 3')")
		before := eval[string](b, "location.search")
		b.do(chromedp.Click(chromedp.CSS("button[name=another]")))
		b.until("another shell", "location.search !== "+quoted(before)+" && location.search.startsWith('?command=')")
		b.until("its prompt", "/[$#] *$/.test("+terminalText+".trim())")
	})
}

// pictures takes screenshots of the tab in both colour schemes, wide and on a phone.
func pictures(b *tab, dir string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1440, 390} {
			call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1})
			b.until("the width", fmt.Sprintf("innerWidth === %d", width))
			picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				b.t.Fatal(err)
			}
			if err := os.WriteFile(fmt.Sprintf("%s/terminal-%s-%d.png", dir, scheme, width), picture, 0o600); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}
