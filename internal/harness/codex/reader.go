package codex

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Read reads the events of codex exec --json.
func (Harness) Read(job harness.Job, _, _ string) harness.Reader {
	return &reader{job: job, open: map[string]bool{}}
}

type reader struct {
	job   harness.Job
	tally harness.Tally
	// answer is the text and thoughts since the last message. The next tool call, or the end, completes it.
	answer []entry.PiBlock
	room   harness.Room
	open   map[string]bool
	// failed is the reason why the turn failed, and ended reports whether it has ended.
	failed string
	ended  bool
}

type line struct {
	Type     string `json:"type"`
	ThreadID string `json:"thread_id"`
	Message  string `json:"message"`
	Item     item   `json:"item"`
	Error    struct {
		Message string `json:"message"`
	} `json:"error"`
	Usage struct {
		Input      int64 `json:"input_tokens"`
		Cached     int64 `json:"cached_input_tokens"`
		CacheWrite int64 `json:"cache_write_input_tokens"`
		Output     int64 `json:"output_tokens"`
	} `json:"usage"`
}

type item struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Command  string          `json:"command"`
	Output   string          `json:"aggregated_output"`
	ExitCode *int            `json:"exit_code"`
	Status   string          `json:"status"`
	Server   string          `json:"server"`
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"arguments"`
	Result   json.RawMessage `json:"result"`
	Error    json.RawMessage `json:"error"`
	Changes  json.RawMessage `json:"changes"`
	Query    string          `json:"query"`
}

// Line reads an event.
func (r *reader) Line(text []byte, cut int64) []harness.Event {
	var l line
	if cut > 0 {
		return r.long(text, cut)
	}
	if json.Unmarshal(text, &l) != nil {
		return nil // not from Codex
	}
	switch l.Type {
	case "thread.started":
		return []harness.Event{{Session: l.ThreadID}}
	case "item.started":
		return r.begin(l.Item)
	case "item.completed":
		return r.complete(l.Item)
	case "error": // a notice; only a failed turn is final
		return []harness.Event{{Waiting: entry.OneLine(l.Message, 300)}}
	case "turn.failed":
		r.failed = l.Error.Message
		if r.failed == "" {
			r.failed = "the turn failed"
		}
		stop := entry.PiError
		if strings.Contains(r.failed, "max_output_tokens") {
			stop, r.failed = entry.PiLength, harness.CutLength
		}
		return r.end(stop, entry.PiUsage{})
	case "turn.completed":
		u := l.Usage
		usage := entry.PiUsage{Input: max(u.Input-u.Cached-u.CacheWrite, 0), CacheRead: u.Cached, CacheWrite: u.CacheWrite, Output: u.Output}
		usage.TotalTokens = usage.Input + usage.CacheRead + usage.CacheWrite + usage.Output
		return r.end(entry.PiStopped, usage)
	}
	return nil
}

// long ends a tool call whose line is too long, so that it has a result.
func (r *reader) long(text []byte, cut int64) []harness.Event {
	for id := range r.open {
		if strings.Contains(string(text[:min(len(text), 4<<10)]), `"`+id+`"`) {
			note := fmt.Sprintf("[the result has more than %s and is not kept]", entry.FileSize(int64(len(text))+cut))
			return r.result(item{ID: id}, note, false)
		}
	}
	return nil
}

// end completes the last answer.
func (r *reader) end(stop entry.PiStop, usage entry.PiUsage) []harness.Event {
	r.ended = true
	a := r.take(stop)
	a.Usage = usage
	if stop == entry.PiError {
		a.ErrorMessage = r.failed
	}
	r.tally.Add(a)
	if len(a.Content) == 0 && stop != entry.PiError && usage.TotalTokens == 0 {
		return nil
	}
	return []harness.Event{{Message: a}}
}

// take returns the pending text as an answer.
func (r *reader) take(stop entry.PiStop) entry.PiAssistant {
	a := entry.PiAssistant{Harness: name, Content: r.answer, API: "openai-responses", Provider: r.job.Model.Provider, Model: r.job.Model.ID, StopReason: stop}
	r.answer, r.room = nil, harness.Room{}
	return a
}

// begin reads the start of a tool.
func (r *reader) begin(i item) []harness.Event {
	tool, arguments := i.call()
	if tool == "" || i.ID == "" || r.open[i.ID] || len(i.ID) > harness.MaxID || len(r.open) >= harness.MaxCalls {
		return nil
	}
	r.open[i.ID] = true
	a := r.take(entry.PiToolUse)
	a.Content = append(a.Content, entry.PiBlock{Type: entry.PiCallBlock, ID: i.ID, Name: tool, Arguments: arguments})
	r.tally.Add(a)
	return []harness.Event{{Message: a}, {Tool: tool}}
}

// call returns the tool of an item and its arguments; empty if the item is not a tool's.
func (i item) call() (tool string, arguments json.RawMessage) {
	var fields any
	switch i.Type {
	case "command_execution":
		tool, fields = "exec_command", map[string]string{"cmd": i.Command}
	case "file_change":
		tool, fields = "apply_patch", map[string]json.RawMessage{"changes": i.Changes}
		if len(i.Changes) == 0 {
			fields = struct{}{}
		}
	case "mcp_tool_call":
		if tool = i.Server + "." + i.Tool; len(i.Args) > 0 && i.Args[0] == '{' {
			return tool, i.Args
		}
		fields = struct{}{}
	case "web_search":
		tool, fields = "web_search", map[string]string{"query": i.Query}
	default:
		return "", nil
	}
	arguments, err := json.Marshal(fields)
	if err != nil {
		arguments = json.RawMessage("{}")
	}
	return tool, arguments
}

func (r *reader) complete(i item) []harness.Event {
	switch i.Type {
	case "agent_message":
		return r.say("text", entry.PiText(r.room.Piece(i.Text)))
	case "reasoning":
		return r.say("thinking", entry.PiBlock{Type: entry.PiThinkingBlock, Thinking: r.room.Piece(i.Text)})
	}
	if tool, _ := i.call(); tool == "" {
		return nil
	}
	events := r.begin(i) // some items have no start event
	text := i.Output
	for _, more := range []json.RawMessage{i.Result, i.Error} {
		if len(more) > 0 && string(more) != "null" {
			text += string(more)
		}
	}
	failed := i.Status == "failed" || i.ExitCode != nil && *i.ExitCode != 0
	if i.ExitCode != nil && *i.ExitCode != 0 {
		text += fmt.Sprintf("\n[exit code %d]", *i.ExitCode)
	}
	return append(events, r.result(i, text, failed)...)
}

// say adds a block to the answer.
func (r *reader) say(kind string, b entry.PiBlock) []harness.Event {
	if b.Text+b.Thinking == "" || !r.room.Block() {
		return nil
	}
	r.answer = append(r.answer, b)
	return []harness.Event{{Chunk: &entry.PiChunk{Kind: kind, Block: len(r.answer) - 1, Text: b.Text + b.Thinking}}}
}

func (r *reader) result(i item, text string, failed bool) []harness.Event {
	delete(r.open, i.ID)
	tool, _ := i.call()
	return []harness.Event{{Message: entry.PiToolResult{Harness: name, ToolCallID: i.ID, ToolName: tool, Content: []entry.PiBlock{entry.PiText(text)}, IsError: failed}}, {ToolDone: true}}
}

// Steer returns nil: codex exec takes one prompt.
func (r *reader) Steer(string) []byte { return nil }

// Answer returns nil: codex exec asks nobody.
func (r *reader) Answer(harness.Ask, harness.Answer) []byte { return nil }

// Interrupt returns the signal of Ctrl-C, on which Codex saves its state.
func (r *reader) Interrupt() ([]byte, syscall.Signal) { return nil, syscall.SIGINT }

// Decide judges by the end of the turn.
func (r *reader) Decide(exit harness.Exit) harness.Outcome {
	if len(r.answer) > 0 && !r.ended { // it ended in the middle of an answer
		a := r.take(entry.PiToolUse)
		r.tally.Add(a)
		return r.tally.Decide(r.failed, exit).Cut(a)
	}
	return r.tally.Decide(r.failed, exit)
}
