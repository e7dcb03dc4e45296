package entry

import "encoding/json"

// MaxPayload is the largest payload, in bytes of JSON text.
const MaxPayload = 4 << 20

// maxID is the longest id of an entry, in bytes.
const maxID = 200

// Payload is the content of an entry of a known kind.
type Payload interface {
	// Type is the kind's name in the log.
	Type() string
	// Validate returns a [fault.Invalid] that names the wrong field; nil if the payload is valid.
	Validate() error
	// Plain returns the content as plain text for a terminal, a search or a notification. It must not be treated as markup,
	// because it may contain people's text.
	Plain() string
}

// Writer says who may write entries of a kind.
type Writer int

// The writers. Each may write its own kinds and those of the writers after it.
const (
	// Server: only arbe itself, for what it does. Otherwise an agent could forge a command's result.
	Server Writer = iota
	// Runner: the runner of a coding agent, with the token of its run, in the thread that the agent drives.
	Runner
	// Anyone: every agent of the house, through any door.
	Anyone
)

// Kind is one known kind of entry.
type Kind struct {
	// Type is its name in the log.
	Type string
	// Payload is the name of its payload's type, such as "HouseCreated".
	Payload string
	// Writer is who may write it.
	Writer Writer

	decode func(json.RawMessage) (Payload, error)
	fields map[string]string
}

// maxNamed limits how much of a name an error repeats, because a name may be as long as a whole payload.
const maxNamed = 60
