package runner

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// This file posts the agent's questions to the thread, and returns the answers to the agent. The server adds details
// that only it knows, such as the deadline for the answer. Every end of a question is an entry of the thread.

// lateBy is how long after the deadline the runner waits for the server to report that nobody has answered.
const lateBy = 2 * time.Minute

// askEarly posts the questions whose calls the agent has written. With all, it posts the others, too, because the calls
// of a subagent are never written.
func (r *run) askEarly(all bool) {
	waiting := r.early
	r.early = nil
	for _, a := range waiting {
		if _, open := r.calls[a.CallID]; open || all || a.CallID == "" {
			r.ask(a)
		} else {
			r.early = append(r.early, a)
		}
	}
}

// ask posts a question.
func (r *run) ask(a harness.Ask) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(a.Arguments, &fields) != nil || fields == nil || len(a.Arguments) > entry.MaxAsked {
		r.agent.input.write(r.reader.Answer(a, harness.Answer{Words: "It is too long for people to read. Do it in smaller parts."}))
		return
	}
	var id string
	if c, open := r.calls[a.CallID]; open {
		id = c.entry
	} else {
		id = entry.RunEntryID(r.Epoch, r.spool.take())
	}
	r.put(entry.AskedID(id), entry.PermissionAsked{
		Epoch: r.Epoch, AgentID: r.author, CallID: id, Tool: cmp.Or(entry.OneLine(entry.Literal(a.Tool), 100), "tool"), Arguments: a.Arguments, Question: a.Question,
	}, false)
	r.asked[entry.AnsweredID(id)] = asking{a, time.Now().Add(r.patience() + lateBy)}
	r.turn("asking")
}

// answered passes an answer to the agent.
func (r *run) answered(e entry.Entry) {
	a, waits := r.asked[e.ID]
	p, ok := entry.As[entry.PermissionAnswered](e)
	if !waits || !ok {
		return
	}
	r.done(e.ID)
	r.agent.input.write(r.reader.Answer(a.Ask, harness.Answer{Yes: p.Outcome == entry.Approved, Words: p.Reason, Nobody: p.Outcome == entry.Expired}))
}

// done forgets a question.
func (r *run) done(id string) {
	if delete(r.asked, id); len(r.asked) == 0 {
		r.turn("tool")
	}
}

// tooLate answers expired questions itself, in case the server does not.
func (r *run) tooLate(now time.Time) {
	for id, a := range r.asked {
		if now.After(a.until) {
			r.withdraw(id, a)
			r.agent.input.write(r.reader.Answer(a.Ask, harness.Answer{Nobody: true}))
		}
	}
}

// unask withdraws a question if the agent no longer waits for its answer.
func (r *run) unask(asked string) {
	r.early = slices.DeleteFunc(r.early, func(a harness.Ask) bool { return a.ID == asked })
	for id, a := range r.asked {
		if a.ID == asked {
			r.withdraw(id, a)
		}
	}
}

// unaskAll withdraws the questions of an agent that has ended.
func (r *run) unaskAll() {
	r.early = nil
	for id, a := range r.asked {
		r.withdraw(id, a)
	}
}

func (r *run) withdraw(id string, a asking) {
	r.done(id)
	r.put(id, entry.PermissionAnswered{Epoch: r.Epoch, AgentID: r.author, Outcome: entry.Withdrawn}, false)
}
