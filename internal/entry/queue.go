package entry

import (
	"fmt"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// A message in a thread that a coding agent drives waits until the runner takes it for the agent. Until then any member of
// the house may edit, move or cancel it. The entries in this file record these changes and the taking; the message itself
// stays in the log unchanged. A [Queue] reads from them which messages wait.

// MaxQueued limits the new text of a waiting message, in bytes.
const MaxQueued = MaxTask

// MaxTaken limits the messages taken at once.
const MaxTaken = 500

// QueueEdited records that its author changed the text of a waiting message.
type QueueEdited struct {
	// EntryID is the id of the [Chat].
	EntryID string `json:"entry_id"`
	// Text is the new text for the agent. The files of the message stay.
	Text string `json:"text"`
}

func (QueueEdited) Type() string { return "signal.queue.edited" }

func (q QueueEdited) parts(Entry) []Part { return []Part{{Work{ChatWork, q.EntryID}, Notes}} }

func (q QueueEdited) Validate() error {
	switch {
	case strings.TrimSpace(q.Text) == "":
		return fault.New(fault.Invalid, "text: it is empty", "write something, or cancel the message")
	case len(q.Text) > MaxQueued:
		return fault.Newf(fault.Exhausted, "put long text into a file, and name it", "text: it may have at most %d bytes, and this has %d", MaxQueued, len(q.Text)).WithReason(fault.TooLarge)
	case strings.ContainsRune(q.Text, 0):
		return fault.New(fault.Invalid, "text: it has a NUL byte", "remove the NUL byte")
	}
	return validQueued(q.EntryID)
}

func (q QueueEdited) Plain() string { return "the message " + q.EntryID + " now says: " + q.Text }

// QueueMoved records that its author moved a waiting message.
type QueueMoved struct {
	EntryID string `json:"entry_id"`
	// Before is the message that now follows it; empty if it is the last.
	Before string `json:"before,omitempty"`
}

func (QueueMoved) Type() string { return "signal.queue.moved" }

func (q QueueMoved) parts(Entry) []Part { return []Part{{Work{ChatWork, q.EntryID}, Notes}} }

func (q QueueMoved) Validate() error {
	if q.EntryID == q.Before {
		return fault.New(fault.Invalid, "before: it is the message itself", "name the message that is to follow it, or none to make it the last")
	}
	return validQueued(q.EntryID)
}

func (q QueueMoved) Plain() string {
	if q.Before == "" {
		return "the message " + q.EntryID + " is now the last in the queue"
	}
	return "the message " + q.EntryID + " comes before " + q.Before
}

// QueueTimed records that its author chose when the agent gets a waiting message.
type QueueTimed struct {
	EntryID string `json:"entry_id"`
	// Queue means after the agent's current work. Otherwise the agent gets the message during that work, if it can take
	// messages then.
	Queue bool `json:"queue"`
}

func (QueueTimed) Type() string { return "signal.queue.timed" }

func (q QueueTimed) parts(Entry) []Part { return []Part{{Work{ChatWork, q.EntryID}, Notes}} }

func (q QueueTimed) Validate() error { return validQueued(q.EntryID) }

func (q QueueTimed) Plain() string {
	if q.Queue {
		return "the message " + q.EntryID + " waits until the current work is done"
	}
	return "the message " + q.EntryID + " reaches the current work"
}

// QueueCancelled records that its author cancelled a waiting message: the agent does not get it.
type QueueCancelled struct {
	EntryID string `json:"entry_id"`
}

func (QueueCancelled) Type() string { return "signal.queue.cancelled" }

func (q QueueCancelled) parts(Entry) []Part { return []Part{{Work{ChatWork, q.EntryID}, Notes}} }

func (q QueueCancelled) Validate() error { return validQueued(q.EntryID) }

func (q QueueCancelled) Plain() string { return "the message " + q.EntryID + " is cancelled" }

// QueueTaken records that the runner of a run took messages for its agent, in this order. From then on they cannot be
// changed.
type QueueTaken struct {
	Epoch    int64    `json:"epoch"`
	EntryIDs []string `json:"entry_ids"`
	// Read is the position up to which the runner had read the log. If one of the messages was changed after it, the runner
	// may not take it.
	Read int64 `json:"read"`
}

func (QueueTaken) Type() string { return "signal.queue.taken" }

func (q QueueTaken) parts(Entry) []Part {
	parts := []Part{{Work{RunWork, RunID(q.Epoch)}, Updates}}
	for _, id := range q.EntryIDs {
		parts = append(parts, Part{Work{ChatWork, id}, Notes})
	}
	return parts
}

func (q QueueTaken) Validate() error {
	switch {
	case q.Epoch < 1:
		return noEpoch()
	case len(q.EntryIDs) == 0 || len(q.EntryIDs) > MaxTaken:
		return fault.Newf(fault.Invalid, "take the others later", "entry_ids: between 1 and %d messages are taken at once", MaxTaken)
	case q.Read < 0:
		return fault.New(fault.Invalid, "read: it is negative", "give the position of an entry")
	}
	seen := map[string]bool{}
	for _, id := range q.EntryIDs {
		if err := validQueued(id); err != nil {
			return err
		}
		if seen[id] {
			return fault.New(fault.Invalid, "entry_ids: a message is named twice", "name it once")
		}
		seen[id] = true
	}
	return nil
}

func (q QueueTaken) Plain() string {
	if len(q.EntryIDs) == 1 {
		return "the agent was given the message " + q.EntryIDs[0]
	}
	return fmt.Sprintf("the agent was given %d messages", len(q.EntryIDs))
}

// QueueEntries lists the types of entries that a [Queue] learns from.
func QueueEntries() []string {
	return []string{Chat{}.Type(), QueueEdited{}.Type(), QueueMoved{}.Type(), QueueTimed{}.Type(), QueueCancelled{}.Type(), QueueTaken{}.Type()}
}

func validQueued(id string) error {
	if id == "" || len(id) > maxID || strings.ContainsRune(id, 0) {
		return fault.New(fault.Invalid, "entry_id: it is not the id of an entry", "use the id of a waiting message")
	}
	return nil
}
