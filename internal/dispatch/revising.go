package dispatch

import (
	"github.com/arbe-dev/arbe/internal/entry"
)

// Revision is a change of a message by its author.
type Revision struct {
	// ID makes a retry harmless. It becomes the id of the entry that records the change. If it is empty, an id is generated.
	ID string
	// Message is the id of the message. Defaults to the author's last one.
	Message string
	// Text is the new text. Delete deletes the message instead.
	Text   string
	Delete bool
}

// draft returns the entry that records the revision of a message.
func (r Revision) draft(author, message string, seq int64) entry.Draft {
	if r.Delete {
		return entry.NewDraft(r.ID, author, entry.ChatDeleted{EntryID: message, Seq: seq})
	}
	edited := entry.ChatEdited{EntryID: message, Seq: seq, Text: r.Text}
	return entry.Draft{ID: r.ID, Author: author, Type: edited.Type(), Payload: unescapedJSON(edited)}
}

// revising revises a message, in one transaction.
type revising struct {
	*Dispatcher
	Revision
	by   Speaker
	news *News
	// roster has everybody whom a message may mention; nil if a Selector decides which bots messages ask.
	roster *known
}
