package web

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// A transcript learns which turns there are, and which of them are at work, from the entries that it has seen.

// turnSeen is what the entries so far say about a turn.
type turnSeen struct {
	ID, Agent string
	// Reason is the trigger in one word; empty if the turn's beginning was not seen.
	Reason string
	// Asked is the id of the entry that asked.
	Asked string
	// Began is when it began, or the time of its first entry that was seen.
	Began time.Time
	// Ended reports that it has ended, or that it goes on in the thread of which this one is a fork.
	Ended bool
	// Named reports that a row shows its reason.
	Named bool
	// Waits says for whom it waits; nil if it does not, or went on since.
	Waits *waitSeen
	// last is the position of its last entry that was seen.
	last int64
}

// waitSeen is what an entry said about a wait.
type waitSeen struct {
	seq int64
	// waits says for whom, and why.
	waits string
	// next is when the model is asked again.
	next time.Time
}

// word says for whom the turn waits, and when the next try is unless that is over.
func (w waitSeen) word() string {
	if left := time.Until(w.next); left > 0 {
		return w.waits + "; next try in " + entry.Approximately(left)
	}
	return w.waits
}

// chatSeen is where a chat is, and its beginning.
type chatSeen struct {
	seq          int64
	author, text string
}

// learnTurn remembers what an entry says about turns.
func (t *transcript) learnTurn(e entry.Entry) {
	seen := turnSeen{Began: e.Time}
	switch e.Type {
	case entry.TurnStarted{}.Type():
		p, _ := entry.As[entry.TurnStarted](e)
		seen.ID, seen.Agent, seen.Reason, seen.Asked = p.TurnID, p.AgentID, p.Reason, p.EntryID
	case entry.TurnEnded{}.Type():
		p, _ := entry.As[entry.TurnEnded](e)
		seen.ID, seen.Agent, seen.Asked, seen.Ended = p.TurnID, p.AgentID, p.EntryID, true
	case entry.PiAssistant{}.Type():
		p, ok := entry.As[entry.PiAssistant](e)
		seen.ID, seen.Agent = p.Turn, e.Author
		if ok && !t.steps[e.ID] {
			t.steps[e.ID] = true
			t.learned += perCommand
		}
	case entry.PiToolResult{}.Type():
		p, ok := entry.As[entry.PiToolResult](e)
		seen.ID, seen.Agent = p.Turn, e.Author
		if _, known := t.results[e.ID]; ok && !known {
			t.results[e.ID] = p
			t.learned += len(e.Payload) + perCommand
		}
	case entry.TurnWaiting{}.Type():
		p, _ := entry.As[entry.TurnWaiting](e)
		seen.ID, seen.Agent = p.TurnID, p.AgentID
		seen.Waits = &waitSeen{e.Seq, p.For(), e.Time.Add(time.Duration(p.DelayMS) * time.Millisecond)}
	case entry.TurnFellBack{}.Type():
		p, _ := entry.As[entry.TurnFellBack](e)
		seen.ID, seen.Agent = p.TurnID, p.AgentID
	case entry.PermissionAsked{}.Type():
		p, ok := entry.As[entry.PermissionAsked](e)
		seen.ID, seen.Agent = p.TurnID, p.AgentID
		seen.Waits = &waitSeen{seq: e.Seq, waits: "waiting for a person's yes"}
		if ok && t.asked[p.CallID] == "" {
			t.asked[p.CallID] = p.ApprovalID
			t.learned += perCommand
		}
	case entry.PermissionAnswered{}.Type():
		p, ok := entry.As[entry.PermissionAnswered](e)
		seen.ID, seen.Agent = p.TurnID, p.AgentID
		if _, known := t.answered[p.ApprovalID]; ok && !known {
			t.answered[p.ApprovalID] = p
			t.learned += perCommand
		}
	case entry.Chat{}.Type():
		p, ok := entry.As[entry.Chat](e)
		if _, known := t.chats[e.ID]; ok && !known {
			t.chats[e.ID] = chatSeen{e.Seq, e.Author, clip(strings.Join(strings.Fields(clip(p.Text, maxWord)), " "), 80)}
			t.learned += perCommand
		}
		if p.Turn != nil {
			seen.ID, seen.Agent, seen.Ended = p.Turn.TurnID, e.Author, true
		}
	}
	if seen.ID == "" {
		return
	}
	seen.Ended = seen.Ended || e.Seq <= t.origin.GetSeq()
	seen.last = e.Seq
	had := t.turns[seen.ID]
	if had == nil {
		t.turns[seen.ID] = &seen
		t.learned += perCommand
		return
	}
	had.Agent, had.Reason, had.Asked = cmp.Or(had.Agent, seen.Agent), cmp.Or(had.Reason, seen.Reason), cmp.Or(had.Asked, seen.Asked)
	had.Ended = had.Ended || seen.Ended
	switch {
	case seen.Waits != nil:
		if had.last < e.Seq {
			had.Waits = seen.Waits
		}
	case had.Waits != nil && had.Waits.seq < e.Seq:
		had.Waits = nil
	}
	had.last = max(had.last, e.Seq)
	if seen.Began.Before(had.Began) {
		had.Began = seen.Began
	}
}

// activeTurns returns the turns that have not ended, oldest first.
func (t *transcript) activeTurns() []*turnSeen {
	active := slices.Collect(maps.Values(t.turns))
	active = slices.DeleteFunc(active, func(s *turnSeen) bool { return s.Ended })
	slices.SortFunc(active, func(a, b *turnSeen) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.ID, b.ID)) })
	return active
}

// learnRunning remembers the turn that the row of a thread says is at work, because its beginning may be far up.
func (t *transcript) learnRunning(thread *arbev1.Thread) {
	r := thread.GetRunning()
	if r.GetTurnId() == "" {
		return
	}
	seen := t.turns[r.TurnId]
	if seen == nil {
		seen = &turnSeen{ID: r.TurnId, Agent: r.AgentId, Began: when(r.Since)}
		t.turns[r.TurnId] = seen
	}
	if began := when(r.Since); began.Before(seen.Began) {
		seen.Began = began
	}
}
