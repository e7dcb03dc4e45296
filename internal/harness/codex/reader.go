package codex

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Read reads the messages of codex app-server.
func (Harness) Read(job harness.Job, session, prompt string) harness.Reader {
	return &reader{job: job, thread: session, resumes: session != "", awaited: firstID, method: "initialize",
		said: []saying{{text: prompt}}, calls: map[string]string{}, asks: map[string]asking{}}
}

type reader struct {
	job   harness.Job
	tally harness.Tally
	// thread names the conversation, turn the current turn, which is empty until it has begun, and over the last one that has
	// ended. resumes means that the thread has earlier turns.
	thread, turn, over string
	resumes            bool
	// awaited is the id of the request whose answer we wait for, and method is its method. sent counts the requests after the
	// first.
	awaited int64
	method  string
	sent    int64
	// said are prompts of which Codex has not taken note. They are sent again with the next turn.
	said []saying

	// now is the current answer. part names the item of its last block, and whole reports that the model has ended it.
	now   []entry.PiBlock
	part  string
	whole bool
	room  harness.Room
	// usage is what no message has counted yet, total is Codex's count of the thread, and counts reports that it is known.
	usage  entry.PiUsage
	total  tokens
	counts bool
	// calls are the tools of the calls without a result, and last is the arguments of the last call.
	calls map[string]string
	last  call
	asks  map[string]asking

	// failed is the reason why the turn failed. done reports that all turns have ended, and stopped that it was interrupted.
	failed  string
	done    bool
	stopped bool
}

// saying is a prompt. id is empty until it was sent to a turn that runs.
type saying struct{ id, text string }

// asking is a question that waits for its answer. said is the answer to a question of the model.
type asking struct {
	id       json.RawMessage
	call     string
	question bool
	said     string
}

// Line reads a message.
func (r *reader) Line(text []byte, cut int64) []harness.Event {
	if cut > 0 {
		return r.long(text, cut)
	}
	var m message
	if json.Unmarshal(text, &m) != nil {
		return nil // not part of the protocol
	}
	switch {
	case m.Method == "":
		return r.answered(m)
	case isID(m.ID):
		return r.asked(m)
	case r.thread == "":
		return nil
	case m.Params.ThreadID != r.thread: // a subagent's; the transcript has its call and its result
		if m.Method == "thread/tokenUsage/updated" {
			m.Params.Usage.Last.add(&r.usage)
		}
		return nil
	}
	return r.notified(m.Method, m.Params)
}

func inputs(input []byte) []harness.Event { return []harness.Event{{Input: input}} }

// long handles a message that is too long to decode, so that nothing keeps waiting for it.
func (r *reader) long(text []byte, cut int64) []harness.Event {
	m := headOf.FindSubmatch(text[:min(len(text), 1<<10)])
	if m == nil {
		return nil
	}
	id, open := string(m[4]), false
	if string(m[2]) == "item/completed" {
		_, open = r.calls[id]
	}
	switch {
	case len(m[3]) > 0:
		return inputs(refuse(m[3], badParams, "this is too long"))
	case r.awaited > 0 && string(m[1]) == strconv.FormatInt(r.awaited, 10), string(m[2]) == "turn/completed":
		return r.fail("a message of Codex was too long to be read")
	case open:
		return r.result(id, fmt.Sprintf("[the result has more than %s and is not kept]", entry.FileSize(int64(len(text))+cut)), false)
	}
	return nil
}

// request sends a request.
func (r *reader) request(method string, params object) []byte {
	r.sent++
	return request(firstID+r.sent, method, params)
}

// await sends a request whose answer is read.
func (r *reader) await(method string, params object) []byte {
	input := r.request(method, params)
	r.awaited, r.method = firstID+r.sent, method
	return input
}

// answered reads the answer to a request.
func (r *reader) answered(m message) []harness.Event {
	if r.awaited == 0 || string(m.ID) != strconv.FormatInt(r.awaited, 10) || r.done {
		return nil
	}
	method := r.method
	r.awaited = 0
	if m.Error != nil {
		return r.fail(method + ": " + m.Error.String())
	}
	switch method {
	case "initialize":
		return inputs(append(send(object{"method": "initialized"}), r.open()...))
	case "turn/start":
		return r.turned(m.Result.Turn.ID)
	}
	if id := m.Result.Thread.ID; id == "" || len(id) > harness.MaxID || r.resumes && id != r.thread {
		return r.fail("Codex opened no thread")
	}
	r.thread = m.Result.Thread.ID
	return inputs(r.begin())
}

// open begins or continues the conversation. A thread remembers its settings, so they are given again.
func (r *reader) open() []byte {
	settings := object{"cwd": r.job.Dir, "model": r.job.Model.ID, "modelProvider": "arbe", "sandbox": "danger-full-access", "approvalPolicy": "never"}
	if len(r.job.Ask) > 0 {
		settings["approvalPolicy"] = "untrusted" // it asks about every command and every change
	}
	if !r.resumes {
		return r.await("thread/start", settings)
	}
	settings["threadId"], settings["excludeTurns"] = r.thread, true
	return r.await("thread/resume", settings)
}

// begin begins a turn with all that was said.
func (r *reader) begin() []byte {
	var prompt []object
	for _, s := range r.said {
		prompt = append(prompt, inputOf(s.text))
	}
	r.said = nil
	return r.await("turn/start", object{"threadId": r.thread, "input": prompt})
}

// turned reads that a turn has begun.
func (r *reader) turned(id string) []harness.Event {
	switch {
	case id == "" || len(id) > harness.MaxID:
		return r.fail("Codex began no turn")
	case id == r.turn || id == r.over:
		return nil
	}
	r.turn = id
	if input := r.steer(); len(input) > 0 {
		return inputs(input)
	}
	return nil
}

// inputOf returns a prompt as Codex takes it, without the middle of one that is too long for it.
func inputOf(text string) object {
	if len(text) > maxPrompt {
		text = harness.Middle(text, maxPrompt-200)
	}
	return object{"type": "text", "text": text}
}

// fail stops a Codex that cannot work.
func (r *reader) fail(why string) []harness.Event {
	r.failed, r.done = why, true
	return append(r.unaskAll(), harness.Event{Settled: true})
}

// notified reads an event of the thread.
func (r *reader) notified(method string, p params) []harness.Event {
	switch method {
	case "turn/started":
		return r.started(p)
	case "turn/completed":
		return r.ended(p.Turn)
	case "thread/tokenUsage/updated":
		r.count(p)
	case "error": // the end of the turn says why it failed
		if p.WillRetry {
			return r.again(p.Error.String())
		}
	case "serverRequest/resolved":
		return r.resolved(string(p.RequestID))
	case "item/started":
		return r.starts(p.Item)
	case "item/completed":
		return r.completes(p.Item)
	case "item/agentMessage/delta":
		return r.say(entry.PiTextBlock, p.ItemID, p.Delta)
	case "item/reasoning/summaryPartAdded":
		if p.SummaryIndex > 0 {
			return r.say(entry.PiThinkingBlock, p.ItemID, "\n\n")
		}
	case "item/reasoning/summaryTextDelta", "item/reasoning/textDelta":
		return r.say(entry.PiThinkingBlock, p.ItemID, p.Delta)
	}
	return nil
}

// started reads the beginning of a turn.
func (r *reader) started(p params) []harness.Event {
	events := []harness.Event{{Session: r.thread}} // it is in a file now
	if r.method == "turn/start" && r.turn == "" && !r.done {
		events = append(events, r.turned(p.Turn.ID)...) // before the answer to our request
	}
	return events
}

// again reads that Codex asks its model again. What the model has written so far stays.
func (r *reader) again(why string) (events []harness.Event) {
	if len(r.now) > 0 {
		r.failed = why
		events = r.flush(entry.PiError)
		r.failed = ""
	}
	return append(events, harness.Event{Waiting: entry.OneLine(why, 300)})
}

// count adds the tokens of a model call to the usage. They are known once its tools have ended, so the next message has them.
// A thread that is resumed may begin with its earlier count.
func (r *reader) count(p params) {
	if !r.counts && r.resumes {
		r.total = p.Usage.Total.minus(p.Usage.Last)
	}
	r.counts = true
	if r.turn != "" && p.TurnID == r.turn {
		p.Usage.Total.minus(r.total).add(&r.usage)
		r.whole = len(r.now) > 0
	}
	r.total = p.Usage.Total
}

// ended reads the end of a turn.
func (r *reader) ended(t turn) []harness.Event {
	if r.turn == "" || t.ID != r.turn || r.done {
		return nil
	}
	stop := entry.PiStopped
	switch r.turn, r.over, r.failed = "", t.ID, ""; {
	case t.Status == "interrupted":
		stop = entry.PiAborted
	case t.Status == "failed" && strings.Contains(t.Error.Message, "max_output_tokens"):
		stop, r.failed = entry.PiLength, harness.CutLength
	case t.Status != "completed":
		stop, r.failed = entry.PiError, t.Error.String()
	}
	events := append(r.unaskAll(), r.flush(stop)...)
	if len(r.said) > 0 && stop == entry.PiStopped && !r.stopped {
		r.tally.Fresh()
		return append(events, inputs(r.begin())...)
	}
	r.done = true
	return append(events, harness.Event{Settled: true})
}

// Steer gives the current turn another prompt.
func (r *reader) Steer(prompt string) []byte {
	if r.done || r.stopped {
		return nil
	}
	r.said = append(r.said, saying{text: prompt})
	return r.steer()
}

// steer sends what was said to the turn that runs; nothing yet if there is none. The turn may end before it gets it.
func (r *reader) steer() []byte {
	input := []byte{}
	for i := range r.said {
		if s := &r.said[i]; s.id == "" && r.turn != "" {
			s.id = "arbe-" + strconv.FormatInt(r.sent, 10)
			input = append(input, r.request("turn/steer", object{"threadId": r.thread, "expectedTurnId": r.turn, "clientUserMessageId": s.id, "input": []object{inputOf(s.text)}})...)
		}
	}
	return input
}

// Interrupt ends the turn. Work done so far is kept.
func (r *reader) Interrupt() ([]byte, syscall.Signal) {
	r.stopped = true
	if r.turn == "" {
		return nil, syscall.SIGTERM
	}
	return r.request("turn/interrupt", object{"threadId": r.thread, "turnId": r.turn}), 0
}

// Decide judges by the end of the last turn. The exit status of the process matters only without one.
func (r *reader) Decide(exit harness.Exit) harness.Outcome {
	if r.done {
		return r.tally.Decide(r.failed, harness.Exit{})
	}
	cut := r.take(entry.PiToolUse) // it ended in the middle of an answer
	if len(cut.Content) > 0 {
		r.tally.Add(cut)
	}
	switch {
	case r.stopped:
		r.failed = "the agent was interrupted"
	case exit.Code == 0:
		r.failed = "the agent ended in the middle of its work"
	}
	return r.tally.Decide(r.failed, exit).Cut(cut)
}
