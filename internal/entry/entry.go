// Package entry holds the words of arbe: what a record of a thread's log is, which kinds there are, and
// what each of them says. It does no I/O.
//
// An [Entry] is a fact in a log and never changes; a [Draft] is one that is not written yet. What an
// entry says is its payload: JSON text, kept exactly as it was written. Kinds are an open set: readers
// show what they do not know and never fail on it; writers may only write what the registry knows.
// Each kind is one file here (its type, schema, predicate and plain text side by side) and one line in
// the registry (kind.go).
package entry

import (
	"encoding/json"
	"time"
)

// Entry is one record of a log.
type Entry struct {
	// Seq is its position: 1 for a log's first entry, without a gap, in commit order.
	Seq int64
	// ID is its writer's own id for it, unique in its stream.
	ID string
	// StreamID names the log it is in: "arbe-thread-…" for a thread's.
	StreamID string
	// Author is the agent who wrote it; empty for arbe itself.
	Author string
	// Type is its kind: "chat", "command_result", …
	Type string
	// Payload is what it says, as JSON text.
	Payload json.RawMessage
	// Time is when the log took it.
	Time time.Time
}

// Draft is an entry to be written.
type Draft struct {
	// ID makes a retry harmless: a log takes one entry of an id, and answers every later one with the
	// first one's position. Empty lets the log choose.
	ID string
	// Author is the agent in whose name it is written; empty for arbe itself.
	Author string
	// Type and Payload are as in [Entry].
	Type    string
	Payload json.RawMessage
}

// NewDraft makes a draft of what p says, in the name of author (empty for arbe itself). The id may be
// empty.
func NewDraft(id, author string, p Payload) Draft {
	text, err := json.Marshal(p)
	if err != nil { // payloads are plain structs of ours
		panic("entry: cannot encode a " + p.Type() + " payload: " + err.Error())
	}
	return Draft{ID: id, Author: author, Type: p.Type(), Payload: text}
}
