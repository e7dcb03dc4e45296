// Package entry defines the entries of a thread's log: the kinds of entries and their contents. It does no I/O.
//
// An [Entry] is a fact in a log and never changes; a [Draft] is an entry that is not yet written. The content of an entry is
// its payload: JSON text that is stored exactly as written. The set of kinds is open: readers must show unknown kinds and
// never fail on them, because a newer server may have written them. Writers may write only kinds in the registry. Each kind
// is one file, with its type, schema, validation, plain text and its part in a larger work (work.go), and one line in the
// registry (registry.go).
package entry

import (
	"encoding/json"
	"time"
)

// Entry is one record of a log.
type Entry struct {
	// Seq is its position in the log: from 1, without gaps, in commit order.
	Seq int64
	// ID is its writer's id for it, unique in its stream.
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
	// Author is the agent who writes it; empty for arbe itself.
	Author string
	// Type and Payload are as in [Entry].
	Type    string
	Payload json.RawMessage
}

// NewDraft returns a draft with payload p by author (empty for arbe itself). The id may be empty.
func NewDraft(id, author string, p Payload) Draft {
	text, err := json.Marshal(p)
	if err != nil { // cannot happen, because payloads are plain structs
		panic("entry: cannot encode a " + p.Type() + " payload: " + err.Error())
	}
	return Draft{ID: id, Author: author, Type: p.Type(), Payload: text}
}

// MaxText is the longest text of a chat entry in bytes. Longer texts belong in a file.
const MaxText = 1<<20 - 1
