package web_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/model/modeltest"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestABotAnswers uses the whole of arbe with a scripted model: a bot is mentioned, and answers with a command; it is
// stopped, and tries again.
func TestABotAnswers(t *testing.T) {
	t.Parallel()
	models := modeltest.New(t, func(q *modeltest.Request) modeltest.Reply {
		switch {
		case slices.ContainsFunc(q.Messages, func(m modeltest.Message) bool { return strings.Contains(m.Text, "write for ever") }):
			return modeltest.Reply{Text: "I write **on** and on. ", Endless: true}
		case q.Last().Role == "tool":
			return modeltest.Reply{Text: "The kernel is **Linux**."}
		}
		return modeltest.Reply{Text: "I look.", Calls: []modeltest.Call{{Name: "run_command", Arguments: `{"command":"echo it is $(uname -s)"}`}}}
	})
	a := installation(t)
	a.env = []string{"OPENAI_BASE_URL=" + models.URL + "/v1", "ANTHROPIC_API_KEY=", "OPENAI_API_KEY=", "ARBE_MODEL=openai/fake-answer"}
	a.start()
	link, err := a.client().Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t, "http://"+a.addr)
	b.logOut()
	b.open(link.Path)
	b.do(chromedp.Click(chromedp.CSS("form[action='/login'] button")))
	b.until("the house", "location.pathname.startsWith('/houses/')")

	t.Run("a mention is answered, with a command", func(t *testing.T) {
		b := b.in(t)
		b.untilLive()
		b.do(keysInto("#starter-text", "Hello, which kernel is it?"))
		b.enter()
		b.until("the thread", "location.pathname.startsWith('/threads/')")
		b.untilLive()
		b.write("@arbe which kernel is it?")
		b.until("what it says first", "[...document.querySelectorAll('#log .step .chat')].some(e => e.innerText.includes('I look.'))")
		b.until("its command", "document.querySelector('#log .command .screen')?.innerText.includes('it is Linux')")
		b.until("its answer", "[...document.querySelectorAll('#log .entry strong')].some(e => e.innerText === 'Linux') && document.querySelector('.answer-foot').innerText.includes('1 command')")
		b.until("nobody at work", "!document.querySelector('#writing article')")
		if n := eval[int](b, "document.querySelectorAll('#log .call').length"); n != 0 {
			t.Errorf("the command is also shown as %d calls", n)
		}
	})
	t.Run("Stop ends it and keeps what was written, and Retry begins again", func(t *testing.T) {
		b := b.in(t)
		b.write("@arbe write for ever")
		for range 2 {
			b.until("what it writes", "document.querySelector('#writing strong')?.innerText === 'on'")
			b.do(chromedp.Click(chromedp.CSS("#writing .stop button")))
			b.until("that it was stopped", "!document.querySelector('#writing article') && /arbe was stopped by/.test([...document.querySelectorAll('.turn-end')].at(-1)?.innerText)")
			b.until("what was written", "[...document.querySelectorAll('#log .step strong')].at(-1)?.innerText === 'on'")
			eval[int](b, "([...document.querySelectorAll('.turn-end .again button')].at(-1).click(), 1)")
		}
	})
	t.Run("the page shows the same when it is opened again", func(t *testing.T) {
		b := b.in(t)
		b.open(eval[string](b, "location.pathname"))
		b.untilLive()
		b.until("the answer, the ends and the turn at work", "document.querySelectorAll('.answer-foot').length === 1 && document.querySelectorAll('.turn-end').length === 2 && !!document.querySelector('#writing article')")
	})
}
