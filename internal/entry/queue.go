package entry

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
	return []string{Chat{}.Type(), QueueEdited{}.Type(), QueueMoved{}.Type(), QueueCancelled{}.Type(), QueueTaken{}.Type()}
}

func validQueued(id string) error {
	if id == "" || len(id) > maxID || strings.ContainsRune(id, 0) {
		return fault.New(fault.Invalid, "entry_id: it is not the id of an entry", "use the id of a waiting message")
	}
	return nil
}

// Queue holds the messages to the agent that drives a thread that were not yet taken for it, in the order in which they will
// be. The server and the runner both read the log with this type, so that they agree. It is not safe for concurrent use.
type Queue struct {
	agent string
	// through is the position up to which nothing waits, and done the position of the last message that was taken or
	// cancelled.
	through, done int64
	waiting       []Queued
	changes       int
}

// Queued is a waiting message.
type Queued struct {
	ID, Author string
	Seq        int64
	Time       time.Time
	// Chat is the message as the agent will get it, with the text of the last edit.
	Chat Chat
	// Version is the position of its last change, or its own. EditedAt is the position of the last edit, and EditedBy its
	// author; zero if there was none.
	Version, EditedAt int64
	EditedBy          string
}

// NewQueue returns the queue of an agent that has, or does not need, the messages up to a position. Later entries must be
// learned in the order of the log; earlier ones have no effect.
func NewQueue(agent string, through int64) *Queue { return &Queue{agent: agent, through: through} }

// Learn learns an entry.
func (q *Queue) Learn(e Entry) {
	if e.Seq <= q.through {
		return
	}
	p, _ := Decode(e)
	switch p := p.(type) {
	case Chat:
		if q.agent == "" || e.Author != q.agent {
			q.waiting = append(q.waiting, Queued{ID: e.ID, Author: e.Author, Seq: e.Seq, Time: e.Time, Chat: p, Version: e.Seq})
		}
	case QueueEdited:
		q.changes++
		if i := q.index(p.EntryID); i >= 0 {
			w := &q.waiting[i]
			w.Chat.Text, w.Version, w.EditedAt, w.EditedBy = p.Text, e.Seq, e.Seq, e.Author
		}
	case QueueMoved:
		q.changes++
		q.move(p, e.Seq)
	case QueueCancelled:
		q.changes++
		q.Take(p.EntryID)
	case QueueTaken:
		q.Take(p.EntryIDs...)
	}
}

func (q *Queue) index(id string) int {
	return slices.IndexFunc(q.waiting, func(w Queued) bool { return w.ID == id })
}

func (q *Queue) move(p QueueMoved, at int64) {
	from := q.index(p.EntryID)
	if from < 0 || p.Before != "" && q.index(p.Before) < 0 {
		return
	}
	w := q.waiting[from]
	w.Version = at
	q.waiting = slices.Delete(q.waiting, from, from+1)
	to := len(q.waiting)
	if p.Before != "" {
		to = q.index(p.Before)
	}
	q.waiting = slices.Insert(q.waiting, to, w)
}

// Take removes messages from the queue.
func (q *Queue) Take(ids ...string) {
	taken := map[string]bool{}
	for _, id := range ids {
		taken[id] = true
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(w Queued) bool {
		if taken[w.ID] {
			q.done = max(q.done, w.Seq)
		}
		return taken[w.ID]
	})
	through := q.done
	for _, w := range q.waiting {
		through = min(through, w.Seq-1)
	}
	q.through = max(q.through, through)
}

// Waiting returns the waiting messages, in the order in which they will be taken. The caller must not change the slice.
func (q *Queue) Waiting() []Queued { return q.waiting }

// Find returns a waiting message.
func (q *Queue) Find(id string) (w Queued, waits bool) {
	if i := q.index(id); i >= 0 {
		return q.waiting[i], true
	}
	return w, false
}

// Through returns the position up to which nothing waits.
func (q *Queue) Through() int64 { return q.through }

// Changes returns the number of changes it has learned.
func (q *Queue) Changes() int { return q.changes }
