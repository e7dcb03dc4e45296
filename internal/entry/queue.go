package entry

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// What is said in a thread that a coding agent drives waits until the runner takes it for the agent. Until then any member of the
// house may edit it, move it and cancel it. The entries in this file are these changes, and that the runner took something; the
// message itself stays in the log as it was said. A [Queue] reads from them what waits.

// MaxQueued is the longest text that a message which waits can be given, in bytes.
const MaxQueued = MaxTask

// MaxTaken is how many messages are taken at once.
const MaxTaken = 500

// QueueEdited records that somebody changed the text of a message that waits. Its author is who did.
type QueueEdited struct {
	// EntryID is the id of the [Chat].
	EntryID string `json:"entry_id"`
	// Text is what the agent is told instead. The files of the message stay.
	Text string `json:"text"`
}

func (QueueEdited) Type() string { return "signal.queue.edited" }

func (q QueueEdited) parts(Entry) []Part { return []Part{{Work{ChatWork, q.EntryID}, Notes}} }

func (q QueueEdited) Validate() error {
	switch {
	case strings.TrimSpace(q.Text) == "":
		return fault.New(fault.Invalid, "text: it is empty", "write something, or cancel the message")
	case len(q.Text) > MaxQueued:
		return fault.Newf(fault.Exhausted, "put what is long into a file, and name it", "text: it may have at most %d bytes, and this has %d", MaxQueued, len(q.Text)).WithReason(fault.TooLarge)
	case strings.ContainsRune(q.Text, 0):
		return fault.New(fault.Invalid, "text: it has a NUL byte", "remove the NUL byte")
	}
	return validQueued(q.EntryID)
}

func (q QueueEdited) Plain() string { return "the message " + q.EntryID + " now says: " + q.Text }

// QueueMoved records that somebody moved a message that waits. Its author is who did.
type QueueMoved struct {
	EntryID string `json:"entry_id"`
	// Before is the message that comes next after it now; empty if it is the last.
	Before string `json:"before,omitempty"`
}

func (QueueMoved) Type() string { return "signal.queue.moved" }

func (q QueueMoved) parts(Entry) []Part { return []Part{{Work{ChatWork, q.EntryID}, Notes}} }

func (q QueueMoved) Validate() error {
	if q.EntryID == q.Before {
		return fault.New(fault.Invalid, "before: it is the message itself", "name the message that is to come next after it, or none to make it the last")
	}
	return validQueued(q.EntryID)
}

func (q QueueMoved) Plain() string {
	if q.Before == "" {
		return "the message " + q.EntryID + " is the last of those that wait"
	}
	return "the message " + q.EntryID + " comes before " + q.Before
}

// QueueCancelled records that somebody cancelled a message that waited: the agent is not told it. Its author is who did.
type QueueCancelled struct {
	EntryID string `json:"entry_id"`
}

func (QueueCancelled) Type() string { return "signal.queue.cancelled" }

func (q QueueCancelled) parts(Entry) []Part { return []Part{{Work{ChatWork, q.EntryID}, Notes}} }

func (q QueueCancelled) Validate() error { return validQueued(q.EntryID) }

func (q QueueCancelled) Plain() string { return "the message " + q.EntryID + " is cancelled" }

// QueueTaken records that the runner of a run took messages, in this order, to give them to its agent. From then on they cannot be
// changed.
type QueueTaken struct {
	Epoch    int64    `json:"epoch"`
	EntryIDs []string `json:"entry_ids"`
	// Read is the position up to which the runner had read the log. If one of the messages was changed behind it, the runner may not
	// take it.
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

// QueueEntries are the types of the entries of which a [Queue] learns.
func QueueEntries() []string {
	return []string{Chat{}.Type(), QueueEdited{}.Type(), QueueMoved{}.Type(), QueueCancelled{}.Type(), QueueTaken{}.Type()}
}

func validQueued(id string) error {
	if id == "" || len(id) > maxID || strings.ContainsRune(id, 0) {
		return fault.New(fault.Invalid, "entry_id: it is not the id of an entry", "use the id of a message that waits")
	}
	return nil
}

// Queue is what was said to the agent that drives a thread and was not taken for it yet, in the order in which it will be. The server
// and the runner both read it from the log with this type, so that they agree. It is not safe for concurrent use.
type Queue struct {
	agent string
	// through is the position up to which nothing waits, and done that of the last message that was taken or cancelled.
	through, done int64
	waiting       []Queued
	changes       int
}

// Queued is a message that waits.
type Queued struct {
	ID, Author string
	Seq        int64
	Time       time.Time
	// Chat is what the agent will be told: the message, with the text of the last edit.
	Chat Chat
	// Version is the position of the entry that changed it last; its own if nobody has. EditedAt is the position of the last edit, and
	// EditedBy its author; 0 and empty if nobody has edited it.
	Version, EditedAt int64
	EditedBy          string
}

// NewQueue returns the queue of an agent that has, or needs not, everything that was said up to a position. It learns the entries
// behind that in the order of the log; earlier ones change nothing.
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

// Take removes messages, which wait no more.
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

// Waiting returns what waits, in the order in which it will be taken. The caller must not change it.
func (q *Queue) Waiting() []Queued { return q.waiting }

// Find returns a message that waits.
func (q *Queue) Find(id string) (w Queued, waits bool) {
	if i := q.index(id); i >= 0 {
		return q.waiting[i], true
	}
	return w, false
}

// Through is the position up to which nothing waits.
func (q *Queue) Through() int64 { return q.through }

// Changes is how many changes it has learned.
func (q *Queue) Changes() int { return q.changes }
