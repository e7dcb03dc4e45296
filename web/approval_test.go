package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// asksToRun returns a request for approval from the turn t1.
func asksToRun(command string) entry.PermissionAsked {
	arguments, _ := json.Marshal(map[string]string{"command": command})
	return entry.PermissionAsked{ApprovalID: "p1", TurnID: "t1", AgentID: bee, CallID: "turn.t1.1.call0", Tool: "run_command", Arguments: arguments,
		ExpiresMS: time.Now().Add(time.Hour).UnixMilli()}
}

func TestABotThatAsksIsAnsweredOnThePage(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnasks")
	f.says("turnasks", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall("a", "run_command", `{"command":"make"}`)}})
	f.says("turnasks", "", "turn.t1.1.call0.asked", asksToRun("rm -rf ./\u202ex\n<b>second</b>"))
	c := ada(t, f)
	_, text := c.get("/threads/turnasks")
	contains(t, text, "waits for approval", "waiting for a person&#39;s approval")
	contains(t, text, "Bee asks whether it may use <code>run_command</code>", "rm -rf ./&lt;U+202E&gt;x\n&lt;b&gt;second&lt;/b&gt;",
		`action="/threads/turnasks/approvals/p1"`, `value="approve"`, `value="deny"`)
	t.Run("with yes or no, and a reason", func(t *testing.T) {
		res, _ := c.post("/threads/turnasks/approvals/p1", url.Values{"verdict": {"deny"}, "reason": {"too early"}})
		want(t, res, http.StatusSeeOther, "/threads/turnasks")
		if fmt.Sprint(f.answered) != "[p1 VERDICT_DENY too early]" {
			t.Errorf("it was answered %v", f.answered)
		}
		if res, _ := c.post("/threads/turnasks/approvals/p1", url.Values{"verdict": {"maybe"}}); res.StatusCode != http.StatusBadRequest {
			t.Errorf("an invalid answer has the status %d", res.StatusCode)
		}
	})
	t.Run("and the card says who answered", func(t *testing.T) {
		f.says("turnasks", f.me.Id, "turn.t1.1.call0.answered", entry.PermissionAnswered{ApprovalID: "p1", TurnID: "t1", AgentID: bee, Outcome: entry.Denied, AnsweredBy: f.me.Id, Reason: "too early"})
		_, text := c.get("/threads/turnasks")
		contains(t, text, "Ada said no.", "too early")
		lacks(t, text, `value="approve"`, "waits for approval", "waiting for a person")
	})
	t.Run("everything that would run is shown, however long", func(t *testing.T) {
		f.begins("turnlong")
		f.says("turnlong", "", "turn.t1.1.call0.asked", asksToRun(strings.Repeat("x", 100<<10)+"; rm -rf /"))
		_, text := c.get("/threads/turnlong")
		contains(t, text, "Show all 102,410 bytes that would run", "; rm -rf /</pre>")
	})
	t.Run("and nothing can be answered when it is too late", func(t *testing.T) {
		f.begins("turnlate")
		late := asksToRun("true")
		late.ExpiresMS = time.Now().Add(-time.Minute).UnixMilli()
		f.says("turnlate", "", "turn.t1.1.call0.asked", late)
		_, text := c.get("/threads/turnlate")
		contains(t, text, "Nobody answered in time")
		lacks(t, text, `value="approve"`)
	})
}

// Whoever reads a coding agent's thread can answer its request, even if another member gave it the task. Only the first answer
// counts: a later one is refused on the same page, which says who was first.
func TestAnotherMembersAgentIsAnswered(t *testing.T) {
	t.Parallel()
	const cleo = "7f6f0a52-0000-4000-8000-0000000000c1"
	const path, late = "/threads/runasks01/approvals/p1", "This was already answered: Ada said yes at 10:00:00"
	begin := func() *fake {
		f := newFake().withBot()
		f.agents = append(f.agents, &arbev1.Agent{Id: cleo, Kind: "human", Name: "Cleo", Handle: "cleo"})
		f.drives("runasks01", cleo)
		f.says("runasks01", bee, "run.1.0", entry.PiAssistant{Harness: "claude-code", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall("a", "Bash", `{"command":"make release"}`)}})
		asked := asksToRun("make release")
		asked.TurnID, asked.Epoch, asked.CallID, asked.Tool = "", 1, "run.1.0.call0", "Bash"
		f.says("runasks01", "", entry.AskedID(asked.CallID), asked)
		return f
	}
	answered := entry.PermissionAnswered{ApprovalID: "p1", Epoch: 1, AgentID: bee, Outcome: entry.Approved}
	t.Run("without a script", func(t *testing.T) {
		t.Parallel()
		f := begin()
		c := ada(t, f)
		_, text := c.get("/threads/runasks01")
		contains(t, text, "Cleo", "Bee asks whether it may use <code>Bash</code>", "make release", `action="`+path+`"`)
		res, _ := c.post(path, url.Values{"verdict": {"approve"}})
		want(t, res, http.StatusSeeOther, "/threads/runasks01")
		res, text = c.post(path, url.Values{"verdict": {"deny"}})
		if res.StatusCode < 400 || res.StatusCode >= 500 {
			t.Errorf("the second answer has the status %d", res.StatusCode)
		}
		contains(t, text, late)
		if got := fmt.Sprint(f.answered); got != "[p1 VERDICT_APPROVE ]" {
			t.Errorf("it was answered %s", got)
		}
		answered.AnsweredBy = f.me.Id
		f.says("runasks01", f.me.Id, entry.AnsweredID("run.1.0.call0"), answered)
		_, text = c.get("/threads/runasks01")
		contains(t, text, "Ada said yes.")
		lacks(t, text, `action="`+path+`"`)
	})
	t.Run("in two browsers", func(t *testing.T) {
		t.Parallel()
		f := begin()
		address := f.start(t)
		var tabs []*tab
		for range 2 {
			b := newTab(t, address)
			b.open("/threads/runasks01")
			b.untilLive()
			b.until("the buttons", "document.querySelectorAll('.approval button').length === 2")
			tabs = append(tabs, b)
		}
		const yes, no = ".approval button[value=approve]", ".approval button[value=deny]"
		tabs[0].do(chromedp.Click(chromedp.CSS(yes)))
		f.until(t, "that it is approved", func() bool { return fmt.Sprint(f.answered) == "[p1 VERDICT_APPROVE ]" })
		tabs[1].allow("412")                         // the browser reports the refusal
		tabs[1].do(chromedp.Click(chromedp.CSS(no))) // before the answer has reached its page
		tabs[1].until("who was first", "document.querySelector('#notice').innerText.startsWith('"+late+"')")
		f.says("runasks01", f.me.Id, entry.AnsweredID("run.1.0.call0"), entry.PermissionAnswered{ApprovalID: "p1", Epoch: 1, AgentID: bee, Outcome: entry.Approved, AnsweredBy: f.me.Id})
		for _, b := range tabs {
			b.until("the answer in place of the buttons", "document.querySelector('.approval-answer')?.innerText.includes('Ada said yes.') && !document.querySelector('.approval button') && location.pathname === '/threads/runasks01'")
		}
		if got := fmt.Sprint(f.answered); got != "[p1 VERDICT_APPROVE ]" {
			t.Errorf("it was answered %s", got)
		}
	})
}

func TestARequestForApprovalIsAccessible(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnasks")
	b := newTab(t, f.start(t))
	f.says("turnasks", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall("a", "run_command", `{"command":"make"}`)}})
	f.says("turnasks", "", "turn.t1.1.call0.asked", asksToRun("make\n"+strings.Repeat("long ", 100)))
	b.open("/threads/turnasks")
	b.until("the buttons", "document.querySelectorAll('.approval button').length === 2")
	b.accessibleEverywhere("a request")
	f.says("turnasks", f.me.Id, "turn.t1.1.call0.answered", entry.PermissionAnswered{ApprovalID: "p1", TurnID: "t1", AgentID: bee, Outcome: entry.Denied, AnsweredBy: f.me.Id, Reason: "too early"})
	b.until("the answer", "document.querySelector('.approval-answer')?.innerText.includes('Ada said no.')")
	b.accessibleEverywhere("an answered request")
}

func TestAnAnswerIsSeenInEveryTab(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnasks")
	address := f.start(t)
	var tabs []*tab
	for range 2 {
		b := newTab(t, address)
		b.open("/threads/turnasks")
		b.untilLive()
		tabs = append(tabs, b)
	}
	f.says("turnasks", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall("a", "run_command", `{"command":"make release && git push --tags"}`)}})
	for _, b := range tabs {
		b.until("that the call runs", "document.querySelector('.call-word')?.innerText === 'running'")
	}
	f.says("turnasks", "", "turn.t1.1.call0.asked", asksToRun("make release && git push --tags"))
	for _, b := range tabs {
		b.until("that the call waits", "document.querySelector('.call-word')?.innerText === 'waits for approval'")
		b.until("the buttons", "document.querySelectorAll('.approval button').length === 2")
	}
	tabs[0].pictures("approval")
	tabs[0].do(chromedp.Click(chromedp.CSS(".approval button.primary")))
	f.until(t, "that it is approved", func() bool { return fmt.Sprint(f.answered) == "[p1 VERDICT_APPROVE ]" })
	f.says("turnasks", f.me.Id, "turn.t1.1.call0.answered", entry.PermissionAnswered{ApprovalID: "p1", TurnID: "t1", AgentID: bee, Outcome: entry.Approved, AnsweredBy: f.me.Id})
	for _, b := range tabs {
		b.until("that the call runs again", "document.querySelector('.call-word')?.innerText === 'running'")
		b.until("who answered", "document.querySelector('.approval-answer')?.innerText.includes('Ada said yes.') && !document.querySelector('.approval button')")
	}
}
