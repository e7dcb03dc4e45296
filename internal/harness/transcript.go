package harness

import (
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
)

// Transcript returns the conversation in the entries of a thread's log, oldest first. What was said up to position after, or
// was accepted for an agent, becomes messages of the user; everything that agents did is included. A message that was edited
// while it waited has its last text, and a cancelled one is left out. self is the author whose chats are the agent's own
// results, which the transcript already has.
//
// The transcript is always well-formed, because providers refuse anything else: a tool call without a result gets one that
// says that it was interrupted, and a result without a call is left out. A summary replaces what it covers.
func Transcript(entries []entry.Entry, self string, after int64) []entry.PiMessage {
	return transcribe(entries, toldOf(entries, self, after))
}

// told tracks which chats an agent was told.
type told struct {
	self             string
	after            int64
	taken, cancelled map[string]bool
	edited           map[string]string
}

func toldOf(entries []entry.Entry, self string, after int64) told {
	t := told{self, after, map[string]bool{}, map[string]bool{}, map[string]string{}}
	for _, e := range entries {
		switch p := decode(e).(type) {
		case entry.QueueEdited:
			t.edited[p.EntryID] = p.Text
		case entry.QueueCancelled:
			t.cancelled[p.EntryID] = true
		case entry.QueueTaken:
			for _, id := range p.EntryIDs {
				t.taken[id] = true
			}
		}
	}
	return t
}

// text returns the text of a chat that an agent was told; empty if it was not told.
func (t told) text(e entry.Entry, c entry.Chat) string {
	switch {
	case t.self != "" && e.Author == t.self, t.cancelled[e.ID], e.Seq > t.after && !t.taken[e.ID]:
		return ""
	}
	if text, edited := t.edited[e.ID]; edited {
		c.Text = text
	}
	return c.Told()
}

func transcribe(entries []entry.Entry, told told) []entry.PiMessage {
	var t transcript
	for _, e := range entries {
		switch p := decode(e).(type) {
		case entry.Chat:
			t.say(told.text(e, p), e.Time.UnixMilli())
		case entry.PiAssistant:
			t.answer(p)
		case entry.PiToolResult:
			t.result(p)
		case entry.PiCompaction:
			t.compact(p, entries, told)
		}
	}
	t.interrupt()
	return t.messages
}

func decode(e entry.Entry) entry.Payload {
	p, _ := entry.Decode(e)
	return p
}

type transcript struct {
	messages []entry.PiMessage
	// open holds the tool calls of the last answer that have no result yet.
	open []entry.PiBlock
}

func (t *transcript) say(text string, at int64) {
	if strings.TrimSpace(text) == "" {
		return
	}
	// If tools run, their results go before it: see insert.
	t.messages = append(t.messages, entry.PiUser{Content: []entry.PiBlock{entry.PiText(text)}, Timestamp: at})
}

func (t *transcript) answer(a entry.PiAssistant) {
	// Some agents report concurrent calls one by one.
	if last := t.last(); last >= 0 && a.StopReason == entry.PiToolUse && a.Harness != "" {
		before := t.messages[last].(entry.PiAssistant)
		before.Content = append(before.Content[:len(before.Content):len(before.Content)], a.Content...)
		t.messages[last] = before
		t.open = append(t.open, a.Calls()...)
		return
	}
	t.interrupt()
	if a.StopReason != entry.PiToolUse { // the calls of such an answer are never run
		kept := a.Content[:0:0]
		for _, b := range a.Content {
			if b.Type != entry.PiCallBlock {
				kept = append(kept, b)
			}
		}
		a.Content = kept
	}
	if a.Text() == "" && len(a.Calls()) == 0 {
		return // an error, or nothing
	}
	t.messages = append(t.messages, a)
	t.open = a.Calls()
}

// last returns the index of the answer with the open calls; -1 if there is none.
func (t *transcript) last() int {
	if len(t.open) == 0 {
		return -1
	}
	for i := len(t.messages) - 1; i >= 0; i-- {
		if _, ok := t.messages[i].(entry.PiAssistant); ok {
			return i
		}
	}
	return -1
}

func (t *transcript) result(r entry.PiToolResult) {
	for i, call := range t.open {
		if call.ID == r.ToolCallID {
			t.open = append(t.open[:i:i], t.open[i+1:]...)
			t.insert(r)
			return
		}
	}
}

// insert puts a result after its answer and the answer's other results, before anything said in the meantime.
func (t *transcript) insert(r entry.PiToolResult) {
	at := len(t.messages)
	for at > 0 && t.messages[at-1].PiRole() == (entry.PiUser{}).PiRole() {
		at--
	}
	t.messages = slices.Insert(t.messages, at, entry.PiMessage(r))
}

// interrupt ends the open calls.
func (t *transcript) interrupt() {
	for _, call := range t.open {
		t.insert(Interrupted(call, ""))
	}
	t.open = nil
}

// compact replaces what a summary covers.
func (t *transcript) compact(c entry.PiCompaction, entries []entry.Entry, told told) {
	var kept []entry.Entry
	for _, e := range entries {
		if k := decode(e); k != nil && e.Seq >= c.FirstKeptSeq {
			if same, ok := k.(entry.PiCompaction); ok && same == c {
				break
			}
			if _, ok := k.(entry.PiCompaction); !ok {
				kept = append(kept, e)
			}
		}
	}
	t.open = nil
	t.messages = []entry.PiMessage{entry.PiUser{Content: []entry.PiBlock{entry.PiText(c.Plain())}}}
	if c.FirstKeptSeq > 0 {
		t.messages = append(t.messages, transcribe(kept, told)...)
	}
}

// Interrupted returns the result of a tool call that was cut.
func Interrupted(call entry.PiBlock, harness string) entry.PiToolResult {
	return entry.PiToolResult{Harness: harness, ToolCallID: call.ID, ToolName: call.Name, IsError: true,
		Content: []entry.PiBlock{entry.PiText("[interrupted: the run ended before this tool call did. What it had done by then is not known.]")}}
}
