package web_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

// The thinking that a model shows while it writes stays on the page, folded, after its turn has ended and after a reload.
// Readers can open the parts that are not shown.
func TestThinkingStaysFolded(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("thinking1")
	b := newTab(t, f.start(t))
	b.open("/threads/thinking1")
	b.untilLive()
	// The thinking of each part, whether it is open, in the order of the page.
	const thoughts = "JSON.stringify([...document.querySelectorAll('.thinking')].map(e => [e.open, e.querySelector('.thought').textContent.trim()]))"
	written := func(step string, pieces ...string) {
		w := &writer{f: f, thread: "thinking1", step: step + "~1.1"}
		for _, p := range pieces {
			w.write(entry.PiChunk{Kind: "thinking", Text: p})
		}
		w.write(entry.PiChunk{Kind: "text", Block: 1, Text: "Well, "})
		b.until("the text behind the thinking", "document.querySelector('#writing').innerText.includes('Well,')")
	}
	const first, last = "Which <b>threads</b>\nare there? ⟦arbe: x⟧", "So there is one."
	written("turn.t1.1", "Which <b>threads</b>\nare", " there? ⟦arbe: x⟧")
	if got, want := eval[string](b, thoughts), `[[false,"Which <b>threads</b>\nare there? ⟦arbe: x⟧"]]`; got != want {
		t.Errorf("while it is written: %s, want %s", got, want)
	}
	f.says("thinking1", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{
		{Type: entry.PiThinkingBlock, Thinking: first, ThinkingSignature: "c2VhbGVk"}, entry.PiText("Well, let me look."), toolCall("a", "list_threads", "{}"),
		{Type: entry.PiThinkingBlock, ThinkingSignature: "c2VhbGVk", Redacted: true},
	}})
	f.says("thinking1", bee, "turn.t1.1.call0", entry.PiToolResult{Turn: "t1", ToolCallID: "a", ToolName: "list_threads", Content: []entry.PiBlock{entry.PiText("one")}})
	b.until("the step", "document.querySelector('.entry:not(.writing) .step')?.innerText.includes('let me look')")
	written("turn.t1.2", "So there", " is one.")
	f.says("thinking1", bee, "turn.t1.2", entry.Chat{Text: "Well, there is one.", ReplyTo: "question", Turn: &entry.TurnSummary{TurnID: "t1", Model: "test/fast", Steps: 2, Thinking: last}})
	b.until("the end of the turn", "!document.querySelector('#writing .writing') && !!document.querySelector('.answer-foot')")
	const ended = `[[false,"Which <b>threads</b>\nare there? ⟦arbe: x⟧"],[false,"So there is one."]]`
	if got := eval[string](b, thoughts); got != ended {
		t.Errorf("when the turn has ended: %s, want %s", got, ended)
	}
	b.open("/threads/thinking1")
	b.untilLive()
	if got := eval[string](b, thoughts); got != ended {
		t.Errorf("after a reload: %s, want %s", got, ended)
	}
	if eval[bool](b, "document.documentElement.outerHTML.includes('c2VhbGVk')") {
		t.Error("the page has the proof of thinking")
	}

	long := strings.Repeat("It is long. ", 2000)
	f.says("thinking1", bee, "turn.t2.1", entry.Chat{Text: "Yes.", Turn: &entry.TurnSummary{TurnID: "t2", Steps: 1, Thinking: long + "The end."}})
	const shown = "[...document.querySelectorAll('.thinking')].at(-1)"
	b.until("the next answer", shown+".textContent.includes('It is long')")
	if eval[bool](b, shown+".textContent.includes('The end.')") || !eval[bool](b, shown+".textContent.includes('Show all, 11.4 KiB more')") {
		t.Errorf("of long thinking it shows …%s", eval[string](b, shown+".textContent.slice(-100)"))
	}
	eval[int](b, shown+".open = true, "+shown+".querySelector('.show-all').click(), 1")
	b.until("all of it", shown+".textContent.includes('The end.') && "+shown+".open")
}
