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

// What a transcript says about commands, turns and chats, from the entries that its ledger has paired.

// brief is what a transcript remembers of an entry's payload: of long texts only what pages show of them elsewhere. It returns
// nil for a payload that it remembers whole.
func brief(p entry.Payload) entry.Payload {
	switch p := p.(type) {
	case entry.Chat:
		return entry.Chat{Text: clip(strings.Join(strings.Fields(clip(p.Text, maxWord)), " "), 80)}
	case entry.Command:
		return entry.Command{Command: clip(p.Line(), maxWord), SandboxID: p.SandboxID}
	case entry.PiAssistant:
		return entry.PiAssistant{Turn: p.Turn}
	case entry.PiCompaction:
		return entry.PiCompaction{Turn: p.Turn}
	case entry.PermissionAsked:
		return entry.PermissionAsked{ApprovalID: p.ApprovalID, AgentID: p.AgentID}
	case entry.TurnEnded:
		return entry.TurnEnded{AgentID: p.AgentID}
	}
	return nil
}

// started returns where a command began, and the beginning of its line; 0 if that is not known.
func (t *transcript) started(command string) (seq int64, line string) {
	start := t.ledger.Of(entry.CommandWork, command).Opened()
	if start == nil {
		return 0, ""
	}
	c, _ := entry.SeenAs[entry.Command](start)
	return start.Seq, c.Command
}

// ended returns the result of a command, and its position.
func (t *transcript) ended(command string) (result entry.CommandResult, seq int64, ok bool) {
	end := t.ledger.Of(entry.CommandWork, command).Completed()
	if end == nil {
		return result, 0, false
	}
	result, ok = entry.SeenAs[entry.CommandResult](end)
	return result, end.Seq, ok
}

// chat returns a chat of which its beginning is remembered; nil if it is not known.
func (t *transcript) chat(id string) *entry.Seen { return t.ledger.Of(entry.ChatWork, id).Opened() }

// forget limits the memory of a transcript that a live tail uses. Otherwise it would grow as long as the page is open.
func (t *transcript) forget() {
	if t.ledger.Size() <= maxLearned {
		return
	}
	if t.turn(t.running.ID).Ended {
		t.running = turnSeen{}
	}
	maps.DeleteFunc(t.unseen, func(id string, _ turnSeen) bool { return t.turn(id).Ended })
	t.ledger.Forget(func(w entry.Work, p *entry.Progress) bool { return w.Kind == entry.TurnWork && p.Completed() == nil })
	clear(t.explained)
}

// hasStep reports whether the log has a step, so that its deltas are late.
func (t *transcript) hasStep(id string) bool {
	return t.ledger.Of(entry.StepWork, id).Completed() != nil
}

// turnSeen is what is known of a turn.
type turnSeen struct {
	ID, Agent string
	// Reason is the trigger in one word; empty if the turn's beginning was not seen.
	Reason string
	// Began is when it began, or the time of its first entry that was seen.
	Began time.Time
	// Ended reports that it has ended, or that it goes on in the thread of which this one is a fork.
	Ended bool
	// Waits says for whom it waits, and why; empty if it does not wait. Next is when the model is asked again.
	Waits string
	Next  time.Time
}

// known reports whether there is such a turn.
func (s turnSeen) known() bool { return s.ID != "" }

// word says what a turn does that has written nothing: for whom it waits, and when the next try is unless that is over.
func (s turnSeen) word() string {
	if s.Waits == "" {
		return "at work"
	}
	if left := time.Until(s.Next); left > 0 {
		return s.Waits + "; next try in " + entry.Approximately(left)
	}
	return s.Waits
}

// turn returns what is known of a turn.
func (t *transcript) turn(id string) turnSeen {
	seen := t.unseen[id]
	if t.running.ID == id {
		seen = t.running
	}
	p := t.ledger.Of(entry.TurnWork, id)
	if p.First() == nil {
		return seen
	}
	if began := p.First().Time; seen.ID == "" || began.Before(seen.Began) {
		seen.Began = began
	}
	seen.ID, seen.Ended = id, p.Completed() != nil || p.First().Seq <= t.origin.GetSeq()
	seen.Agent = cmp.Or(agentOfTurn(p.First()), seen.Agent)
	if started, ok := entry.SeenAs[entry.TurnStarted](p.Opened()); ok {
		seen.Reason = started.Reason
	}
	switch last := p.Last(); w := last.Payload.(type) {
	case entry.TurnWaiting:
		seen.Waits, seen.Next = w.For(), last.Time.Add(time.Duration(w.DelayMS)*time.Millisecond)
	case entry.PermissionAsked:
		seen.Waits = "waiting for a person's yes"
	}
	return seen
}

// agentOfTurn returns the bot whose turn an entry belongs to.
func agentOfTurn(s *entry.Seen) string {
	if names := s.Agents(); len(names) > 0 {
		return names[0]
	}
	return s.Author
}

// turnsAtWork returns the turns that have not ended, oldest first.
func (t *transcript) turnsAtWork() (list []turnSeen) {
	ids := append(t.ledger.All(entry.TurnWork), slices.Collect(maps.Keys(t.unseen))...)
	ids = append(ids, t.running.ID)
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if seen := t.turn(id); seen.known() && !seen.Ended {
			list = append(list, seen)
		}
	}
	slices.SortStableFunc(list, func(a, b turnSeen) int { return a.Began.Compare(b.Began) })
	return list
}

// learnRunning remembers the turn that the row of a thread says is at work, because its beginning may be far up.
func (t *transcript) learnRunning(thread *arbev1.Thread) {
	if r := thread.GetRunning(); r.GetTurnId() != "" {
		t.running = turnSeen{ID: r.TurnId, Agent: r.AgentId, Began: when(r.Since)}
	}
}
