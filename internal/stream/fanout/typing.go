package fanout

import (
	"strings"
	"time"
)

const (
	// typingPrefix begins the ids of the deltas that say who is writing. No entry ever finishes them.
	typingPrefix = "typing."
	// typingEvery is the shortest time between two such deltas of an agent.
	typingEvery = 2 * time.Second
	// keptTyping is how long such a delta is kept for late watchers.
	keptTyping = 10 * time.Second
)

// Typing returns the delta that says that an agent is writing. Its offset is the time in units of typingEvery, so that
// watchers already have a repetition within the same unit.
func Typing(agent string, at time.Time) Delta {
	return Delta{EntryID: typingPrefix + agent, Offset: at.UnixNano() / int64(typingEvery), Data: []byte{'.'}}
}

// Typing returns the agent who is writing, and when. ok is false for other deltas.
func (d Delta) Typing() (agent string, at time.Time, ok bool) {
	agent, ok = strings.CutPrefix(d.EntryID, typingPrefix)
	return agent, time.Unix(0, (d.Offset+int64(len(d.Data))-1)*int64(typingEvery)), ok
}
