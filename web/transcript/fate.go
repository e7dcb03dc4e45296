package transcript

import (
	"github.com/arbe-dev/arbe/internal/entry"
)

// Fate is what happened to a message while it waited for a coding agent.
type Fate struct {
	// Key is the key of the element that shows it.
	Key string
	// Words says who edited or cancelled it, if anybody did.
	Words string
	// Cancelled reports that the agent did not get it.
	Cancelled bool
}

// fateOf returns the fate of a chat.
func (k *known) fateOf(id string) *Fate {
	f := &Fate{Key: blockKey(id) + "-fate"}
	said := k.ledger.Of(entry.ChatWork, id)
	if by := said.Seen(entry.QueueCancelled{}.Type()); by != nil {
		f.Words, f.Cancelled = "cancelled by "+k.nameOf(by.Author)+"; "+k.namedDriver()+" was not told this", true
	} else if by := said.Seen(entry.QueueEdited{}.Type()); by != nil {
		edit, _ := entry.SeenAs[entry.QueueEdited](by)
		f.Words = "edited by " + k.nameOf(by.Author) + " for " + k.namedDriver() + ": " + edit.Text
	}
	return f
}
