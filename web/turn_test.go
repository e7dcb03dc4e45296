package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const bee = "7f6f0a52-0000-4000-8000-0000000000be"

// withBot adds a bot.
func (f *fake) withBot() *fake {
	f.agents = append(f.agents, &arbev1.Agent{Id: bee, Kind: "bot", Name: "Bee", Handle: "bee"})
	return f
}

// begins adds a thread with a question and the beginning of the turn t1 that answers it.
func (f *fake) begins(thread string) {
	f.thread(thread, "Turns")
	f.says(thread, f.me.Id, "question", entry.Chat{Text: "@bee what broke the build?"})
	f.says(thread, "", "turn.t1.start", entry.TurnStarted{TurnID: "t1", AgentID: bee, EntryID: "question", Reason: "mention"})
}

func toolCall(id, name, arguments string) entry.PiBlock {
	return entry.PiBlock{Type: entry.PiCallBlock, ID: id, Name: name, Arguments: json.RawMessage(arguments)}
}

// steps adds the first step of the turn t1, which says something, reads a thread and runs a command.
func (f *fake) steps(thread string) {
	f.says(thread, bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{
		{Type: entry.PiThinkingBlock, Thinking: "Hm, <b>where</b>?"}, entry.PiText("I *look* at it."),
		toolCall("a", "read_thread", `{"limit":30}`), toolCall("b", "run_command", `{"command":"make test"}`),
	}})
	f.says(thread, bee, "turn.t1.1.call1.run", entry.Command{Command: "make test"})
	f.says(thread, bee, "turn.t1.1.call0", entry.PiToolResult{Turn: "t1", ToolCallID: "a", ToolName: "read_thread", Content: []entry.PiBlock{entry.PiText("thread has 2 entries")}, DurationMS: 1500})
	f.says(thread, "", entry.ResultID("turn.t1.1.call1.run"), entry.CommandResult{CommandID: "turn.t1.1.call1.run", Output: "ok all\n", OutputBytes: 7})
	f.says(thread, bee, "turn.t1.1.call1", entry.PiToolResult{Turn: "t1", ToolCallID: "b", ToolName: "run_command", Content: []entry.PiBlock{entry.PiText("ok all, read by the model")}})
}

func (f *fake) answers(thread string) {
	f.says(thread, bee, "turn.t1.2", entry.Chat{Text: "It was the **list**.", ReplyTo: "question", Turn: &entry.TurnSummary{
		TurnID: "t1", Answers: []string{"question"}, Model: "test/fast", Steps: 2, Commands: 3, DurationMS: 40_000, Usage: entry.TurnUsage{CostMicros: 20_000},
	}})
}

func TestATurnIsOneGroupWithItsAnswer(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnturn1")
	f.steps("turnturn1")
	c := ada(t, f)
	_, text := c.get("/threads/turnturn1")
	t.Run("while it runs, it has a block with Stop behind the last entry", func(t *testing.T) {
		contains(t, text, `aria-label="Bee is at work"`, "/threads/turnturn1/turns/t1/stop")
	})
	f.answers("turnturn1")
	_, text = c.get("/threads/turnturn1")
	t.Run("its steps show what the bot said, thought and called", func(t *testing.T) {
		contains(t, text, "I <em>look</em> at it.", "Hm, &lt;b&gt;where&lt;/b&gt;?", "read_thread", "thread has 2 entries", ">30<")
	})
	t.Run("the output of a command is shown once, in its block", func(t *testing.T) {
		if n := strings.Count(text, "ok all"); n != 1 {
			t.Errorf("the output is shown %d times", n)
		}
		contains(t, text, "make test")
		lacks(t, text, "run_command")
	})
	t.Run("the rows have one head", func(t *testing.T) {
		if n := strings.Count(text, "<b>Bee</b>"); n != 1 {
			t.Errorf("the bot's name is in %d heads, want 1", n)
		}
	})
	t.Run("it says why it began, and what it did and used", func(t *testing.T) {
		contains(t, text, "It was mentioned.", "worked for 40s · 3 commands · $0.02 · test/fast", "It was the <strong>list</strong>.")
		lacks(t, text, "is at work", "↩")
	})
	t.Run("a price that is not known is no price", func(t *testing.T) {
		f.says("turnturn1", bee, "turn.t2.1", entry.Chat{Text: "And?", ReplyTo: "question", Turn: &entry.TurnSummary{TurnID: "t2", Model: "m/x", DurationMS: 1000, Usage: entry.TurnUsage{CostUnknown: true}}})
		_, text := c.get("/threads/turnturn1")
		contains(t, text, "worked for 1s · unknown price · m/x")
	})
	t.Run("an answer that is not below its question says to what it replies", func(t *testing.T) {
		f.says("turnturn1", f.me.Id, "other", entry.Chat{Text: "Something else."})
		f.says("turnturn1", bee, "turn.t3.1", entry.Chat{Text: "Late.", ReplyTo: "question", Turn: &entry.TurnSummary{TurnID: "t3", Model: "m/x"}})
		_, text := c.get("/threads/turnturn1")
		contains(t, text, `href="/threads/turnturn1?at=1#e1"`, "↩ <b>Ada</b> @bee what broke the build?")
	})
}

func TestACallShowsWhatRuns(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turncalls1")
	f.says("turncalls1", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{
		toolCall("a", "say", "{\"thread_id\":\"t\",\"text\":\"rm # \u202egpj\"}"),
	}})
	_, text := ada(t, f).get("/threads/turncalls1")
	contains(t, text, "rm # &lt;U+202E&gt;gpj")
	lacks(t, text, "\u202e")
}

func TestWhatIsNotedOfTurns(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnnoted")
	f.says("turnnoted", "", "", entry.TurnSteered{TurnID: "t1", AgentID: bee, EntryID: "question", Reason: "mention"})
	f.says("turnnoted", "", "", entry.Skipped{AgentID: bee, EntryID: "question", Reason: "cooldown", Explanation: "it pauses a moment"})
	f.says("turnnoted", "", "", entry.TurnWaiting{TurnID: "t1", AgentID: bee, Provider: "Anthropic", Reason: "rate_limit", Message: "too many requests", DelayMS: 20_000})
	f.says("turnnoted", "", "", entry.LimitNear{TurnID: "t1", AgentID: bee, Limit: "turn_usd", Used: 0.8, Max: 1})
	f.says("turnnoted", bee, "", entry.PiCompaction{Turn: "t1", Summary: "They *talked*.", FirstKeptSeq: 1})
	f.says("turnnoted", "", "turn.t1.end", entry.TurnEnded{TurnID: "t1", AgentID: bee, EntryID: "question", Outcome: entry.TurnFailed, Reason: "no_model", Message: "the house has no model", Next: "paste a key"})
	f.says("turnnoted", "", "turn.t2.end", entry.TurnEnded{TurnID: "t2", AgentID: bee, EntryID: "question", Outcome: entry.TurnStopped, StoppedBy: f.me.Id, Message: "the bot was stopped"})
	c := ada(t, f)
	_, text := c.get("/threads/turnnoted")
	contains(t, text, "Bee got this while it was working", "Bee did not answer ·", "It pauses a moment.", "Bee is waiting for Anthropic: too many requests; next try in 20 s",
		"Bee has used $0.80 of $1.00 for this turn", "They <em>talked</em>.", "Bee did not answer: the house has no model.", "Paste a key.", "/houses/home/models",
		"Bee was stopped by Ada.", "/threads/turnnoted/turns/t1/retry", `data-from="/threads/turnnoted/entries/1/raw"`)
	lacks(t, text, "is at work")

	t.Run("Retry and Stop ask for that", func(t *testing.T) {
		for _, act := range []string{"retry", "stop"} {
			res, _ := c.post("/threads/turnnoted/turns/t1/"+act, nil)
			want(t, res, http.StatusSeeOther, "/threads/turnnoted")
		}
		if fmt.Sprint(f.stoppedTurns, f.retriedTurns) != "[t1] [t1]" {
			t.Errorf("stopped %v, retried %v", f.stoppedTurns, f.retriedTurns)
		}
	})
	t.Run("the key that was missing can be pasted there, and it tries again", func(t *testing.T) {
		if n := strings.Count(text, `class="again key-form"`); n != 1 {
			t.Errorf("there are %d forms for a key, want one, below the failure that a key mends", n)
		}
		b := newTab(t, f.start(t))
		b.open("/threads/turnnoted")
		b.untilLive()
		b.do(keysInto(".key-form input", "sk-pasted"))
		b.enter()
		f.until(t, "a request to retry the turn", func() bool { return fmt.Sprint(f.retriedTurns) == "[t1 t1]" })
		b.until("no key on the page", "document.querySelector('.key-form input').value === ''")
		if fmt.Sprint(f.secrets) != "map[home ANTHROPIC_API_KEY:sk-pasted]" {
			t.Errorf("the secrets are %v", f.secrets)
		}
	})
	t.Run("a key that is refused does not try again", func(t *testing.T) {
		if res, text := c.post("/threads/turnnoted/turns/t1/key", url.Values{"secret": {"ANTHROPIC_API_KEY"}, "key": {" "}}); res.StatusCode != http.StatusBadRequest || !strings.Contains(text, "Paste the secret") {
			t.Errorf("the answer is %d: %.300s", res.StatusCode, text)
		}
		if len(f.retriedTurns) != 2 {
			t.Errorf("retried %v", f.retriedTurns)
		}
	})
	t.Run("a turn that ran when the thread was forked does not run in the fork", func(t *testing.T) {
		f.begins("turnsource")
		f.fork("turnforked", f.threads["turnsource"], 2)
		_, text := c.get("/threads/turnforked")
		lacks(t, text, "is at work")
	})
}

func TestHostileTurns(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnevil1")
	const script = `<script>alert(1)</script><img src=x onerror=alert(1)>`
	huge, err := json.Marshal(map[string]string{"text": strings.Repeat("<i>", 1<<20/3)})
	if err != nil {
		t.Fatal(err)
	}
	evil, err := json.Marshal(map[string]string{script: script})
	if err != nil {
		t.Fatal(err)
	}
	f.says("turnevil1", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{
		entry.PiText(script), {Type: entry.PiThinkingBlock, Thinking: script}, toolCall("a", script, string(evil)), toolCall("b", "say", string(huge)),
		toolCall("c", "say", `"{not json `+"\\u003cscript"+`"`),
	}})
	f.says("turnevil1", bee, "turn.t1.1.call0", entry.PiToolResult{Turn: "t1", ToolCallID: "a", ToolName: script, IsError: true, Content: []entry.PiBlock{entry.PiText(script)}})
	f.says("turnevil1", bee, "turn.t1.8.call0", entry.PiToolResult{Turn: "t1", ToolCallID: "y", ToolName: "edit_file", Content: []entry.PiBlock{entry.PiText("edited")},
		Details: &entry.PiDetails{Path: script, Diff: "@@ -1 +1 @@\n-" + script + "\n+better\n", ArtifactID: script, Instructions: script}})
	f.says("turnevil1", bee, "turn.t1.9.call0", entry.PiToolResult{Turn: "t1", ToolCallID: "z", ToolName: script, Content: []entry.PiBlock{entry.PiText(script)}})
	f.says("turnevil1", "", "turn.t1.end", entry.TurnEnded{TurnID: "t1", AgentID: bee, EntryID: script, Outcome: "failed", Message: script, Next: script})
	_, text := ada(t, f).get("/threads/turnevil1")
	lacks(t, text, "<script>alert", "<img")
	if len(text) > 200<<10 {
		t.Errorf("the page has %d bytes", len(text))
	}
	contains(t, text, "&lt;script&gt;alert(1)", `<span class="diff-removed">-&lt;script&gt;`, `<span class="diff-added">+better`, "AGENTS.md")
}

// A text of which the log has only a part names where all of it is, or that the rest is lost.
func TestWhatTheLogHasInPart(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnpart1")
	kept, lost := toolCall("a", "write", `{"path":"a.txt"}`), toolCall("b", "write", `{"path":"b.txt"}`)
	kept.WholeBytes, kept.ArtifactID, lost.WholeBytes = 3<<10, "args1", 4<<10
	f.says("turnpart1", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{kept, lost}})
	for n, details := range []*entry.PiDetails{{WholeBytes: 5 << 10, ArtifactID: "out1"}, {WholeBytes: 6 << 10}} {
		f.says("turnpart1", bee, entry.CallResultID("turn.t1.1", n), entry.PiToolResult{Turn: "t1", ToolCallID: "a", ToolName: "write", Content: []entry.PiBlock{entry.PiText("written")}, Details: details})
	}
	_, text := ada(t, f).get("/threads/turnpart1")
	contains(t, text, `<a href="/api/artifact/args1" download>The whole arguments (3.0 KiB)</a>`, "The arguments have 4.0 KiB, of which the rest could not be kept.",
		`<a href="/api/artifact/out1" download>The whole result (5.0 KiB)</a>`, "The result has 6.0 KiB, of which the rest could not be kept.")
}

// chunks returns the deltas of a step.
func chunks(list ...entry.PiChunk) string {
	var b strings.Builder
	for _, c := range list {
		line, _ := json.Marshal(c)
		b.Write(append(line, '\n'))
	}
	return b.String()
}

func TestATurnIsSeenWhileItIsWritten(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.thread("turnlive1", "Live")
	f.says("turnlive1", f.me.Id, "question", entry.Chat{Text: "@bee what broke the build?"})
	b := newTab(t, f.start(t))
	b.open("/threads/turnlive1")
	b.untilLive()
	text := "document.querySelector('#writing').innerText"
	f.says("turnlive1", "", "turn.t1.start", entry.TurnStarted{TurnID: "t1", AgentID: bee, EntryID: "question", Reason: "mention"})
	b.until("that the bot is at work, with a clock", text+".includes('Bee') && !!document.querySelector('#writing .elapsed')")

	first := chunks(entry.PiChunk{Kind: "text", Text: "I **look** at it.\n\n```go\nfunc a"})
	f.delta("turnlive1", "turn.t1.1~1.1", 0, first)
	b.until("what it writes, as Markdown", "document.querySelector('#writing strong')?.innerText === 'look' && document.querySelector('#writing pre').innerText.includes('func a')")
	broken := "{broken\n\x00\xff\nnull\n[]\n" + chunks(entry.PiChunk{Kind: "text", Block: -1, Text: "no"}, entry.PiChunk{Kind: "text", Block: 1 << 30, Text: "no"}, entry.PiChunk{Kind: "what", Text: "no"})
	f.delta("turnlive1", "turn.t1.1~1.1", int64(len(first)), broken)
	last := chunks(entry.PiChunk{Kind: "text", Text: "() {}\n```\n"}, entry.PiChunk{Kind: "call_start", Block: 1, CallID: "b", Name: "run_command"}, entry.PiChunk{Kind: "call_args", Block: 1, Text: `{"command":"<script>"}`})
	f.delta("turnlive1", "turn.t1.1~1.1", int64(len(first)+len(broken)), last)
	b.until("the call, as text", "document.querySelector('#writing .call')?.innerText.includes('<script>') && document.querySelector('#writing pre').innerText.includes('func a() {}')")

	t.Run("the entry of the step replaces what was written", func(t *testing.T) {
		b := b.in(t)
		f.says("turnlive1", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{entry.PiText("I **look** at it."), toolCall("a", "read_thread", `{"limit":3}`), toolCall("b", "run_command", `{"command":"make"}`)}})
		b.until("the step, once", "document.querySelectorAll('#log strong').length === 1 && !document.querySelector('#writing strong') && document.querySelector('#e3 .call .running') && "+text+".includes('at work')")
		f.delta("turnlive1", "turn.t1.1~1.1", int64(len(first)+len(broken)+len(last)), chunks(entry.PiChunk{Kind: "text", Text: "a straggler"}))
		f.says("turnlive1", bee, "turn.t1.1.call1.run", entry.Command{Command: "make"})
		b.until("the command instead of its call", "document.querySelector('#e4 .prompt')?.innerText === 'make' && document.querySelectorAll('#e3 .call').length === 1")
		f.says("turnlive1", bee, "turn.t1.1.call0", entry.PiToolResult{Turn: "t1", ToolCallID: "a", ToolName: "read_thread", Content: []entry.PiBlock{entry.PiText("three entries")}})
		b.until("the result in the call", "document.querySelector('#e3 .call .completed') && document.querySelector('#e3 .call').textContent.includes('three entries')")
		if eval[bool](b, text+".includes('straggler')") {
			t.Error("a late piece of an ended step is shown")
		}
	})
	t.Run("Stop asks for that", func(t *testing.T) {
		b := b.in(t)
		b.do(chromedp.KeyEvent("x"))
		f.until(t, "a request to stop the turn", func() bool { return fmt.Sprint(f.stoppedTurns) == "[t1]" })
	})
	t.Run("its end removes the block and can be retried", func(t *testing.T) {
		b := b.in(t)
		f.says("turnlive1", "", "turn.t1.end", entry.TurnEnded{TurnID: "t1", AgentID: bee, EntryID: "question", Outcome: entry.TurnStopped, StoppedBy: f.me.Id, Message: "the bot was stopped"})
		b.until("the end", "!document.querySelector('#writing article') && document.querySelector('.turn-end').innerText.includes('Bee was stopped by Ada.')")
		b.do(chromedp.Click(chromedp.CSS(".turn-end .again button")))
		f.until(t, "a request to retry the turn", func() bool { return fmt.Sprint(f.retriedTurns) == "[t1]" })
	})
	t.Run("the question can be changed and asked again, as a reply", func(t *testing.T) {
		b := b.in(t)
		eval[bool](b, "(document.querySelector('.turn-end .ask-again')?.click(), true)")
		b.until("the question in the composer", "document.querySelector('#composer-text').value === '@bee what broke the build?' && !document.querySelector('.replying').hidden")
		b.enter()
		b.until("the reply", "document.querySelector('#composer').elements.reply.value === '' && document.querySelectorAll('#outbox form').length === 0")
		f.until(t, "a reply to the question", func() bool {
			return strings.Contains(f.logs["turnlive1"][len(f.logs["turnlive1"])-1].Payload, `"reply_to":"question"`)
		})
	})
}

func TestAReply(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnreply")
	f.answers("turnreply")
	f.says("turnreply", f.me.Id, "last", entry.Chat{Text: "Hm."})
	f.threads["turnreply"].ParentAgentId = bee
	b := newTab(t, f.start(t))
	for _, width := range []int64{1280, 390} {
		call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 844, DeviceScaleFactor: 1})
		b.open("/threads/turnreply")
		b.untilLive()
		if hint := eval[string](b, "document.querySelector('.hint-talk').innerText"); hint != "Bee answers · Everyone in Home sees this" {
			t.Errorf("the hint is %q", hint)
		}
		b.hover("#e3")
		b.do(chromedp.Click(chromedp.CSS("#e3 > .actions .reply")))
		b.until("to whom one replies, with the focus in the composer", "document.querySelector('.replying').innerText.includes('In reply to Bee') && document.activeElement.id === 'composer-text'")
		b.do(chromedp.Click(chromedp.CSS(".not-replying")))
		b.until("that one does not", "document.querySelector('.replying').getBoundingClientRect().height === 0 && document.querySelector('#composer').elements.reply.value === ''")
		b.hover("#e3")
		b.do(chromedp.Click(chromedp.CSS("#e3 > .actions .reply")))
		text := fmt.Sprintf("Thanks at %d.", width)
		b.write(text)
		b.until("what was said, and to what", "[...document.querySelectorAll('#log .entry')].at(-1).innerText.includes('"+text+"') && [...document.querySelectorAll('.reply-to')].at(-1)?.innerText.includes('Bee') && document.querySelector('.replying').hidden")
		if p := f.last("turnreply").Payload; !strings.Contains(p, `"reply_to":"turn.t1.2"`) {
			t.Errorf("the log has %s", p)
		}
	}
}

// Whoever opens a thread while its bot waits for a provider sees whom it waits for, why and until when, and can stop it.
func TestAWaitOfATurn(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnwait1")
	f.says("turnwait1", "", "turn.t1.start", entry.TurnStarted{TurnID: "t1", AgentID: bee, EntryID: "question", Reason: "mention"})
	f.says("turnwait1", "", "turn.t1.wait0.0", entry.TurnWaiting{TurnID: "t1", AgentID: bee, Provider: "Anthropic", Reason: "overload", Message: "overloaded", DelayMS: 3600_000})
	b := newTab(t, f.start(t))
	b.open("/threads/turnwait1")
	b.untilLive()
	word := "document.querySelector('#writing .writing-foot .status')?.innerText.trim()"
	if is := eval[string](b, word); !strings.HasPrefix(is, "waiting for Anthropic: overloaded; next try in ") {
		t.Errorf("the turn's place says %q", is)
	}
	f.delta("turnwait1", "turn.t1.1~1.2", 0, chunks(entry.PiChunk{Kind: "retry", Text: "waiting for Anthropic: overloaded; asking again"}))
	b.until("the next try", word+" === 'waiting for Anthropic: overloaded; asking again'")
	if !eval[bool](b, "!!document.querySelector('#writing .writing-foot form[action$=\"/turns/t1/stop\"] button')") {
		t.Error("there is no Stop")
	}
	f.delta("turnwait1", "turn.t1.1~1.3", 0, chunks(entry.PiChunk{Kind: "text", Text: "Now it works"}))
	b.until("that it writes", word+" === 'writing'")
	f.says("turnwait1", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall("a", "list_threads", "{}")}})
	b.until("that it goes on", word+" === 'at work'")
}

// A turn with everything that a turn can have is accessible, on a desk and on a phone.
func TestTurnsAreAccessible(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("axe/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("install axe with: make web/axe/node_modules: %v", err)
	}
	f := newFake().withBot()
	f.begins("turnaxes1")
	f.steps("turnaxes1")
	f.says("turnaxes1", bee, "turn.t1.2", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{
		toolCall("a", "say", `{"thread_id":"gone","text":"`+strings.Repeat("long ", 60)+`"}`), toolCall("b", "list_threads", "{}"),
	}})
	f.says("turnaxes1", bee, "turn.t1.2.call0", entry.PiToolResult{Turn: "t1", ToolCallID: "a", ToolName: "say", IsError: true, Content: []entry.PiBlock{entry.PiText("there is no thread \"gone\"; list the threads of the house")}})
	f.says("turnaxes1", bee, "turn.t1.2.call1", entry.PiToolResult{Turn: "t1", ToolCallID: "b", ToolName: "list_threads", Content: []entry.PiBlock{entry.PiText("one thread")}})
	f.says("turnaxes1", "", "", entry.TurnWaiting{TurnID: "t1", AgentID: bee, Provider: "Anthropic", Reason: "rate_limit", Message: "too many requests", DelayMS: 20_000})
	f.says("turnaxes1", bee, "turn.t1.3", entry.Chat{Text: "It was the **list** in `main.go`:\n\n1. one\n2. two", ReplyTo: "question", Turn: &entry.TurnSummary{
		TurnID: "t1", Model: "anthropic/claude-sonnet-4-6", Steps: 3, Commands: 1, DurationMS: 61_000, Usage: entry.TurnUsage{CostMicros: 21_000},
	}})
	f.says("turnaxes1", "", "", entry.Skipped{AgentID: bee, EntryID: "question", Reason: "cooldown", Explanation: "it answered here a moment ago"})
	f.says("turnaxes1", "", "turn.t2.end", entry.TurnEnded{TurnID: "t2", AgentID: bee, EntryID: "question", Outcome: entry.TurnFailed, Reason: string(model.BadKey), Message: "the provider refused the key", Next: "paste another one"})
	f.says("turnaxes1", f.me.Id, "again", entry.Chat{Text: "@bee and now?"})
	f.says("turnaxes1", "", "turn.t3.start", entry.TurnStarted{TurnID: "t3", AgentID: bee, EntryID: "again", Reason: "mention"})
	b := newTab(t, f.start(t))
	b.open("/threads/turnaxes1")
	b.untilLive()
	if link := eval[string](b, "document.querySelector('.turn-end a')?.innerText"); link != "Models and keys" {
		t.Errorf("a turn that failed because of its key links to %q", link)
	}
	f.delta("turnaxes1", "turn.t3.1~1.1", 0, chunks(entry.PiChunk{Kind: "thinking", Text: "Hm."}, entry.PiChunk{Kind: "text", Block: 1, Text: "Now it **works**, be"},
		entry.PiChunk{Kind: "call_start", Block: 2, Name: "run_command"}, entry.PiChunk{Kind: "call_args", Block: 2, Text: `{"command":"make test"}`}))
	b.until("what is written", "!!document.querySelector('#writing .call')")
	eval[int](b, string(rules)+"\n;1")
	for _, scheme := range []string{"light", "dark"} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		for _, width := range []int64{1440, 390} {
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1})
			b.until("the width", fmt.Sprintf("innerWidth === %d && matchMedia('(prefers-color-scheme: %s)').matches", width, scheme))
			b.accessible(fmt.Sprintf("a turn, %s, %d px", scheme, width))
			if over := eval[int](b, "Math.max(document.documentElement.scrollWidth - innerWidth, (s => s.scrollWidth - s.clientWidth)(document.querySelector('#scroller')))"); over > 0 {
				t.Errorf("at %d px the page is %d px too wide", width, over)
			}
		}
	}
}

// A log repeats its last deltas to new connections, even those of a turn that has ended.
func TestAnEndedTurnIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnended")
	f.answers("turnended")
	f.says("turnended", f.me.Id, "", entry.Chat{Text: "thanks."})
	f.delta("turnended", "turn.t1.2~1.1", 0, chunks(entry.PiChunk{Kind: "text", Text: "It was the list."}))
	f.says("turnended", "", "turn.t4.start", entry.TurnStarted{TurnID: "t4", AgentID: bee, EntryID: "question", Reason: "mention"})
	l := listen(t, f.start(t), "thread/turnended/4")
	l.live("thread/turnended")
	f.says("turnended", "", "turn.t5.start", entry.TurnStarted{TurnID: "t5", AgentID: bee, EntryID: "question", Reason: "mention"})
	f.delta("turnended", "turn.t5.1~1.1", 0, chunks(entry.PiChunk{Kind: "text", Text: "the next one."}))
	for {
		text := fmt.Sprint(l.next().P)
		if strings.Contains(text, "It was the list.") {
			t.Fatal("the ended turn is shown as if it were being written")
		}
		if strings.Contains(text, "the next one.") {
			return
		}
	}
}
