package harness

import "encoding/json"

// MaxCalls limits how many tool calls without a result a [Reader] remembers, and MaxID the length of an id of which it
// remembers many, in bytes. No agent comes near them.
const (
	MaxCalls = 200
	MaxID    = 200
)

// maxCollected limits a [Room], in bytes.
const maxCollected = 4 << 20

// Room limits the memory that a [Reader] uses for one answer, because an agent may never end its answer. The zero value has
// 4 MiB left, which is more than the log keeps of an answer.
type Room struct{ used int }

// Piece takes room for a piece of text and returns the piece. It cuts out the middle of a piece that is too long, and returns
// an empty text if no room is left.
func (r *Room) Piece(text string) string {
	const note = 100 // what Middle adds
	switch left := maxCollected - r.used; {
	case left <= 2*note:
		return ""
	case len(text) > left:
		text = Middle(text, left-note)
	}
	r.used += len(text)
	return text
}

// Block reports whether there is room for another block, and takes what it needs besides its text.
func (r *Room) Block() bool {
	const size = 256
	if r.used+size > maxCollected {
		return false
	}
	r.used += size
	return true
}

// Arguments returns the arguments of a call; shortened as in the log if there is no room for all of them, and an empty object
// if there is none for that.
func (r *Room) Arguments(arguments json.RawMessage) json.RawMessage {
	if r.used+len(arguments) > maxCollected {
		arguments = shortArguments(arguments)
	}
	if r.used+len(arguments) > maxCollected {
		return json.RawMessage("{}")
	}
	r.used += len(arguments)
	return arguments
}
