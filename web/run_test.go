package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

type runs struct {
	arbev1connect.UnimplementedRunServiceHandler
	f *fake
}

func (s runs) CancelRun(_ context.Context, req *arbev1.CancelRunRequest) (*arbev1.CancelRunResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.runs = append(s.f.runs, "stop "+req.ThreadId)
	return &arbev1.CancelRunResponse{Stopped: true}, nil
}

func (s runs) ListRuns(_ context.Context, req *arbev1.ListRunsRequest) (*arbev1.ListRunsResponse, error) {
	run := &arbev1.Run{ThreadId: req.ThreadId, Epoch: 1, PatchArtifactId: "of-" + req.ThreadId}
	if strings.HasPrefix(req.ThreadId, "patchrun") {
		run.BranchRepository = "https://example.com/one.git"
	}
	return &arbev1.ListRunsResponse{Runs: []*arbev1.Run{run}}, nil
}

func (s runs) ApplyChanges(_ context.Context, req *arbev1.ApplyChangesRequest) (*arbev1.ApplyChangesResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.runs = append(s.f.runs, fmt.Sprint("apply ", req.ThreadId, " ", req.Epoch))
	return &arbev1.ApplyChangesResponse{ThreadId: "above", Command: &arbev1.Entry{Seq: 7}}, nil
}

func (s runs) OpenBranch(_ context.Context, req *arbev1.OpenBranchRequest) (*arbev1.OpenBranchResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.runs = append(s.f.runs, fmt.Sprint("branch ", req.ThreadId, " ", req.Epoch, " ", req.Name))
	return &arbev1.OpenBranchResponse{ThreadId: req.ThreadId, Command: &arbev1.Entry{Seq: 8}}, nil
}

func (s runs) ContinueRun(_ context.Context, req *arbev1.ContinueRunRequest) (*arbev1.ContinueRunResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if req.Agent != "" {
		if req.Once == "" || !s.f.once[req.Once] { // a retry returns the first thread
			s.f.once[req.Once] = true
			s.f.runs = append(s.f.runs, fmt.Sprintf("continue %s with %s: %q", req.ThreadId, req.Agent, req.Task))
		}
		return &arbev1.ContinueRunResponse{Epoch: 2, ThreadId: "belowit01"}, nil
	}
	s.f.runs = append(s.f.runs, fmt.Sprint("continue ", req.ThreadId, " ", req.Fresh))
	return &arbev1.ContinueRunResponse{Epoch: 2, ThreadId: req.ThreadId}, nil
}

func (s runs) Delegate(_ context.Context, req *arbev1.DelegateRequest) (*arbev1.DelegateResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.runs = append(s.f.runs, fmt.Sprintf("delegate from %s to %s in %q: %q", req.ParentThreadId, req.Agent, req.EnvironmentId, req.Task))
	return &arbev1.DelegateResponse{Thread: &arbev1.Thread{Id: "belowit01"}}, nil
}

// ListQueue and ChangeQueue work like the server's, on the fake's log.
func (s runs) ListQueue(_ context.Context, req *arbev1.ListQueueRequest) (*arbev1.ListQueueResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	q := entry.NewQueue(s.f.threads[req.ThreadId].AgentId, 0)
	for _, e := range s.f.logs[req.ThreadId] {
		q.Learn(entry.Entry{Seq: e.Seq, ID: e.Id, Author: e.AuthorAgentId, Type: e.Type, Payload: []byte(e.Payload)})
	}
	res := &arbev1.ListQueueResponse{Total: int32(len(q.Waiting())), Steers: strings.HasPrefix(req.ThreadId, "steered")}
	for _, w := range q.Waiting() {
		res.Messages = append(res.Messages, &arbev1.QueuedMessage{EntryId: w.ID, AuthorAgentId: w.Author, Seq: w.Seq, Text: w.Chat.Text, Version: w.Version, EditedByAgentId: w.EditedBy, Queue: w.Later})
	}
	return res, nil
}

func (s runs) ChangeQueue(_ context.Context, req *arbev1.ChangeQueueRequest) (*arbev1.ChangeQueueResponse, error) {
	if req.Version == 99 {
		return nil, connect.NewError(connect.CodeAborted, errors.New("somebody else changed this message after you read it"))
	}
	switch c := req.Change.(type) {
	case *arbev1.ChangeQueueRequest_Edit:
		s.f.says(req.ThreadId, s.f.me.Id, req.Once, entry.QueueEdited{EntryID: req.EntryId, Text: c.Edit})
	case *arbev1.ChangeQueueRequest_Move_:
		s.f.says(req.ThreadId, s.f.me.Id, req.Once, entry.QueueMoved{EntryID: req.EntryId, Before: c.Move.BeforeEntryId})
	case *arbev1.ChangeQueueRequest_Queue:
		s.f.says(req.ThreadId, s.f.me.Id, req.Once, entry.QueueTimed{EntryID: req.EntryId, Queue: c.Queue})
	default:
		s.f.says(req.ThreadId, s.f.me.Id, req.Once, entry.QueueCancelled{EntryID: req.EntryId})
	}
	return &arbev1.ChangeQueueResponse{}, nil
}

// Readers of a coding agent's thread can stop it while it works, and continue it when it rests.
func TestARunIsStoppedAndContinuedOnItsPage(t *testing.T) {
	t.Parallel()
	const stop, again = "/threads/codingrun1/stop", "/threads/codingrun1/run/continue"
	f := newFake().withBot()
	th := f.thread("codingrun1", "Fix the failing test")
	th.AgentId = bee
	c := ada(t, f)
	for status, shown := range map[string]struct{ has, lacks []string }{
		"idle":      {nil, []string{stop, again}},
		"running":   {[]string{stop}, []string{again}},
		"completed": {[]string{again, "Continue in a fresh sandbox"}, []string{stop}},
		"failed":    {[]string{again, "Continue in a fresh sandbox"}, []string{stop}},
		"cancelled": {[]string{again, "Continue in a fresh sandbox"}, []string{stop}},
	} {
		f.mu.Lock()
		th.Status, _ = arbev1.FromWord[arbev1.ThreadStatus](status)
		f.mu.Unlock()
		_, text := c.get("/threads/codingrun1")
		contains(t, text, shown.has...)
		lacks(t, text, shown.lacks...)
	}
	for _, post := range []struct {
		path string
		form url.Values
	}{{stop, nil}, {again, url.Values{"fresh": {"false"}}}, {again, url.Values{"fresh": {"true"}}}} {
		res, _ := c.post(post.path, post.form)
		want(t, res, http.StatusSeeOther, "/threads/codingrun1")
	}
	if got := fmt.Sprint(f.runs); got != "[stop codingrun1 continue codingrun1 false continue codingrun1 true]" {
		t.Errorf("asked: %s", got)
	}
}

// On the page of a thread, a coding agent gets a task. If the thread's own agent rests, another one can continue its work.
// Both work without a script.
func TestATaskIsGivenOnThePage(t *testing.T) {
	t.Parallel()
	const codex = "7f6f0a52-0000-4000-8000-000000000021"
	f := newFake().withBot()
	f.agents = append(f.agents, &arbev1.Agent{Id: codex, Kind: "bot", Runtime: "codex", Name: "Codex", Handle: "codex"})
	th := f.thread("codingrun3", "Fix the failing test")
	th.AgentId, th.Status = bee, arbev1.ThreadStatus_THREAD_STATUS_FAILED
	c := ada(t, f)
	const again, delegate, choice = "/threads/codingrun3/run/continue", "/threads/codingrun3/run/delegate", `<option value="` + codex + `">Codex</option>`
	_, text := c.get("/threads/codingrun3")
	contains(t, text, "Continue with another agent", delegate, choice)
	_, section, _ := strings.Cut(text, `id="continuing"`)
	section, _, _ = strings.Cut(section, "</section>")
	contains(t, section, again, choice)
	lacks(t, section, bee) // it is the thread's own
	res, _ := c.post(again, url.Values{"agent": {codex}, "task": {" Find out why. "}})
	want(t, res, http.StatusSeeOther, "/threads/belowit01")
	res, _ = c.post(delegate, url.Values{"agent": {codex}, "task": {"Write docs."}, "environment": {"env1"}, "once": {"a-form"}})
	want(t, res, http.StatusSeeOther, "/threads/codingrun3")
	if got := strings.Join(f.runs, "\n"); got != "continue codingrun3 with "+codex+": \"Find out why.\"\ndelegate from codingrun3 to "+codex+" in \"env1\": \"Write docs.\"" {
		t.Errorf("asked: %s", got)
	}
	f.mu.Lock()
	th.Status = arbev1.ThreadStatus_THREAD_STATUS_RUNNING
	f.mu.Unlock()
	_, text = c.get("/threads/codingrun3")
	lacks(t, text, "Continue with another agent")
}

// The form that lets another agent continue is the same for all readers. It starts one agent however often it is sent, until the
// thread's own agent has run again.
func TestAnotherAgentContinuesOnce(t *testing.T) {
	t.Parallel()
	const codex = "7f6f0a52-0000-4000-8000-000000000021"
	f := newFake().withBot()
	f.agents = append(f.agents, &arbev1.Agent{Id: codex, Kind: "bot", Runtime: "codex", Name: "Codex", Handle: "codex"})
	th := f.thread("codingrun4", "Fix the failing test")
	th.AgentId, th.Status = bee, arbev1.ThreadStatus_THREAD_STATUS_FAILED
	c := ada(t, f)
	for _, step := range []struct {
		epoch   int64
		task    string
		started int
	}{{3, "", 1}, {3, "", 1}, {3, "Find out why.", 2}, {4, "", 3}, {4, "", 3}} {
		f.update(th.Id, func(t *arbev1.Thread) { t.LastRun = &arbev1.LastRun{Epoch: step.epoch} })
		_, text := c.get("/threads/codingrun4")
		_, section, _ := strings.Cut(text, `id="continuing"`)
		_, field, _ := strings.Cut(section, `name="epoch" value="`)
		epoch, _, _ := strings.Cut(field, `"`)
		res, _ := c.post("/threads/codingrun4/run/continue", url.Values{"agent": {codex}, "task": {step.task}, "epoch": {epoch}})
		want(t, res, http.StatusSeeOther, "/threads/belowit01")
		if len(f.runs) != step.started {
			t.Errorf("after run %d and the task %q, the agent has started %d times, want %d: %q", step.epoch, step.task, len(f.runs), step.started, f.runs)
		}
	}
}

// drives adds a thread that Bee drives, with a task and the beginning of its first run. The task is by the person who is logged
// in, or by another one.
func (f *fake) drives(thread string, by ...string) *arbev1.Thread {
	t := f.thread(thread, "Fix the failing test")
	f.says(thread, append(by, f.me.Id)[0], "task", entry.Chat{Text: "Fix the failing test."})
	began := f.says(thread, "", "", entry.StatusChanged{From: "idle", To: "running", Epoch: 1})
	f.mu.Lock()
	defer f.mu.Unlock()
	t.AgentId, t.Status = bee, arbev1.ThreadStatus_THREAD_STATUS_RUNNING
	t.Running = &arbev1.Running{RunEpoch: 1, AgentId: bee, Since: began.Ts}
	f.wake()
	return t
}

// ends ends the run of a thread in its log and its row.
func (f *fake) ends(thread, outcome string, report ...entry.Payload) {
	for _, p := range report {
		f.says(thread, bee, "", p)
	}
	f.says(thread, "", "", entry.StatusChanged{From: "running", To: outcome, Epoch: 1})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.threads[thread].Status, _ = arbev1.FromWord[arbev1.ThreadStatus](outcome)
	f.threads[thread].Running = nil
	f.wake()
}

// Watchers of a coding agent's thread see its work like a bot's turn: what it thinks and writes, the running tool and since
// when it runs, and at the end the duration and cost.
func TestARunIsSeenWhileItWorks(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("runlive01")
	b := newTab(t, f.start(t))
	b.open("/threads/runlive01")
	b.untilLive()
	b.until("that the agent is at work, with a clock and Stop", "document.querySelector('#writing')?.innerText.includes('Bee') && !!document.querySelector('#writing .elapsed') && !!document.querySelector('#writing form[action=\"/threads/runlive01/run/stop\"]') && !!document.querySelector('#thread-head .pill.running .elapsed')")

	f.says("runlive01", bee, "run.1.alive", entry.Heartbeat{Epoch: 1, Phase: "thinking"})
	word := "document.querySelector('#writing .writing-foot .status')?.innerText.trim()"
	b.until("what its first heartbeat says", word+" === 'thinking'")
	f.delta("runlive01", "run.1.0~1.1", 0, chunks(entry.PiChunk{Kind: "thinking", Text: "Hm."}, entry.PiChunk{Kind: "text", Block: 1, Text: "I **look**"}))
	b.until("what it writes", "document.querySelector('#writing strong')?.innerText === 'look'")
	f.says("runlive01", bee, "run.1.0", entry.PiAssistant{Harness: "pi", StopReason: entry.PiToolUse, Content: []entry.PiBlock{entry.PiText("I **look**"), toolCall("a", "bash", `{"command":"go test ./..."}`)}})
	b.until("the call, running", "document.querySelectorAll('#log strong').length === 1 && document.querySelector('#log .call .status.running') && document.querySelector('#log .call').innerText.includes('go test ./...')")
	f.delta("runlive01", entry.BeatID(1), time.Now().UnixMicro(), `{"epoch":1,"phase":"tool","last_tool":"bash"}`+"\n")
	b.until("the tool that runs", word+" === 'running bash'")
	f.delta("runlive01", entry.BeatID(1), time.Now().UnixMicro(), `{"epoch":7,"phase":"of another run"}`+"\n")
	f.delta("runlive01", entry.BeatID(1), time.Now().UnixMicro(), "{broken\n")
	f.says("runlive01", bee, entry.CallResultID("run.1.0", 0), entry.PiToolResult{Harness: "pi", ToolCallID: "a", ToolName: "bash", Content: []entry.PiBlock{entry.PiText("ok")}, DurationMS: 2100})
	b.until("the result in the call, with its time", "document.querySelector('#log .call .status.completed')?.innerText.includes('2s')")
	if is := eval[string](b, word); is != "running bash" {
		t.Errorf("it does %q", is)
	}
	f.ends("runlive01", "completed", entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted, Result: "Done.", PatchArtifactID: "patch1", PatchFiles: 2,
		Usage: &entry.TurnUsage{Input: 1200, Output: 300, CostMicros: 42_000}})
	b.until("its end, with what it used", "!document.querySelector('#writing article') && document.querySelector('.run-done')?.innerText.includes('$0.04') && document.querySelector('a[href*=patch1]').innerText === '2 files changed'")
	lacks(t, eval[string](b, "document.body.innerText"), "of another run")
}

// Until a run begins, which may take a minute in a new sandbox, its thread shows the preparations.
func TestARunIsSeenBeforeItBegins(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	th := f.thread("runboot01", "Fix the failing test")
	th.AgentId, th.Status = bee, arbev1.ThreadStatus_THREAD_STATUS_IDLE
	f.says("runboot01", f.me.Id, "task", entry.Chat{Text: "Fix the failing test."})
	b := newTab(t, f.start(t))
	b.open("/threads/runboot01")
	b.untilLive()
	f.delta("runboot01", entry.BootID(1), 0, "==> copy the runner\n==> install <b>Bee</b> 1.0\nadded 12 packages\n")
	word := "document.querySelector('#writing .writing-foot .status')?.innerText.trim()"
	b.until("the step, with a clock and Stop", word+" === 'install <b>Bee</b> 1.0' && !!document.querySelector('#writing .elapsed') && !!document.querySelector('#writing form[action=\"/threads/runboot01/run/stop\"]')")
	f.delta("runboot01", entry.BootID(1), 64, "nothing new\n")
	f.says("runboot01", "", "", entry.StatusChanged{From: "idle", To: "running", Epoch: 1})
	f.says("runboot01", bee, "run.1.alive", entry.Heartbeat{Epoch: 1, Phase: "thinking"})
	b.until("what its first heartbeat says", word+" === 'thinking'")
	f.delta("runboot01", entry.BootID(1), 76, "==> too late\n")
	f.ends("runboot01", "failed", entry.PiFailed{Epoch: 1, Error: "the agent could not begin"})
	b.until("its end", "!document.querySelector('#writing article') && document.body.innerText.includes('could not begin')")
}

// A run that failed or was stopped says why, and what people can do. Only the last run of a log offers that.
func TestTheEndOfARun(t *testing.T) {
	t.Parallel()
	const script = "<script>alert(1)</script>"
	for name, c := range map[string]struct {
		outcome string
		report  []entry.Payload
		has     []string
	}{
		"the agent failed": {"failed", []entry.Payload{
			entry.RunFinished{Epoch: 1, Outcome: entry.RunFailed, Usage: &entry.TurnUsage{Input: 10, CostMicros: 20_000}},
			entry.PiFailed{Epoch: 1, Error: "the model is overloaded " + script, Next: "continue the thread", Phase: entry.PhaseExecution, LastLines: "boom " + script}},
			[]string{"Bee failed: the model is overloaded &lt;script&gt;", "Continue the thread.", "boom &lt;script&gt;", ">Continue<", "Continue in a fresh sandbox", "$0.02", "10 tokens"}},
		"it could not begin": {"failed", []entry.Payload{entry.PiFailed{Epoch: 1, Error: "there is no sandbox", Phase: entry.PhaseDispatch}},
			[]string{"Bee could not begin: there is no sandbox.", ">Retry<", "Continue in a fresh sandbox"}},
		"it was lost":    {"failed", []entry.Payload{entry.SessionOrphaned{Epoch: 1, Reason: "its sandbox is gone"}}, []string{"Bee was lost: its sandbox is gone.", ">Continue<"}},
		"it was stopped": {"cancelled", []entry.Payload{entry.RunFinished{Epoch: 1, Outcome: entry.RunCancelled}}, []string{"Bee was stopped by Ada.", ">Continue<"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake().withBot()
			f.drives("runended1")
			if c.outcome == "cancelled" {
				f.says("runended1", f.me.Id, "", entry.CancelRequested{Epoch: 1})
			}
			f.ends("runended1", c.outcome, c.report...)
			_, text := ada(t, f).get("/threads/runended1")
			contains(t, text, c.has...)
			lacks(t, text, "<script>alert", "is at work")
			if n := strings.Count(text, "run-end"); n != 1 {
				t.Errorf("%d cards say that it ended", n)
			}
		})
	}
}

// Consecutive tool calls fold into one line that summarizes them. Failed and running calls stay visible, and each call is a
// line.
func TestToolCallsFold(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("runfolds1")
	call := func(n int, fails bool) {
		id := entry.RunEntryID(1, n)
		f.says("runfolds1", bee, id, entry.PiAssistant{Harness: "pi", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall("a", "bash", fmt.Sprintf(`{"command":"echo %d"}`, n))}})
		f.says("runfolds1", bee, entry.CallResultID(id, 0), entry.PiToolResult{Harness: "pi", ToolCallID: "a", ToolName: "bash", IsError: fails, Content: []entry.PiBlock{entry.PiText("said")}, DurationMS: 700})
	}
	for n := range 3 {
		call(n, n == 1)
	}
	b := newTab(t, f.start(t))
	b.open("/threads/runfolds1")
	b.untilLive()
	fold := "document.querySelector('.work-fold')"
	lines := "[...document.querySelectorAll('.call')].filter(c => c.offsetParent).length"
	b.until("one line for all, and the failure, open", fold+"?.innerText.trim() === '3 commands · 2s' && "+lines+" === 1 && document.querySelector('.call[open]').innerText.includes('said')")
	call(3, false)
	b.until("the next one in it", fold+".innerText.trim() === '4 commands · 2s' && "+lines+" === 1")
	f.says("runfolds1", bee, "run.1.4", entry.PiAssistant{Harness: "pi", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall("a", "bash", `{"command":"sleep 9"}`)}})
	b.until("the one that runs", lines+" === 2")
	b.do(chromedp.Focus(chromedp.CSS(".work-fold")), chromedp.KeyEvent("\r"))
	b.until("all lines, by the keyboard", lines+" === 5 && "+fold+".getAttribute('aria-expanded') === 'true'")
	f.says("runfolds1", bee, "run.1.5", entry.PiAssistant{Harness: "pi", StopReason: entry.PiStopped, Content: []entry.PiBlock{entry.PiText("Done, it *works*.")}})
	b.until("the answer, as a row of its own", "document.querySelector('#log > .entry:not(.work) em')?.innerText === 'works'")
}

// An answer stays as people watched it when it is complete, when the run ends, and after a reload. Its thinking stays folded.
func TestAnAnswerThatWasWatchedStays(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("runwatch1")
	b := newTab(t, f.start(t))
	b.open("/threads/runwatch1")
	b.untilLive()
	const length = 100 << 10
	text := strings.Repeat("It has many words, and each of them was seen.\n\n", length/47) + "The end."
	f.says("runwatch1", bee, "run.1.alive", entry.Heartbeat{Epoch: 1, Phase: "thinking"})
	pieces := []entry.PiChunk{{Kind: "thinking", Text: "What did they ask?"}}
	for rest := text; rest != ""; {
		n := min(len(rest), 8<<10)
		pieces = append(pieces, entry.PiChunk{Kind: "text", Block: 1, Text: rest[:n]})
		rest = rest[n:]
	}
	f.delta("runwatch1", "run.1.0~1.1", 0, chunks(pieces...))
	const seen, thought = "document.querySelector('#writing').innerText.length", "JSON.stringify([...document.querySelectorAll('.thinking')].map(e => [e.open, e.querySelector('.thought').textContent.trim()]))"
	b.until("all of it, while it is written", "document.querySelector('#writing').innerText.includes('The end.')")
	watched := eval[int](b, seen)
	if watched < length*9/10 {
		t.Fatalf("%d characters were watched", watched)
	}
	stays := func(when string) {
		t.Helper()
		if n := eval[int](b, "[...document.querySelectorAll('#log .chat')].at(-1).innerText.length"); n < watched*95/100 || eval[bool](b, "document.querySelector('#log').innerText.includes('Show all')") {
			t.Errorf("%s, %d of %d characters are left", when, n, watched)
		}
		if got := eval[string](b, thought); got != `[[false,"What did they ask?"]]` {
			t.Errorf("%s, the thinking is %s", when, got)
		}
	}
	f.says("runwatch1", bee, "run.1.0", entry.PiAssistant{Harness: "pi", StopReason: entry.PiStopped, Content: []entry.PiBlock{
		{Type: entry.PiThinkingBlock, Thinking: "What did they ask?", ThinkingSignature: "c2VhbGVk"}, entry.PiText(text)}})
	b.until("the whole answer in the log", "document.querySelector('#log').innerText.includes('The end.') && !document.querySelector('#writing').innerText.includes('The end.')")
	stays("when it is complete")
	f.ends("runwatch1", "completed", entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted, Result: text})
	b.until("the end of the run", "!document.querySelector('#writing article') && !!document.querySelector('.run-done')")
	stays("when the run has ended")
	b.open("/threads/runwatch1")
	b.untilLive()
	stays("after a reload")
}

// On a phone, whoever opens a thread whose agent is done reads the answer from its beginning. The work above it is one line.
func TestOnAPhoneTheAnswerComesFirst(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.drives("runphone1")
	for n := range 10 {
		id := entry.RunEntryID(1, n)
		f.says("runphone1", bee, id, entry.PiAssistant{Harness: "pi", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall("a", "bash", fmt.Sprintf(`{"command":"echo %d"}`, n))}})
		f.says("runphone1", bee, entry.CallResultID(id, 0), entry.PiToolResult{Harness: "pi", ToolCallID: "a", ToolName: "bash", Content: []entry.PiBlock{entry.PiText(strings.Repeat("a line of output\n", 50))}})
	}
	f.says("runphone1", bee, "run.1.10", entry.PiAssistant{Harness: "pi", StopReason: entry.PiStopped, Content: []entry.PiBlock{entry.PiText("It begins here.\n\n" + strings.Repeat("It has many words.\n\n", 200))}})
	f.ends("runphone1", "completed", entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted, Result: "Done."})
	base := f.start(t)
	for width, first := range map[int64]string{390: "It begins here.", 1440: ""} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			b := newTab(t, base)
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 844, DeviceScaleFactor: 1, Mobile: width < 720})
			b.open("/threads/runphone1")
			b.untilLive()
			b.until("one line for the work", "document.querySelector('.work-fold')?.innerText.trim().startsWith('10 commands')")
			// The first paragraph of an answer that is on the screen, and nothing lies over it.
			const shown = `(() => {
				const scroller = document.querySelector('#scroller').getBoundingClientRect()
				const p = [...document.querySelectorAll('#log .chat p')].find(p => p.getBoundingClientRect().top >= scroller.top)?.getBoundingClientRect()
				return p && document.elementFromPoint(p.left + 20, p.top + p.height / 2)?.closest('p')?.innerText || ''
			})()`
			if width > 720 { // on a wide screen, a thread opens at its end
				b.until("the end of the answer", shown+" === 'It has many words.' && document.querySelector('#scroller').scrollTop > -32")
				return
			}
			b.until("the beginning of the answer", shown+" === "+strconv.Quote(first))
			if n := eval[int](b, "[...document.querySelectorAll('.call')].filter(c => c.offsetParent).length"); n != 0 {
				t.Errorf("%d calls are in front of it", n)
			}
			// It stays when the log gets less room, from below and from above.
			for _, grows := range []string{"#composer", "header"} {
				eval[bool](b, "(document.querySelector("+strconv.Quote(grows)+").style.paddingBlockEnd = '80px', true)")
				b.until("the beginning of the answer, above less room", shown+" === "+strconv.Quote(first))
			}
		})
	}
}

// A page folds what people paste, but not a bot's answer of the same length, so that it stays as people watched it.
func TestAnAnswerIsNotFolded(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("answerlong")
	long := strings.Repeat("A line of an answer.\n\n", 1000) + "The end."
	f.says("answerlong", bee, "turn.t1.2", entry.Chat{Text: long, ReplyTo: "question", Turn: &entry.TurnSummary{TurnID: "t1", Model: "m/x"}})
	f.says("answerlong", f.me.Id, "", entry.Chat{Text: "pasted. " + long})
	_, text := ada(t, f).get("/threads/answerlong")
	if n := strings.Count(text, "The end."); n != 1 {
		t.Errorf("the page has %d ends of the two", n)
	}
	if n := strings.Count(text, "Show all, "); n != 1 {
		t.Errorf("%d of the two are folded", n)
	}
}
