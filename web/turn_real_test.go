package web_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/model/modeltest"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestANewcomerIsAnswered follows a newcomer through all of arbe, with a scripted model. On a machine without a key, the
// newcomer mentions a bot, which says how to set a model. The newcomer pastes the key, and the bot answers with a command. It
// is stopped, and tries again.
func TestANewcomerIsAnswered(t *testing.T) {
	t.Parallel()
	const key = "sk-pasted-by-the-newcomer"
	models := modeltest.New(t, func(q *modeltest.Request) modeltest.Reply {
		switch {
		case q.Header.Get("Authorization") != "Bearer "+key:
			return modeltest.Reply{Status: 401}
		case slices.ContainsFunc(q.Messages, func(m modeltest.Message) bool { return strings.Contains(m.Text, "write for ever") }):
			return modeltest.Reply{Text: "I write **on** and on. ", Endless: true}
		case q.Last().Role == "tool":
			return modeltest.Reply{Text: "The kernel is **Linux**."}
		}
		return modeltest.Reply{Text: "I look.", Calls: []modeltest.Call{{Name: "run_command", Arguments: `{"command":"echo it is $(uname -s)"}`}}}
	})
	a := installation(t)
	for _, unset := range []string{"ARBE_MODEL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENROUTER_API_KEY", "GEMINI_API_KEY"} {
		a.env = append(a.env, unset+"=")
	}
	a.env = append(a.env, "OLLAMA_HOST=127.0.0.1:1", "ARBE_MODEL_PRIVATE_HOSTS=127.0.0.1")
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
	const lastEnd = "[...document.querySelectorAll('.turn-end')].at(-1)?"
	var thread string
	step := func(what string, do func(b *tab)) {
		t.Helper()
		if !t.Run(what, func(t *testing.T) { do(b.in(t)) }) {
			t.FailNow() // the next step begins where this one ends
		}
	}

	step("without a model, a mention gets one signal, which leads to where one is set", func(b *tab) {
		b.untilLive()
		b.do(keysInto("#starter-text", "@arbe which kernel is it?"))
		b.enter()
		b.until("the thread", "location.pathname.startsWith('/threads/')")
		b.untilLive()
		thread = eval[string](b, "location.pathname")
		b.until("the signal", lastEnd+".innerText.includes('arbe did not answer: this house has no model yet. Paste a key under Settings, Models.')")
		b.until("nobody at work", "!document.querySelector('#writing article') && !document.title.includes('running')")
		b.write("The thread works on.")
		b.until("what was said", says("The thread works on.", 1))
		// The thread began with the bot, so this message is for the bot too.
		b.until("a second signal", "document.querySelectorAll('.turn-end').length === 2")
		b.do(chromedp.Click(chromedp.CSS(".turn-end a[href$='/models']")))
		b.until("the page of models", "location.pathname.endsWith('/models')")
	})
	step("the key is pasted, and a model chosen", func(b *tab) {
		b.do(keysInto("#f-name", "lab"), keysInto("#f-base_url", models.URL+"/v1"), keysInto("#f-server_key", key))
		b.enter()
		b.until("the server", "!!document.querySelector('#models-lab')")
		b.do(chromedp.SetValue(chromedp.CSS("#f-model"), "lab/fake-answer"), chromedp.Click(chromedp.CSS("form:has(#f-model) button")))
		b.until("the choice", "document.querySelector('.lead b')?.innerText === 'lab/fake-answer'")
		if strings.Contains(eval[string](b, "document.documentElement.outerHTML"), key) {
			b.t.Error("the page shows the key")
		}
	})
	step("Retry answers, with a command", func(b *tab) {
		b.open(thread)
		b.untilLive()
		b.do(chromedp.Click(chromedp.CSS(".turn-end .again button")))
		b.until("what it says first", "[...document.querySelectorAll('#log .step .chat')].some(e => e.innerText.includes('I look.'))")
		b.until("its command", "document.querySelector('#log .command .screen')?.innerText.includes('it is Linux')")
		b.until("its answer", "[...document.querySelectorAll('#log .entry strong')].some(e => e.innerText === 'Linux') && document.querySelector('.answer-foot').innerText.includes('1 command')")
		b.until("nobody at work", "!document.querySelector('#writing article')")
		if n := eval[int](b, "document.querySelectorAll('#log .call').length"); n != 0 {
			b.t.Errorf("the command is also shown as %d calls", n)
		}
	})
	step("Stop ends it and keeps what was written, and Retry begins again", func(b *tab) {
		b.write("@arbe write for ever")
		for range 2 {
			b.until("what it writes", "/I write/.test(document.querySelector('#writing .step')?.innerText)")
			b.until("that the thread runs", "document.title.startsWith('● running') && document.querySelector('#thread-head .pill').innerText.includes('arbe at work') && !!document.querySelector('#places .place[aria-current] .status.running')")
			b.until("more than fits, below which Stop stands still", "document.querySelector('#scroller').scrollHeight > document.querySelector('#scroller').clientHeight")
			b.do(chromedp.Click(chromedp.CSS("#writing .stop button")))
			b.until("that it was stopped", "!document.querySelector('#writing article') && /arbe was stopped by/.test("+lastEnd+".innerText)")
			// On a slow machine, the text is longer than the part that is rendered as Markdown.
			b.until("what was written", "[...document.querySelectorAll('#log .step')].at(-1)?.innerText.includes('I write')")
			b.until("that nothing runs", "!document.title.includes('running') && !document.querySelector('.places .status.running')")
			eval[int](b, "([...document.querySelectorAll('.turn-end .again button')].at(-1).click(), 1)")
		}
		b.until("what it writes", "/I write/.test(document.querySelector('#writing .step')?.innerText)")
		b.do(chromedp.Click(chromedp.CSS("#thread-head .stop button")))
		b.until("that the head of the page stops it, too", "document.querySelectorAll('.turn-end').length === 5 && !document.querySelector('#writing article')")
	})
	step("the page shows the same when it is opened again", func(b *tab) {
		const shown = "[...document.querySelectorAll('#log [data-entry]')].map(e => e.id + ' ' + [...e.querySelectorAll('header b, .chat, .command .screen, .turn-end strong, .answer-foot > .quiet')].map(x => x.textContent.trim().slice(0, 200)).join('|')).join('\\n')"
		before := eval[string](b, shown)
		b.open(thread)
		b.untilLive()
		if after := eval[string](b, shown); after != before {
			b.t.Errorf("it shows\n%s\nand showed live\n%s", after, before)
		}
		if n := eval[int](b, fmt.Sprintf("document.documentElement.outerHTML.split(%q).length - 1", key)); n != 0 {
			b.t.Errorf("it has the key %d times", n)
		}
	})
}
