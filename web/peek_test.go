package web_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Space shows the end of the chosen thread, without reading it for the reader.
func TestTheEndOfAThreadIsSeenFromTheList(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("olderone", "Older")
	f.says("olderone", f.me.Id, "", entry.Chat{Text: "what was said in the older one"})
	f.thread("newerone", "Newer "+evil)
	for range 9 {
		f.says("newerone", f.me.Id, "", entry.Chat{Text: "before"})
	}
	f.says("newerone", f.me.Id, "", entry.Chat{Text: "**the end** of it " + evil})
	f.needs("newerone", "Newer", arbev1.NeedReason_NEED_REASON_MENTION)
	b := newTab(t, f.start(t))
	b.open("/houses/home")
	b.untilLive()
	b.do(chromedp.KeyEvent("j"))
	b.do(chromedp.KeyEvent(" "))
	b.until("the end of the thread", "document.querySelector('#peek').open && document.querySelector('#peek').innerText.includes('the end of it <script>') && document.querySelectorAll('#peek [data-entry]').length === 8 && document.querySelector('#peek header b').innerText === 'Ada'")
	b.loadAxe()
	b.accessible("the end of a thread")
	b.pictures("peek")
	b.do(chromedp.KeyEvent(" "))
	b.until("that it is closed, with the focus in the row", "!document.querySelector('#peek').open && document.activeElement.closest('li').id === 'need-newerone'")
	b.do(chromedp.KeyEvent("j"))
	b.do(chromedp.KeyEvent("j"))
	b.hover("#t-olderone .thread-link")
	b.do(chromedp.Click(chromedp.CSS("#t-olderone .peek-button")))
	b.until("the other thread", "document.querySelector('#peek').innerText.includes('the older one')")
	b.do(chromedp.KeyEvent("k"))
	b.until("the one before it", "document.querySelector('#peek').innerText.includes('the end of it')")
	if !eval[bool](b, "!!document.querySelector('#need-newerone') && !window.evil") {
		t.Error("to look is to read, or what was said was run")
	}
	b.do(chromedp.KeyEvent("\r"))
	b.until("the thread", "location.pathname === '/threads/newerone'")
}
