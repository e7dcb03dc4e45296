package pi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"syscall"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Read reads the events of RPC mode.
func (Harness) Read(job harness.Job, _, _ string) harness.Reader {
	return &reader{job: job, waiting: 1}
}

type reader struct {
	job   harness.Job
	tally harness.Tally
	// waiting counts prompts that are sent but not yet accepted. settled reports that pi has nothing else to do.
	waiting int
	settled bool
	// failed is a reason for failure other than an answer's.
	failed string
	// held is an answer that failed. It becomes a message only if pi does not ask again.
	held *entry.PiAssistant
	// calls holds the ids of the calls in the current answer, by block.
	calls map[int]string
}

// line has the fields of all events.
type line struct {
	Type    string          `json:"type"`
	Message json.RawMessage `json:"message"`
	Update  *struct {
		Type   string `json:"type"`
		Index  int    `json:"contentIndex"`
		Delta  string `json:"delta"`
		ID     string `json:"id"`
		Tool   string `json:"toolName"`
		Called *struct {
			ID string `json:"id"`
		} `json:"toolCall"`
	} `json:"assistantMessageEvent"`
	ToolName string `json:"toolName"`

	// Of a response.
	Command string `json:"command"`
	Success bool   `json:"success"`
	Error   string `json:"error"`

	// Of retries and compactions.
	DelayMS      int64  `json:"delayMs"`
	ErrorMessage string `json:"errorMessage"`
	Result       *struct {
		Summary      string `json:"summary"`
		TokensBefore int64  `json:"tokensBefore"`
	} `json:"result"`

	// Of a question of an extension.
	ID     string `json:"id"`
	Method string `json:"method"`
}

// Line reads an event.
func (r *reader) Line(text []byte, cut int64) []harness.Event {
	if cut > 0 {
		return r.long(text, cut)
	}
	var l line
	if json.Unmarshal(text, &l) != nil {
		return nil // not from pi
	}
	switch l.Type {
	case "response":
		return r.response(l)
	case "agent_start":
		r.settled = false
	case "agent_settled":
		return r.settle(true)
	case "message_update":
		return r.chunk(l)
	case "message_end":
		return r.message(l.Message)
	case "tool_execution_start":
		return []harness.Event{{Tool: l.ToolName}}
	case "tool_execution_end":
		return []harness.Event{{ToolDone: true}}
	case "auto_retry_start", "summarization_retry_scheduled":
		r.held = nil
		return []harness.Event{{Waiting: fmt.Sprintf("%s; asking again in %d s", entry.OneLine(l.ErrorMessage, 200), (l.DelayMS+999)/1000)}}
	case "compaction_end":
		return r.compaction(l)
	case "extension_ui_request":
		return r.ask(l)
	}
	return nil
}

// long reads the beginning of a line that is too long. Without a result, the model's call would wait forever. The lines that
// repeat a whole run say nothing new.
func (r *reader) long(text []byte, cut int64) []harness.Event {
	rest, isEnd := bytes.CutPrefix(text, []byte(`{"type":"message_end","message":{"role":`))
	switch {
	case isEnd && bytes.HasPrefix(rest, []byte(`"toolResult"`)):
		if result, ok := harness.LongResult(name, text, cut); ok {
			return []harness.Event{{Message: result}}
		}
	case isEnd && bytes.HasPrefix(rest, []byte(`"assistant"`)):
		r.failed = "an answer of the model was too long to be kept"
	}
	return nil
}

// response reads whether pi accepted a command. pi acknowledges a prompt before it works on it.
func (r *reader) response(l line) []harness.Event {
	if l.Command != "prompt" && l.Command != "parse" {
		return nil
	}
	r.waiting = max(r.waiting-1, 0)
	if !l.Success {
		if r.failed = l.Error; r.failed == "" {
			r.failed = "pi refused the prompt"
		}
		return r.settle(!r.busy())
	}
	return nil
}

// busy reports whether pi is known to be working.
func (r *reader) busy() bool { return !r.settled && r.failed == "" }

func (r *reader) settle(settled bool) []harness.Event {
	var events []harness.Event
	if r.settled = settled; settled && r.held != nil {
		events = append(events, harness.Event{Message: *r.held})
		r.held = nil
	}
	if settled && r.waiting == 0 {
		events = append(events, harness.Event{Settled: true})
	}
	return events
}

func (r *reader) message(text json.RawMessage) []harness.Event {
	var head struct {
		Role string `json:"role"`
	}
	if json.Unmarshal(text, &head) != nil {
		return nil
	}
	switch head.Role {
	case "assistant":
		return r.answer(text)
	case "toolResult":
		var t entry.PiToolResult
		if json.Unmarshal(text, &t) != nil || t.ToolCallID == "" {
			return nil
		}
		t.Harness, t.Turn, t.Details = name, "", nil
		return []harness.Event{{Message: t}}
	case "user":
		r.tally.Fresh()
	}
	return nil
}

// answer reads an answer of the model.
func (r *reader) answer(text json.RawMessage) []harness.Event {
	var a entry.PiAssistant
	if json.Unmarshal(text, &a) != nil {
		r.failed = "pi wrote an answer that arbe cannot read"
		return nil
	}
	a.Harness, a.Turn = name, ""
	a.Provider = r.job.Model.Provider
	if a.StopReason == "" {
		a.StopReason = entry.PiStopped
	}
	if c := a.Usage.Cost; c != nil && c.Total == 0 {
		a.Usage.Cost = nil // pi has no prices for models that it does not know
	}
	r.tally.Add(a)
	var events []harness.Event
	if r.held != nil && len(r.held.Content) > 0 {
		events = append(events, harness.Event{Message: *r.held})
	}
	if r.held = nil; a.StopReason == entry.PiError {
		r.held = &a
		return events
	}
	return append(events, harness.Event{Message: a})
}

// chunkKinds maps pi's names for chunks to kinds.
var chunkKinds = map[string]string{
	"text_delta": "text", "thinking_delta": "thinking", "toolcall_start": "call_start", "toolcall_delta": "call_args", "toolcall_end": "call_end",
}

func (r *reader) chunk(l line) []harness.Event {
	if l.Update == nil || chunkKinds[l.Update.Type] == "" || l.Update.Index < 0 {
		return nil
	}
	u := l.Update
	c := entry.PiChunk{Kind: chunkKinds[u.Type], Block: u.Index, Text: u.Delta}
	switch u.Type {
	case "toolcall_start":
		if r.calls == nil || len(r.calls) > 100 {
			r.calls = map[int]string{}
		}
		if len(u.ID) <= harness.MaxID {
			r.calls[u.Index] = u.ID
		}
		c.CallID, c.Name = u.ID, u.Tool
	case "toolcall_delta", "toolcall_end":
		c.CallID = r.calls[u.Index]
	}
	return []harness.Event{{Chunk: &c}}
}

func (r *reader) compaction(l line) []harness.Event {
	if l.Result == nil || l.Result.Summary == "" {
		if l.ErrorMessage != "" {
			r.failed = l.ErrorMessage
		}
		return nil
	}
	return []harness.Event{{Message: entry.PiCompaction{Harness: name, Summary: l.Result.Summary, TokensBefore: l.Result.TokensBefore}}}
}

// ask declines a question. No extension is loaded that could ask one, but an unanswered question would wait forever.
func (r *reader) ask(l line) []harness.Event {
	switch l.Method {
	case "select", "confirm", "input", "editor":
		answer, err := json.Marshal(object{"type": "extension_ui_response", "id": l.ID, "cancelled": true})
		if err != nil {
			return nil
		}
		return []harness.Event{{Input: append(answer, '\n')}}
	}
	return nil
}

// Steer returns the line that gives pi another prompt.
func (r *reader) Steer(prompt string) []byte {
	r.waiting++
	return command("prompt", prompt)
}

// Answer returns nil: pi has no permissions, and no extension is loaded that could ask.
func (r *reader) Answer(harness.Ask, harness.Answer) []byte { return nil }

// Interrupt aborts the current work.
func (r *reader) Interrupt() ([]byte, syscall.Signal) { return command("abort", ""), 0 }

// Decide judges by the last answer, because pi's exit status says nothing in RPC mode.
func (r *reader) Decide(exit harness.Exit) harness.Outcome {
	o := r.tally.Decide(r.failed, exit)
	if r.held != nil { // pi ended while it was about to ask again
		o = o.Cut(*r.held)
	}
	return o
}
