package acp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// This file reads the agent's tool calls.

// begin reads that the agent calls a tool.
func (r *reader) begin(u update) []harness.Event {
	c, open := r.calls[u.ID]
	if !open {
		if u.ID == "" || len(u.ID) > harness.MaxID || len(r.calls) >= harness.MaxCalls {
			return nil
		}
		c = &call{name: nameOf(u.toolCall)}
		if r.profile.toolOf != nil {
			c.name = cmp.Or(r.profile.toolOf(u.ID), c.name)
		}
		r.calls[u.ID] = c
	}
	return r.follow(c, u)
}

// follow reads an update of a tool call.
func (r *reader) follow(c *call, u update) []harness.Event {
	if u.Status != "completed" && u.Status != "failed" && r.held()+u.toolCall.size()+len(u.Content) > maxHeld {
		u = update{toolCall: toolCall{ID: u.ID, Status: u.Status}} // the end of the call has its output
	}
	c.merge(u.toolCall)
	if text := list(u.Content); text != "" {
		c.content = text
	}
	switch c.Status {
	case "in_progress":
		return r.tell(c)
	case "completed", "failed":
		return append(r.tell(c), r.result(c)...)
	}
	return nil
}

// held returns how much is remembered of the calls, in bytes.
func (r *reader) held() (size int) {
	for _, c := range r.calls {
		size += c.size() + len(c.content)
	}
	return size
}

// tell adds a call to the transcript.
func (r *reader) tell(c *call) []harness.Event {
	if c.told {
		return nil
	}
	c.told = true
	a := r.take(entry.PiToolUse)
	a.Content = append(a.Content, entry.PiBlock{Type: entry.PiCallBlock, ID: c.ID, Name: c.name, Arguments: c.arguments()})
	r.tally.Add(a)
	return []harness.Event{{Message: a}, {Tool: c.name}}
}

// result ends a tool call.
func (r *reader) result(c *call) []harness.Event {
	delete(r.calls, c.ID)
	var raw struct {
		Output   string `json:"output"`
		Metadata struct {
			Exit *int `json:"exit"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(c.RawOutput, &raw) // each agent has its own format
	said, failed := c.content, c.Status == "failed"
	if said == "" {
		if said = raw.Output; said == "" && len(c.RawOutput) > 0 && string(c.RawOutput) != "null" {
			said = string(c.RawOutput)
		}
	}
	switch exit := raw.Metadata.Exit; {
	case exit != nil && *exit != 0:
		said, failed = said+fmt.Sprintf("\n[exit code %d]", *exit), true
	case exit == nil && r.stopped: // agents may report an interrupted tool as completed
		failed = true
	}
	return []harness.Event{{Message: entry.PiToolResult{Harness: r.profile.name, ToolCallID: c.ID, ToolName: c.name, Content: []entry.PiBlock{entry.PiText(said)}, IsError: failed}},
		{ToolDone: true}}
}

// resultsOfDenied ends calls that a person denied. Some agents say no more about them.
func (r *reader) resultsOfDenied() (events []harness.Event) {
	for _, id := range slices.Sorted(maps.Keys(r.calls)) {
		if c := r.calls[id]; c.denied {
			c.Status, c.content = "failed", "A person did not allow this."
			events = append(events, r.result(c)...)
		}
	}
	return events
}
