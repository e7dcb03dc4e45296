package codex

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// This file handles Codex's questions: whether it may run a command or change a file, and the questions of its model. A yes is
// valid once. The protocol has no field for the reason of a no, so Codex gets the reason as a prompt.

// maxAsks limits the questions that wait.
const maxAsks = 20

// runs and writes are the tools that Codex has as commands and as changes of files.
var (
	runs   = []string{entry.RunCommandTool, entry.ReadFileTool, entry.SearchFilesTool, entry.FetchTool}
	writes = []string{entry.WriteFileTool, entry.EditFileTool}
)

// asked reads a request of Codex. Requests of an unknown kind are refused, because Codex would otherwise wait forever.
func (r *reader) asked(m message) []harness.Event {
	p := m.Params
	to := harness.Ask{ID: string(m.ID), CallID: p.ItemID}
	needed := writes
	var events []harness.Event
	switch {
	case r.turn == "" || p.ThreadID != r.thread || p.TurnID != r.turn || p.ItemID == "" || r.stopped:
		return inputs(refuse(m.ID, badParams, "this is no question of the turn"))
	case m.Method == "item/fileChange/requestApproval" && r.last.id == p.ItemID:
		to.Tool, to.Arguments = r.last.tool, r.last.arguments
	case m.Method == "item/commandExecution/requestApproval":
		c := item{ID: p.ItemID, Type: "commandExecution", Command: p.Command}.call()
		to.Tool, to.Arguments = c.tool, c.arguments
		needed = runs
	case m.Method == "item/tool/requestUserInput":
		to.Question = true
		c := call{p.ItemID, "request_user_input", send(object{"questions": p.Questions})}
		to.Tool, to.Arguments = c.tool, c.arguments
		events = r.calling(c)
	default:
		return inputs(refuse(m.ID, noMethod, "this client does not have "+entry.OneLine(m.Method, 60)+"; use tools of your own"))
	}
	if !to.Question && !slices.ContainsFunc(needed, func(tool string) bool { return slices.Contains(r.job.Ask, tool) }) {
		return inputs(answer(m.ID, object{"decision": "accept"}))
	}
	if _, twice := r.asks[to.ID]; twice || len(r.asks) >= maxAsks || len(p.ItemID) > harness.MaxID {
		return append(events, inputs(refuse(m.ID, badParams, "too many questions wait"))...)
	}
	r.asks[to.ID] = asking{id: slices.Clone(m.ID), call: p.ItemID, question: to.Question}
	return append(events, harness.Event{Ask: &to})
}

// Answer answers a question of Codex.
func (r *reader) Answer(to harness.Ask, a harness.Answer) []byte {
	q, open := r.asks[to.ID]
	if !open || q.said != "" {
		return nil
	}
	about := " (" + entry.OneLine(to.Tool+" "+string(to.Arguments), 300) + ")"
	no := "A person said no to this" + about + ". Do not try it again; go on without it, or say what you need."
	if a.Nobody {
		no = "Nobody answered in time" + about + ". Go on without it, or say what you need."
	} else if a.Words != "" {
		no += " Their reason: " + a.Words
	}
	switch {
	case q.question:
		if q.said = cmp.Or(a.Words, "Yes."); !a.Yes {
			q.said = no
		}
		r.asks[to.ID] = q // Codex says when it has read the answer
		return answer(q.id, object{"answers": answers(to.Arguments, q.said)})
	case a.Yes:
		delete(r.asks, to.ID)
		return answer(q.id, object{"decision": "accept"})
	}
	delete(r.asks, to.ID)
	return append(r.Steer(no), answer(q.id, object{"decision": "decline"})...)
}

// answers returns the same answer to all parts of a question.
func answers(arguments json.RawMessage, words string) object {
	var parts struct {
		Questions []struct {
			ID string `json:"id"`
		} `json:"questions"`
	}
	_ = json.Unmarshal(arguments, &parts) // without parts, there is nothing to answer
	said := object{}
	for _, p := range parts.Questions {
		said[p.ID] = object{"answers": []string{words}}
	}
	return said
}

// resolved reads that Codex no longer waits for an answer.
func (r *reader) resolved(id string) []harness.Event {
	q, open := r.asks[id]
	if !open {
		return nil
	}
	delete(r.asks, id)
	if q.said != "" {
		return r.result(q.call, q.said, false)
	}
	return []harness.Event{{Unask: id}}
}

// unaskAll withdraws the questions of a turn that has ended.
func (r *reader) unaskAll() (events []harness.Event) {
	for id := range r.asks {
		events = append(events, r.resolved(id)...)
	}
	return events
}
