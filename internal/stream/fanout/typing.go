package fanout

import (
	"strings"
	"time"
)

const (
	// typingPrefix begins the ids of the deltas that say who is writing. No entry ever finishes them.
	typingPrefix = "typing."
	// typingEvery is how often an agent is at most said to be writing.
	typingEvery = 2 * time.Second
	// keptTyping is how long it is kept for late watchers.
	keptTyping = 10 * time.Second
)

// Typing returns the delta that says that an agent is writing. Its offset is the time in units of typingEvery, so that a
// repetition within one of them is a piece that watchers have.
func Typing(agent string, at time.Time) Delta {
	return Delta{EntryID: typingPrefix + agent, Offset: at.UnixNano() / int64(typingEvery), Data: []byte{'.'}}
}

// Typing returns the agent who is writing and when that was said. ok is false for other deltas.
func (d Delta) Typing() (agent string, at time.Time, ok bool) {
	agent, ok = strings.CutPrefix(d.EntryID, typingPrefix)
	return agent, time.Unix(0, (d.Offset+int64(len(d.Data))-1)*int64(typingEvery)), ok
}
