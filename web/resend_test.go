package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
)

// A message is edited and sent again in a fork, which ends before it. The thread stays as it is.
func TestAMessageIsSentAgainInAFork(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.thread("resendone", "Try it")
	for i := range 3 {
		f.says("resendone", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("message %d.", i+1)})
	}
	b := newTab(t, f.start(t))
	b.open("/threads/resendone")
	b.untilLive()
	if eval[bool](b, "!!document.querySelector('#e1 .resend')") {
		t.Error("a fork before the first message would be empty")
	}
	b.hover("#e2")
	b.do(chromedp.Click(chromedp.CSS("#e2 .resend button")))
	b.until("the fork, with the text to edit", "location.pathname !== '/threads/resendone' && document.querySelector('#composer-text')?.value === 'message 2.'")
	text := eval[string](b, "document.querySelector('#log').innerText")
	if !strings.Contains(text, "message 1.") || strings.Contains(text, "message 2.") {
		t.Errorf("the fork says %s", text)
	}
	if n := len(f.log("resendone")); n != 3 {
		t.Errorf("the thread has %d entries", n)
	}
}

// The head of a row says with which program and model it was written.
func TestTheHeadOfARowSaysWhatWroteIt(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("wroteitit")
	f.says("wroteitit", bee, "run.1.0", entry.PiAssistant{Harness: "claude-code", Model: "claude-opus", Content: []entry.PiBlock{entry.PiText("Hello.")}})
	_, page := ada(t, f).get("/threads/wroteitit")
	contains(t, page, `<span class="mark" title="claude-code · claude-opus">bot</span>`)
}
