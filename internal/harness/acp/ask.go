package acp

import (
	"encoding/json"
	"slices"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// This file handles the agent's questions before it uses a tool. A yes is valid once. The protocol has no field for the words
// of a no, so the agent gets them as its next prompt.

// ask reads a question of the agent.
func (r *reader) ask(id, params json.RawMessage) []harness.Event {
	var p permission
	if json.Unmarshal(params, &p) != nil || p.Session != r.session || !r.begun || p.ToolCall.ID == "" {
		return inputs(refuse(id, badParams, "this is no question about a tool call of the session"))
	}
	if len(r.job.Ask) == 0 && r.profile.tools == nil { // such as a question about something it has done before
		return inputs(answer(id, p.choose("allow_once", "allow_always")))
	}
	p.Options = slices.DeleteFunc(p.Options[:min(len(p.Options), maxOptions)], func(o option) bool { return len(o.ID) > harness.MaxID })
	if _, twice := r.asks[string(id)]; twice || len(r.asks) >= maxAsks || r.stopped {
		return inputs(answer(id, permission{}.choose()))
	}
	events := r.begin(update{toolCall: toolCall{ID: p.ToolCall.ID, Title: p.ToolCall.Title, Does: p.ToolCall.Does}})
	c, open := r.calls[p.ToolCall.ID]
	if !open {
		return append(events, inputs(answer(id, permission{}.choose()))...)
	}
	if !c.told && isObject(p.ToolCall.RawInput) {
		c.RawInput = p.ToolCall.RawInput // it may ask before it has sent the whole call
	}
	events = append(events, r.tell(c)...)
	if r.profile.tools != nil && !slices.Contains(r.profile.tools.of(r.job.Ask), c.name) {
		return append(events, inputs(answer(id, p.choose("allow_once")))...)
	}
	asked := permission{Session: p.Session, ToolCall: toolCall{ID: p.ToolCall.ID}, Options: p.Options}
	r.asks[string(id)] = asking{asked, append(json.RawMessage(nil), id...)}
	arguments := p.ToolCall.RawInput
	if !isObject(arguments) {
		arguments = c.arguments()
	}
	return append(events, harness.Event{Ask: &harness.Ask{ID: string(id), CallID: c.ID, Tool: c.name, Arguments: arguments}})
}

// Answer answers a question of the agent.
func (r *reader) Answer(to harness.Ask, a harness.Answer) []byte {
	q, open := r.asks[to.ID]
	if !open {
		return nil
	}
	delete(r.asks, to.ID)
	if a.Yes {
		return answer(q.id, q.choose("allow_once"))
	}
	if c, open := r.calls[q.ToolCall.ID]; open {
		c.denied = true
	}
	about := " (" + entry.OneLine(to.Tool+" "+string(to.Arguments), 300) + ")"
	said := "A person said no to this" + about + ". Do not try it again; go on without it, or say what you need."
	if a.Nobody {
		said = "Nobody answered in time whether you may do this" + about + ". Go on without it, or say what you need."
	} else if a.Words != "" {
		said += " Their reason: " + a.Words
	}
	r.prompts = append(r.prompts, said)
	return answer(q.id, q.choose("reject_once", "reject_always"))
}

// unaskAll withdraws the questions of work that has ended.
func (r *reader) unaskAll() (events []harness.Event) {
	for id := range r.asks {
		events = append(events, harness.Event{Unask: id})
		delete(r.asks, id)
	}
	return events
}
