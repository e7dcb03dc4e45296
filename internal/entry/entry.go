// Package entry defines the entries of a thread's log: what an entry is, which kinds there are, and what each of them
// contains. It does no I/O.
//
// An [Entry] is a fact in a log and never changes; a [Draft] is an entry that is not written yet. The content of an
// entry is its payload: JSON text that is stored exactly as written. The set of kinds is open: readers show kinds that
// they do not know and never fail on them, because a newer server may have written them. Writers may write only kinds
// in the registry. Each kind is one file (its type, schema, validation and plain text side by side, and what it opens,
// updates or completes: work.go) and one line in the registry (kind.go).
package entry

import (
	"encoding/json"
	"time"
)

// Entry is one record of a log.
type Entry struct {
	// Seq is its position: 1 for the first entry of a log, without gaps, in commit order.
	Seq int64
	// ID is the id that its writer gave it, unique in its stream.
	ID string
	// StreamID is the name of its log: "arbe-thread-…" for a thread's.
	StreamID string
	// Author is the agent who wrote it; empty for arbe itself.
	Author string
	// Type is its kind: "chat", "command_result", …
	Type string
	// Payload is its content as JSON text.
	Payload json.RawMessage
	// Time is when the log accepted it.
	Time time.Time
}

// Draft is an entry to be written.
type Draft struct {
	// ID makes a retry harmless, because a log stores one entry per id, and returns it for every later draft with that
	// id. If it is empty, the log generates an id.
	ID string
	// Author is the agent in whose name it is written; empty for arbe itself.
	Author string
	// Type and Payload are as in [Entry].
	Type    string
	Payload json.RawMessage
}

// NewDraft returns a draft with payload p in the name of author (empty for arbe itself). The id may be empty.
func NewDraft(id, author string, p Payload) Draft {
	text, err := json.Marshal(p)
	if err != nil { // cannot happen, because payloads are plain structs
		panic("entry: cannot encode a " + p.Type() + " payload: " + err.Error())
	}
	return Draft{ID: id, Author: author, Type: p.Type(), Payload: text}
}
