package claude

import (
	"encoding/json"
	"fmt"
	"syscall"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Read reads the lines of stream-json.
func (Harness) Read(job harness.Job, _, _ string) harness.Reader {
	return &reader{job: job, waiting: 1}
}

type reader struct {
	job   harness.Job
	tally harness.Tally
	// now is the current answer. Its blocks arrive one per line.
	now  *entry.PiAssistant
	room harness.Room
	id   string
	call map[int]string
	// waiting counts prompts that were sent but not begun. Claude Code reports the beginning by repeating the prompt.
	waiting int
	// failed is the reason why the session failed. ended reports that the last line has arrived.
	failed string
	ended  bool
}

// Line reads a line. It skips the work of subagents: the transcript has the call that starts one, and its result.
func (r *reader) Line(text []byte, cut int64) []harness.Event {
	if cut > 0 {
		if result, ok := harness.LongResult(name, text, cut); ok {
			return []harness.Event{{Message: result}, {ToolDone: true}}
		}
		return nil
	}
	var l line
	if json.Unmarshal(text, &l) != nil || l.Parent != "" {
		return nil
	}
	switch l.Type {
	case "system":
		return r.system(l)
	case "stream_event":
		return r.event(l.Event)
	case "assistant":
		return r.assistant(l.Message)
	case "user":
		return r.user(l)
	case "control_request":
		return r.ask(l.RequestID, l.Request)
	case "control_cancel_request":
		return []harness.Event{{Unask: l.RequestID}}
	case "result":
		return r.end(l)
	}
	return nil
}

// user reads a user's message: one of ours that Claude Code repeats, or results.
func (r *reader) user(l line) []harness.Event {
	if l.Replay {
		r.waiting = max(r.waiting-1, 0)
		r.tally.Fresh()
		return nil
	}
	return r.results(l.Message)
}

func (r *reader) system(l line) []harness.Event {
	switch l.Subtype {
	case "init":
		return []harness.Event{{Session: l.Session}}
	case "api_retry":
		return []harness.Event{{Waiting: fmt.Sprintf("%s; asking again in %d s (%d of %d)", entry.OneLine(l.Error, 200), int64(l.DelayMS+999)/1000, l.Attempt, l.Max)}}
	}
	return nil
}

// begin begins an answer, unless it is the current one.
func (r *reader) begin(id, model string) []harness.Event {
	if r.now != nil && r.id == id {
		return nil
	}
	events := r.flush()
	r.id, r.call, r.room = id, map[int]string{}, harness.Room{}
	r.now = &entry.PiAssistant{Harness: name, API: "anthropic-messages", Provider: r.job.Model.Provider, Model: model, ResponseID: id}
	return events
}

// flush ends the current answer.
func (r *reader) flush() []harness.Event {
	a := r.now
	if r.now = nil; a == nil {
		return nil
	}
	if len(a.Calls()) > 0 && a.StopReason != entry.PiLength {
		a.StopReason = entry.PiToolUse
	} else if a.StopReason == "" {
		a.StopReason = entry.PiStopped
	}
	u := &a.Usage
	u.TotalTokens = u.Input + u.Output + u.CacheRead + u.CacheWrite
	r.tally.Add(*a)
	if len(a.Content) == 0 && u.TotalTokens == 0 {
		return nil
	}
	events := []harness.Event{{Message: *a}}
	for _, c := range a.Calls() {
		events = append(events, harness.Event{Tool: c.Name})
	}
	return events
}

func (r *reader) event(e event) []harness.Event {
	switch e.Type {
	case "message_start":
		events := r.begin(e.Message.ID, e.Message.Model)
		r.count(e.Message.Usage)
		return events
	case "message_delta":
		r.count(e.Usage)
		if r.now != nil && e.Delta.StopReason == "max_tokens" {
			r.now.StopReason = entry.PiLength
		}
	case "message_stop":
		return r.flush()
	case "content_block_start":
		if e.Block.Type == "tool_use" && r.call != nil && len(r.call) < 200 {
			r.call[e.Index] = e.Block.ID
			return []harness.Event{{Chunk: &entry.PiChunk{Kind: "call_start", Block: e.Index, CallID: e.Block.ID, Name: e.Block.Name}}}
		}
	case "content_block_delta":
		return r.delta(e)
	}
	return nil
}

// delta reads a piece of a block.
func (r *reader) delta(e event) []harness.Event {
	c := entry.PiChunk{Block: e.Index}
	switch e.Delta.Type {
	case "text_delta":
		c.Kind, c.Text = "text", e.Delta.Text
	case "thinking_delta":
		c.Kind, c.Text = "thinking", e.Delta.Thinking
	case "input_json_delta":
		c.Kind, c.Text, c.CallID = "call_args", e.Delta.JSON, r.call[e.Index]
	default:
		return nil
	}
	return []harness.Event{{Chunk: &c}}
}

// count takes the latest token counts of the answer.
func (r *reader) count(u usage) {
	if r.now == nil {
		return
	}
	to := &r.now.Usage
	to.Input, to.Output = max(to.Input, u.Input), max(to.Output, u.Output)
	to.CacheRead, to.CacheWrite = max(to.CacheRead, u.CacheRead), max(to.CacheWrite, u.CacheWrite)
}

// assistant reads a block of an answer, or text that Claude Code writes in the model's name if there is no answer.
func (r *reader) assistant(m message) []harness.Event {
	if m.Model == "<synthetic>" {
		events := r.flush()
		text := ""
		for _, b := range m.Content {
			text += b.Text
		}
		a := entry.PiAssistant{Harness: name, API: "anthropic-messages", Provider: r.job.Model.Provider, Model: r.job.Model.ID, StopReason: entry.PiError, ErrorMessage: text}
		r.tally.Add(a)
		return append(events, harness.Event{Message: a})
	}
	events := r.begin(m.ID, m.Model)
	r.count(m.Usage)
	for _, b := range m.Content {
		if kept, ok := r.keep(b); ok && r.room.Block() {
			r.now.Content = append(r.now.Content, kept)
		}
	}
	return events
}

// keep returns a block of the answer as the transcript has it.
func (r *reader) keep(b block) (kept entry.PiBlock, ok bool) {
	switch b.Type {
	case "text":
		return entry.PiText(r.room.Piece(b.Text)), true
	case "thinking":
		kept = entry.PiBlock{Type: entry.PiThinkingBlock, Thinking: r.room.Piece(b.Thinking)}
		if kept.Thinking == b.Thinking { // the signature is only valid for the whole text
			kept.ThinkingSignature = r.whole(b.Signature)
		}
		return kept, true
	case "redacted_thinking":
		return entry.PiBlock{Type: entry.PiThinkingBlock, ThinkingSignature: r.whole(b.Data), Redacted: true}, true
	case "tool_use":
		return entry.PiBlock{Type: entry.PiCallBlock, ID: b.ID, Name: b.Name, Arguments: r.room.Arguments(b.Input)}, len(b.ID) <= harness.MaxID
	}
	return kept, false
}

// whole returns a text if there is room for all of it.
func (r *reader) whole(text string) string {
	if kept := r.room.Piece(text); kept == text {
		return text
	}
	return ""
}

// results reads the results of tools.
func (r *reader) results(m message) []harness.Event {
	events := r.flush()
	for _, b := range m.Content {
		if b.Type != "tool_result" || b.CallID == "" {
			continue
		}
		t := entry.PiToolResult{Harness: name, ToolCallID: b.CallID, IsError: b.IsError}
		for _, c := range b.Content {
			switch c.Type {
			case "text":
				t.Content = append(t.Content, entry.PiText(c.Text))
			case "image":
				t.Content = append(t.Content, entry.PiText("[an image is not kept]"))
			}
		}
		events = append(events, harness.Event{Message: t}, harness.Event{ToolDone: true})
	}
	return events
}

// end reads the last line. Its is_error distinguishes failure from success; its subtype does not.
func (r *reader) end(l line) []harness.Event {
	events := r.flush()
	r.ended, r.failed = true, ""
	if l.IsError {
		if r.failed = l.Result; r.failed == "" {
			r.failed = "Claude Code failed: " + l.Subtype + " " + l.Terminal
		}
	}
	if r.waiting > 0 && !l.IsError {
		return events // it goes on to the next prompt
	}
	return append(events, harness.Event{Settled: true})
}

// Steer gives Claude Code another prompt, which it begins after the running tools.
func (r *reader) Steer(prompt string) []byte {
	r.waiting++
	return says(prompt)
}

// Interrupt ends the current work. Work done so far is kept.
func (r *reader) Interrupt() ([]byte, syscall.Signal) {
	r.waiting = 0
	return input(object{"type": "control_request", "request_id": "interrupt", "request": object{"subtype": "interrupt"}}), 0
}

// Decide judges by the last line. Without one, the session was interrupted.
func (r *reader) Decide(exit harness.Exit) harness.Outcome {
	var cut entry.PiAssistant
	if r.now != nil {
		cut = *r.now
		_ = r.flush()
	}
	failed := r.failed
	if failed == "" && !r.ended && exit.Code == 0 {
		failed = "the agent ended without its result"
	}
	return r.tally.Decide(failed, exit).Cut(cut)
}
