package web_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestTheComposerSaysWhoAnswers(t *testing.T) {
	t.Parallel()
	const otto = "7f6f0a52-0000-4000-8000-00000000077a"
	f := newFake().withBot()
	f.agents = append(f.agents, &arbev1.Agent{Id: otto, Kind: "bot", Runtime: "arbe", Name: "Otto", Handle: "otto"})
	f.thread("answers1", "Answers")
	base := f.start(t)
	b := newTab(t, base)
	b.open("/threads/answers1")
	b.untilLive()
	says := func(words string) string { return "document.querySelector('#answers').textContent === '" + words + "'" }
	t.Run("while one writes", func(t *testing.T) {
		b := b.in(t)
		b.until("that nobody is asked", says("Nobody is asked, @ to ask a bot"))
		b.do(keysInto("#composer-text", "what does @otto think? "))
		b.until("who is mentioned", says("Otto answers"))
		b.do(keysInto("#composer-text", "And @bee?"))
		b.until("both", says("Bee and Otto answer"))
	})
	t.Run("when somebody chooses who answers without a mention", func(t *testing.T) {
		b := b.in(t)
		eval[bool](b, "(e => { e.value = ''; e.dispatchEvent(new Event('input', { bubbles: true })); return true })(document.querySelector('#composer-text'))")
		b.until("that nobody is asked", says("Nobody is asked, @ to ask a bot"))
		f.update("answers1", func(t *arbev1.Thread) { t.AnsweringAgentId, t.AnsweringSettled = otto, true })
		b.until("that one", says("Otto answers"))
		b.until("the choice", "document.querySelector('#answering select').selectedOptions[0].textContent === 'Otto'")
	})
	t.Run("and who is mentioned is a link", func(t *testing.T) {
		f.says("answers1", f.me.Id, "", entry.Chat{Text: "@otto, and not `@bee` or @nobody"})
		_, page := client{t, base, "good"}.get("/threads/answers1")
		if !strings.Contains(page, `<a class="mention" href="/houses/home/bots/`+otto+`">@otto</a>, and not <code>@bee</code> or @nobody`) {
			t.Error("the mention is no link")
		}
	})
	t.Run("without a script", func(t *testing.T) {
		_, page := client{t, base, "good"}.get("/threads/answers1")
		if !strings.Contains(page, ">Otto answers</span>") || !strings.Contains(page, `<option value="`+otto+`" selected>Otto</option>`) {
			t.Error("the page does not say who answers")
		}
	})
}
