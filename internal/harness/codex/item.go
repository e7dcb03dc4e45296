package codex

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// This file reads the items of a turn.

// starts reads the start of an item.
func (r *reader) starts(i item) []harness.Event {
	switch i.Type {
	case "userMessage":
		return r.heard(i.ClientID)
	case "contextCompaction":
		return []harness.Event{{Waiting: "its conversation is too long; making a summary"}}
	}
	return r.calling(i.call())
}

// heard reads that Codex has taken note of a prompt.
func (r *reader) heard(id string) []harness.Event {
	at := slices.IndexFunc(r.said, func(s saying) bool { return s.id != "" && s.id == id })
	if at < 0 {
		return nil
	}
	r.said = slices.Delete(r.said, at, at+1)
	events := r.parted(true)
	r.tally.Fresh()
	return events
}

// completes reads the end of an item.
func (r *reader) completes(i item) []harness.Event {
	switch i.Type {
	case "agentMessage":
		return r.say(entry.PiTextBlock, i.ID, r.rest(entry.PiTextBlock, i.ID, i.Text))
	case "reasoning":
		return r.say(entry.PiThinkingBlock, i.ID, r.rest(entry.PiThinkingBlock, i.ID, strings.Join(i.Summary, "\n\n")))
	}
	c := i.call()
	if c.tool == "" {
		return nil
	}
	events := r.calling(c) // some items have no start
	if _, open := r.calls[i.ID]; !open {
		return events
	}
	text := i.Output
	for _, more := range []json.RawMessage{i.Result, i.Error, i.Agents} {
		if len(more) > 0 && string(more) != "null" {
			text += string(more)
		}
	}
	failed := i.Status == "failed" || i.Status == "declined" || i.ExitCode != nil && *i.ExitCode != 0
	switch {
	case i.Status == "declined":
		text += "A person did not allow this."
	case i.ExitCode != nil && *i.ExitCode != 0:
		text += fmt.Sprintf("\n[exit code %d]", *i.ExitCode)
	}
	return append(events, r.result(i.ID, text, failed)...)
}

// rest returns what was not said of an item's text while it was written.
func (r *reader) rest(kind, id, text string) string {
	last := len(r.now) - 1
	if last < 0 || r.part != kind+id {
		return text
	}
	rest, ok := strings.CutPrefix(text, r.now[last].Text+r.now[last].Thinking)
	if !ok {
		return ""
	}
	return rest
}

// say adds to an item of the current answer.
func (r *reader) say(kind, id, words string) []harness.Event {
	if words == "" {
		return nil
	}
	events := r.parted(r.whole)
	if words = r.room.Piece(words); words == "" {
		return events
	}
	last := len(r.now) - 1
	if last < 0 || r.part != kind+id {
		if !r.room.Block() || len(id) > harness.MaxID {
			return events
		}
		r.now, r.part = append(r.now, entry.PiBlock{Type: kind}), kind+id
		last++
	}
	piece := entry.PiChunk{Kind: "text", Block: last, Text: words}
	if b := &r.now[last]; kind == entry.PiTextBlock {
		b.Text += words
	} else {
		b.Thinking += words
		piece.Kind = "thinking"
	}
	return append(events, harness.Event{Chunk: &piece})
}

// parted ends the current answer if another one begins.
func (r *reader) parted(begins bool) []harness.Event {
	if !begins || len(r.now) == 0 {
		return nil
	}
	return r.flush(entry.PiStopped)
}

// take returns the pending text as an answer.
func (r *reader) take(stop entry.PiStop) entry.PiAssistant {
	a := entry.PiAssistant{Harness: name, Content: r.now, API: "openai-responses", Provider: r.job.Model.Provider, Model: r.job.Model.ID, StopReason: stop, Usage: r.usage}
	if stop == entry.PiError {
		a.ErrorMessage = r.failed
	}
	r.now, r.part, r.whole, r.room, r.usage = nil, "", false, harness.Room{}, entry.PiUsage{}
	return a
}

// flush ends the current answer, and counts it even if it is empty.
func (r *reader) flush(stop entry.PiStop) []harness.Event {
	a := r.take(stop)
	r.tally.Add(a)
	if len(a.Content) == 0 && stop != entry.PiError && a.Usage.TotalTokens == 0 {
		return nil
	}
	return []harness.Event{{Message: a}}
}

// calling adds a tool call to the transcript.
func (r *reader) calling(c call) []harness.Event {
	if _, open := r.calls[c.id]; open || c.tool == "" || c.id == "" || len(c.id) > harness.MaxID || len(r.calls) >= harness.MaxCalls {
		return nil
	}
	events := r.parted(r.whole)
	r.calls[c.id], r.last = entry.Clip(c.tool, 200), c
	a := r.take(entry.PiToolUse)
	a.Content = append(a.Content, entry.PiBlock{Type: entry.PiCallBlock, ID: c.id, Name: c.tool, Arguments: c.arguments})
	r.tally.Add(a)
	return append(events, harness.Event{Message: a}, harness.Event{Tool: c.tool})
}

// result ends a tool call.
func (r *reader) result(id, text string, failed bool) []harness.Event {
	tool := r.calls[id]
	delete(r.calls, id)
	return []harness.Event{{Message: entry.PiToolResult{Harness: name, ToolCallID: id, ToolName: tool, Content: []entry.PiBlock{entry.PiText(text)}, IsError: failed}}, {ToolDone: true}}
}
