package codex_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/codex"
)

var job = harness.Job{Dir: "/workspace", Session: "/session", Model: harness.Model{Provider: "test", ID: "m", Dialect: harness.Responses}}

// agent is the reader of a Codex that the test plays.
type agent struct {
	t *testing.T
	harness.Reader
	events []harness.Event
	// sent is the input that Codex received.
	sent []string
}

// begin returns a Codex that is working on a prompt.
func begin(t *testing.T, j harness.Job, session string) *agent {
	a := &agent{t: t, Reader: codex.Harness{}.Read(j, session, "do it")}
	a.says(`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"t"}}}`, `{"id":3,"result":{"turn":{"id":"u"}}}`, of("turn/started", `"turn":{"id":"u"}`))
	return a
}

func (a *agent) says(lines ...string) {
	for _, line := range lines {
		a.hears(a.Line([]byte(line), 0))
	}
}

func (a *agent) hears(events []harness.Event) {
	for _, e := range events {
		a.events = append(a.events, e)
		if e.Input != nil {
			a.sent = append(a.sent, string(e.Input))
		}
	}
}

// last returns the last input.
func (a *agent) last() string {
	a.t.Helper()
	if len(a.sent) == 0 {
		a.t.Fatal("nothing was sent")
	}
	return a.sent[len(a.sent)-1]
}

// transcript returns its messages, one per line.
func (a *agent) transcript() string {
	var lines []string
	for _, e := range a.events {
		switch p := e.Message.(type) {
		case entry.PiAssistant:
			lines = append(lines, fmt.Sprintf("%s %d: %s", p.StopReason, p.Usage.TotalTokens, strings.ReplaceAll(p.Plain(), "\n", " ")))
		case entry.PiToolResult:
			lines = append(lines, fmt.Sprintf("result %s %s %v: %s", p.ToolCallID, p.ToolName, p.IsError, strings.ReplaceAll(p.Plain(), "\n", " ")))
		}
	}
	return strings.Join(lines, "\n")
}

// of returns a notification of the thread and the turn.
func of(method, params string) string {
	return `{"method":"` + method + `","params":{"threadId":"t","turnId":"u",` + params + `}}`
}

func item(what, item string) string { return of("item/"+what, `"item":`+item) }

func delta(words string) string {
	return of("item/agentMessage/delta", `"itemId":"m","delta":"`+words+`"`)
}

// counts is the tokens of the thread and of its last model call.
func counts(total, last int) string {
	return of("thread/tokenUsage/updated", fmt.Sprintf(`"tokenUsage":{"total":{"inputTokens":%d},"last":{"inputTokens":%d}}`, total, last))
}

func ends(status string) string {
	return of("turn/completed", `"turn":{"id":"u","status":"`+status+`"}`)
}

func TestItemsAreTranscripts(t *testing.T) {
	t.Parallel()
	a := begin(t, job, "")
	a.says(of("item/reasoning/summaryTextDelta", `"itemId":"r","summaryIndex":0,"delta":"Hm."`), of("item/reasoning/summaryPartAdded", `"itemId":"r","summaryIndex":1`),
		of("item/reasoning/summaryTextDelta", `"itemId":"r","summaryIndex":1,"delta":"So."`), item("completed", `{"type":"reasoning","id":"r","summary":["Hm.","So."]}`),
		item("started", `{"type":"agentMessage","id":"m","text":""}`), delta("I "), delta("look"), item("completed", `{"type":"agentMessage","id":"m","text":"I look."}`),
		item("started", `{"type":"commandExecution","id":"c1","command":"ls"}`), item("started", `{"type":"commandExecution","id":"c1","command":"again"}`),
		item("completed", `{"type":"fileChange","id":"c2","changes":[{"path":"/x"}],"status":"completed"}`),
		item("completed", `{"type":"commandExecution","id":"c1","command":"ls","aggregatedOutput":"gone","exitCode":3,"status":"failed"}`),
		counts(10, 10), delta("Done."), counts(30, 20), ends("completed"))
	want := `toolUse 0: I look. → exec_command {"cmd":"ls"}
toolUse 0: → apply_patch {"changes":[{"path":"/x"}]}
result c2 apply_patch false: 
result c1 exec_command true: gone [exit code 3]
stop 30: Done.`
	if got := a.transcript(); got != want {
		t.Errorf("the transcript is\n%s", got)
	}
	var live strings.Builder
	for _, e := range a.events {
		if e.Chunk != nil {
			live.WriteString(e.Chunk.Text)
		}
	}
	if got := live.String(); got != "Hm.\n\nSo.I look.Done." {
		t.Errorf("it shows %q", got)
	}
	// Once a process has done its work, neither its exit status nor its signal matters.
	if o := a.Decide(harness.Exit{Code: -1, Signal: syscall.SIGKILL}); o.Failed != "" || o.Text != "Done." || !a.events[len(a.events)-1].Settled {
		t.Errorf("the outcome is %+v", o)
	}
}

// A thread that is resumed counts the tokens of earlier turns, and may begin with them.
func TestTokens(t *testing.T) {
	t.Parallel()
	for what, lines := range map[string][]string{
		"a resumed thread that begins with its count": {strings.Replace(counts(100, 100), `"u"`, `"earlier"`, 1), delta("Done."), counts(110, 10)},
		"a resumed thread":                            {delta("Done."), counts(110, 10)},
		"a summary that is counted":                   {delta("Done."), counts(105, 5), counts(105, 77), counts(110, 5)},
		"a subagent":                                  {strings.Replace(counts(7, 7), `"t"`, `"other"`, 1), delta("Done."), counts(103, 3)},
		"a call whose last is empty":                  {delta("Done."), counts(103, 3), counts(110, 0)},
	} {
		a := begin(t, job, "t")
		a.says(append(lines, ends("completed"))...)
		if got := a.transcript(); got != "stop 10: Done." {
			t.Errorf("%s: the transcript is %s", what, got)
		}
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	failed := func(message string) string {
		return of("turn/completed", `"turn":{"id":"u","status":"failed","error":{"message":`+message+`}}`)
	}
	for what, c := range map[string]struct {
		lines  []string
		failed string
	}{
		"an error":            {[]string{failed(`"the roof is on fire"`)}, "the roof is on fire"},
		"an error in JSON":    {[]string{failed(`"{\"error\":{\"message\":\"the roof is on fire\"}}\n"`)}, "the roof is on fire"},
		"an error without":    {[]string{failed(`""`)}, "without saying why"},
		"a length":            {[]string{delta("It "), failed(`"Incomplete response returned, reason: max_output_tokens"`)}, harness.CutLength},
		"another status":      {[]string{ends("tired")}, "without saying why"},
		"an interruption":     {[]string{ends("interrupted")}, "interrupted"},
		"no text":             {[]string{ends("completed")}, harness.NoOutput},
		"a crash":             {nil, "exit status 4: segmentation fault"},
		"the end of another":  {[]string{strings.ReplaceAll(ends("completed"), `"u"`, `"other"`), strings.ReplaceAll(ends("completed"), `"t"`, `"other"`)}, "exit status 4"},
		"a refused request":   {[]string{`{"id":3,"error":{"message":"no"}}`}, "exit status 4"}, // it was answered before
		"an end without ends": {[]string{delta("Hello"), counts(1, 1)}, "exit status 4"},
	} {
		a := begin(t, job, "")
		a.says(c.lines...)
		if o := a.Decide(harness.Exit{Code: 4, Stderr: "segmentation fault"}); !strings.Contains(o.Failed, c.failed) || strings.Contains(o.Failed, "{") {
			t.Errorf("%s: %+v", what, o)
		}
	}
	r := codex.Harness{}.Read(job, "kept", "go on")
	events := append(r.Line([]byte(`{"id":1,"result":{}}`), 0), r.Line([]byte(`{"id":2,"error":{"message":"no rollout found"}}`), 0)...)
	if !strings.Contains(string(events[0].Input), `"thread/resume"`) || !events[1].Settled || !strings.Contains(r.Decide(harness.Exit{}).Failed, "no rollout found") {
		t.Errorf("a thread that is gone: %+v", events)
	}
	if a := begin(t, job, ""); a.Decide(harness.Exit{}).Failed == "" {
		t.Error("it may end in the middle of its work")
	}
}

// An answer that broke off, after which Codex asks its model again, is a message of its own.
func TestAnAnswerThatBreaksOff(t *testing.T) {
	t.Parallel()
	a := begin(t, job, "")
	again := of("error", `"error":{"message":"Reconnecting... 1/5","additionalDetails":"status 429"},"willRetry":true`)
	a.says(again, delta("It be"), again, delta("It begins and ends."), ends("completed"))
	if got := a.transcript(); got != "error 0: It be [Reconnecting... 1/5: status 429]\nstop 0: It begins and ends." {
		t.Errorf("the transcript is %s", got)
	}
	var waits []string
	for _, e := range a.events {
		if e.Waiting != "" {
			waits = append(waits, e.Waiting)
		}
	}
	if o := a.Decide(harness.Exit{}); o.Failed != "" || strings.Join(waits, ", ") != "Reconnecting... 1/5: status 429, Reconnecting... 1/5: status 429" {
		t.Errorf("the outcome is %+v, after waiting for %q", o, waits)
	}
}

func TestSteering(t *testing.T) {
	t.Parallel()
	// What is said before there is a turn goes with it, or after its beginning.
	a := &agent{t: t, Reader: codex.Harness{}.Read(job, "", "do it")}
	if input := a.Steer("at once"); input == nil || len(input) > 0 {
		t.Errorf("it is sent %q", input)
	}
	a.says(`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"t"}}}`)
	if !strings.Contains(a.last(), `"text":"do it"`) || !strings.Contains(a.last(), `"text":"at once"`) {
		t.Errorf("it is given %s", a.last())
	}
	a.Steer("soon")
	if a.says(`{"id":3,"result":{"turn":{"id":"u"}}}`); !strings.Contains(a.last(), "turn/steer") || !strings.Contains(a.last(), `"clientUserMessageId":"arbe-2"`) {
		t.Errorf("Codex gets %s", a.last())
	}
	// What Codex takes note of belongs to the turn. The answer before it is complete, and does not count.
	a.says(delta("One."), item("started", `{"type":"userMessage","id":"x","clientId":"arbe-2"}`), delta("Two."))
	// What it does not take note of before the turn ends is its next turn.
	late := string(a.Steer("late"))
	if a.says(ends("completed")); !strings.Contains(late, "turn/steer") || !strings.Contains(a.last(), "turn/start") || !strings.Contains(a.last(), "late") || strings.Contains(a.last(), "soon") {
		t.Errorf("after %s, Codex gets %s", late, a.last())
	}
	// The turn may begin, and even end, before the answer to our request for it.
	next := strings.NewReplacer(`"u"`, `"v"`)
	a.says(`{"id":5,"error":{"message":"no active turn to steer"}}`, next.Replace(of("turn/started", `"turn":{"id":"u"}`)), delta("Three."), next.Replace(ends("completed")),
		`{"id":6,"result":{"turn":{"id":"v"}}}`)
	if got := a.transcript(); got != "stop 0: One.\nstop 0: Two.\nstop 0: Three." || !a.events[len(a.events)-1].Settled || a.Steer("too late") != nil {
		t.Errorf("the transcript is %s", got)
	}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	asks := func(id, method, more string) string {
		return `{"method":"item/` + method + `","id":` + id + `,"params":{"threadId":"t","turnId":"u","itemId":"c",` + more + `}}`
	}
	command, change := asks("0", "commandExecution/requestApproval", `"command":"rm -r x"`), asks("1", "fileChange/requestApproval", `"reason":null`)
	ruled := job
	ruled.Ask = []string{entry.WriteFileTool}
	a := begin(t, ruled, "")
	if open := a.sent[0]; !strings.Contains(open, `"approvalPolicy":"untrusted"`) {
		t.Errorf("it opens a thread with %s", open)
	}
	if a.says(command); !strings.Contains(a.last(), `"accept"`) {
		t.Errorf("a command that needs no approval is answered with %s", a.last())
	}
	if a.says(change); !strings.Contains(a.last(), `"error"`) { // nobody knows which change
		t.Errorf("a change of nothing is answered with %s", a.last())
	}
	a.says(item("started", `{"type":"fileChange","id":"c","changes":[{"path":"/x"}]}`), change)
	q := a.events[len(a.events)-1].Ask
	if q == nil || q.Tool != "apply_patch" || q.CallID != "c" || string(q.Arguments) != `{"changes":[{"path":"/x"}]}` || q.Question {
		t.Fatalf("it asks %+v", q)
	}
	// Repeating a question that is still waiting is not a new question.
	if a.says(change); !strings.Contains(a.last(), `"error"`) {
		t.Errorf("Codex gets %s", a.last())
	}
	to := string(a.Answer(*q, harness.Answer{Words: "it is mine"}))
	if steer, no, _ := strings.Cut(to, "\n"); !strings.Contains(steer, "it is mine") || !strings.Contains(no, `"decline"`) {
		t.Errorf("Codex gets %s", to)
	}
	if a.Answer(*q, harness.Answer{Yes: true}) != nil {
		t.Error("a question is answered twice")
	}
	a.says(item("completed", `{"type":"fileChange","id":"c","status":"declined"}`))
	if !strings.HasSuffix(a.transcript(), "result c apply_patch true: A person did not allow this.") {
		t.Errorf("the transcript is %s", a.transcript())
	}
	// A question of the model is a call, whose result is the answer.
	a.says(strings.Replace(asks("2", "tool/requestUserInput", `"questions":[{"id":"q","question":"Which?"}]`), `"c"`, `"d"`, 1))
	q = a.events[len(a.events)-1].Ask
	if q == nil || !q.Question || q.CallID != "d" || !strings.Contains(string(q.Arguments), "Which?") {
		t.Fatalf("it asks %+v", q)
	}
	if to := string(a.Answer(*q, harness.Answer{Yes: true, Words: "the third"})); !strings.Contains(to, `"q":{"answers":["the third"]}`) {
		t.Errorf("Codex gets %s", to)
	}
	if a.says(of("serverRequest/resolved", `"requestId":2`)); !strings.HasSuffix(a.transcript(), "result d request_user_input false: the third") {
		t.Errorf("the transcript is %s", a.transcript())
	}
	// Questions that are open when the turn ends are withdrawn.
	a.says(item("started", `{"type":"fileChange","id":"c","changes":[]}`), change)
	if input, _ := a.Interrupt(); !strings.Contains(string(input), "turn/interrupt") {
		t.Errorf("it is interrupted with %s", input)
	}
	if a.says(ends("interrupted")); a.events[len(a.events)-2].Unask != "1" || !strings.Contains(a.Decide(harness.Exit{}).Failed, "interrupted") {
		t.Errorf("it ends with %+v", a.events[len(a.events)-2:])
	}
}

// TestHostile: a Codex that breaks the protocol never waits, and cannot speak as others.
func TestHostile(t *testing.T) {
	t.Parallel()
	a := begin(t, job, "")
	for _, method := range []string{"item/tool/call", "attestation/generate", "item/commandExecution/requestApproval"} {
		a.sent = nil
		if a.says(`{"id":"x","method":"` + method + `","params":{"threadId":"other","turnId":"u","itemId":"c"}}`); !strings.Contains(a.last(), `"error"`) {
			t.Errorf("%s: Codex gets %s", method, a.last())
		}
	}
	events := len(a.events)
	a.says("[]", "null", "{", `{"id":{},"method":"x"}`, `{"method":"item/completed","params":[]}`, `{"id":3}x`, `{"id":99,"result":{}}`, ends("completed")[:20],
		strings.Replace(delta("lies"), `"t"`, `"other"`, 1), item("started", `{"type":"commandExecution","command":"ls"}`), item("started", `{"type":"userMessage","id":"x","clientId":"arbe-9"}`))
	if len(a.events) != events {
		t.Errorf("it has %+v happen", a.events[events:])
	}
	// Text and open calls are limited. Ids may be reused once their calls have ended.
	for range 10 {
		a.says(delta(strings.Repeat("x", 1<<20)))
	}
	for n := range 1000 {
		a.says(item("started", fmt.Sprintf(`{"type":"commandExecution","id":"c%d","command":"ls"}`, n)))
	}
	var bytes, calls int
	for _, e := range a.events {
		if p, ok := e.Message.(entry.PiAssistant); ok {
			bytes, calls = bytes+len(p.Text()), calls+len(p.Calls())
		}
	}
	if bytes > 5<<20 || calls != harness.MaxCalls {
		t.Errorf("%d bytes and %d calls are kept", bytes, calls)
	}
	// Overlong lines leave nothing waiting.
	a.sent = nil
	if a.hears(a.Line([]byte(`{"method":"item/commandExecution/requestApproval","id":7,"params":{"kind":"`), 1<<20)); !strings.Contains(a.last(), `"id":7`) {
		t.Errorf("Codex gets %s", a.last())
	}
	a.hears(a.Line([]byte(`{"method":"item/completed","params":{"item":{"type":"commandExecution","id":"c2","command":"`), 1<<20))
	if !strings.Contains(a.transcript(), "result c2 exec_command false: [the result has more than") {
		t.Error("the call with the long result is open")
	}
	a.hears(a.Line([]byte(`{"method":"turn/completed","params":{"threadId":"`), 1<<20))
	if o := a.Decide(harness.Exit{}); !strings.Contains(o.Failed, "too long") || !a.events[len(a.events)-1].Settled {
		t.Errorf("the outcome is %+v", o)
	}
}
