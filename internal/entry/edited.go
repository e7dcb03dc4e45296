package entry

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Authors may edit and delete their messages. The log keeps the message as it was said, and a later entry records the new
// text or the deletion. Code that shows messages, or gives them to a model, uses the last such entry. Package entrystate
// returns the present state of a message without reading the rest of the log.

// MaxEdited is the longest text of an edited message in bytes. It is shorter than [MaxText], because a page of a log is read
// together with the present texts of its messages, whatever their number.
const MaxEdited = 32 << 10

// ChatEdited records that the author of a message changed its text. Both entries have the same author.
type ChatEdited struct {
	// EntryID is the id of the [Chat].
	EntryID string `json:"entry_id"`
	// Seq is the position of the message.
	Seq int64 `json:"seq"`
	// Text is the new text. Everything else of the message stays, such as its files.
	Text string `json:"text"`
}

func (ChatEdited) Type() string { return "signal.chat.edited" }

func (c ChatEdited) parts(Entry) []Part { return []Part{{Work{ChatWork, c.EntryID}, Notes}} }

func (c ChatEdited) Validate() error {
	switch {
	case strings.TrimSpace(c.Text) == "":
		return fault.New(fault.Invalid, "text: it is empty", "write something, or delete the message")
	case len(c.Text) > MaxEdited:
		return fault.Newf(fault.Exhausted, "shorten it, or say it in a new message", "text: an edited message may have at most %d bytes, and this has %d", MaxEdited, len(c.Text)).WithReason(fault.TooLarge)
	case strings.ContainsRune(c.Text, 0):
		return fault.New(fault.Invalid, "text: it has a NUL byte", "remove the NUL byte")
	}
	return validChat(c.EntryID, c.Seq)
}

// Plain leaves out the text, because the message may have been deleted since. No text of a deleted message is shown.
func (c ChatEdited) Plain() string { return "edited the message " + c.EntryID }

// ChatDeleted records that the author of a message deleted it. Both entries have the same author. From then on, neither the
// text nor the edits are shown to people or models.
type ChatDeleted struct {
	// EntryID is the id of the [Chat], and Seq its position.
	EntryID string `json:"entry_id"`
	Seq     int64  `json:"seq"`
}

func (ChatDeleted) Type() string { return "signal.chat.deleted" }

func (c ChatDeleted) parts(Entry) []Part { return []Part{{Work{ChatWork, c.EntryID}, Notes}} }

func (c ChatDeleted) Validate() error { return validChat(c.EntryID, c.Seq) }

func (c ChatDeleted) Plain() string { return "deleted the message " + c.EntryID }

// Quiet is the prefix of the types of entries that only describe another message. They do not move a thread up in lists, and
// do not count as unread.
const Quiet = "signal.chat."

func validChat(id string, seq int64) error {
	if seq < 1 {
		return fault.New(fault.Invalid, "seq: it is not the position of an entry", "give the position of the message")
	}
	if id == "" || len(id) > maxID || strings.ContainsRune(id, 0) {
		return fault.New(fault.Invalid, "entry_id: it is not the id of an entry", "use the id of a message of this thread")
	}
	return nil
}
