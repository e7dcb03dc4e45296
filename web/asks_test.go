package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// ListApprovals lists the requests in the log of a thread that nobody has answered.
func (s approvals) ListApprovals(_ context.Context, req *arbev1.ListApprovalsRequest) (*arbev1.ListApprovalsResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	res := &arbev1.ListApprovalsResponse{}
	for _, e := range s.f.logs[req.ThreadId] {
		var asked entry.PermissionAsked
		if e.Type != asked.Type() || json.Unmarshal([]byte(e.Payload), &asked) != nil {
			continue
		}
		over := false
		for _, other := range s.f.logs[req.ThreadId] {
			over = over || other.Type == (entry.PermissionAnswered{}).Type() && strings.Contains(other.Payload, `"`+asked.ApprovalID+`"`)
		}
		if !over {
			res.Approvals = append(res.Approvals, &arbev1.Approval{Id: asked.ApprovalID, ThreadId: req.ThreadId, AgentName: "Bee", Tool: asked.Tool, Arguments: string(asked.Arguments), Question: asked.Question, State: arbev1.ApprovalState_APPROVAL_STATE_OPEN})
		}
	}
	return res, nil
}

// asks returns the question of a coding agent, with two answers to choose from.
func asks(id string) entry.PermissionAsked {
	return entry.PermissionAsked{ApprovalID: id, Epoch: 1, AgentID: bee, CallID: "run.1.0.call0", Tool: "AskUserQuestion", Question: true, ExpiresMS: time.Now().Add(time.Hour).UnixMilli(),
		Arguments: json.RawMessage(`{"questions":[{"question":"Which database?","options":[{"label":"Postgres","description":"as <b>now</b>"},{"label":"<i>SQLite</i>\u202e"}]}]}`)}
}

// A question offers its answers as buttons. One that is out of view can be answered above the composer.
func TestAQuestionIsAnsweredAboveTheComposer(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("askabove1")
	f.says("askabove1", "", "run.1.0.call0.asked", asks("q1"))
	f.update("askabove1", func(t *arbev1.Thread) { t.OpenApprovals = 1 })
	for i := range 60 {
		f.says("askabove1", f.me.Id, "", entry.Chat{Text: fmt.Sprint("later ", i)})
	}
	_, page := ada(t, f).get("/threads/askabove1")
	contains(t, page, `id="asks"`, "Bee has a question", `<button name="reason" value="Postgres" title="as &lt;b&gt;now&lt;/b&gt;"`, `value="&lt;i&gt;SQLite&lt;/i&gt;&lt;U+202E&gt;"`, "Another answer", `<p class="asked" dir="auto">Which database?</p>`)
	harmless(t, page)

	b := newTab(t, f.start(t))
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 800, DeviceScaleFactor: 1}) // the card has room
	b.open("/threads/askabove1")
	b.untilLive()
	b.do(chromedp.Click(chromedp.CSS("#asks summary")))
	b.pictures("asks")
	b.loadAxe()
	b.accessible("a question above the composer")
	b.do(chromedp.Click(chromedp.CSS("#asks .options button:first-of-type")))
	f.until(t, "the answer", func() bool { return fmt.Sprint(f.answered) == "[q1 VERDICT_APPROVE Postgres]" })
	f.says("askabove1", f.me.Id, "run.1.0.call0.answered", entry.PermissionAnswered{ApprovalID: "q1", Epoch: 1, AgentID: bee, Outcome: entry.Approved, AnsweredBy: f.me.Id, Reason: "Postgres"})
	b.until("that nothing waits", "document.querySelector('#asks').hidden")

	f.says("askabove1", "", "run.1.1.call0.asked", asks("q2"))
	b.until("the card of the next one, in view, and nothing above the composer", "!!document.querySelector('#log .approval .options') && document.querySelector('#asks .ask').hidden")
	eval[int](b, "(document.querySelector('#scroller').scrollTop = -800, 1)")
	b.until("that it is above the composer when the card is not in view", "document.querySelector('#asks .ask').checkVisibility()")
}

// A plan is a list of steps in its row and, while its agent is at work, a line above the composer.
func TestAPlanSaysHowFarTheWorkIs(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("planplan1")
	plan := func(id, tool, arguments string) {
		f.says("planplan1", bee, id, entry.PiAssistant{Harness: "claude-code", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall(id, tool, arguments)}})
	}
	plan("run.1.0", "TodoWrite", `{"todos":[{"content":"Read <b>it</b>","status":"completed"},{"content":"Fix\u202e it","status":"in_progress"},{"content":"Test it","status":"pending"}]}`)
	_, page := ada(t, f).get("/threads/planplan1")
	contains(t, page, `<span class="number">1 / 3</span>`, "Read &lt;b&gt;it&lt;/b&gt;", "Fix&lt;U+202E&gt; it", `id="plan"`)
	harmless(t, page)

	b := newTab(t, f.start(t))
	b.open("/threads/planplan1")
	b.untilLive()
	const line = "document.querySelector('#plan summary')"
	b.until("the line", line+".checkVisibility() && "+line+".innerText.includes('1 / 3')")
	b.do(chromedp.Click(chromedp.CSS("#plan summary")))
	b.pictures("plan")
	b.loadAxe()
	b.accessible("a plan")
	plan("run.1.1", "update_plan", `{"plan":[{"step":"Read it","status":"completed"},{"step":"Fix it","status":"completed"},{"step":"Test it","status":"in_progress"}]}`)
	b.until("the next step, and the list still open", line+".innerText.includes('2 / 3') && "+line+".innerText.includes('Test it') && document.querySelector('#plan').open")
	plan("run.1.2", "write_todos", `{"todos":[{"description":"Read it","status":"completed"}]}`)
	b.until("no line when all is done", "!"+line+".checkVisibility()")
}
