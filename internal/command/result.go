package command

import "github.com/arbe-dev/arbe/internal/entry"

const (
	// keepHead and keepTail limit the beginning and the end of an output that its result holds, in bytes.
	keepHead = 64 << 10
	keepTail = 64 << 10
)

// result returns the draft of a command's result. Its id is derived from the command's, so that a command has one
// result, whichever server writes it first.
func result(commandID string, r entry.CommandResult) entry.Draft {
	r.CommandID = commandID
	return entry.NewDraft(entry.ResultID(commandID), "", r)
}
