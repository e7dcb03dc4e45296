package entry

import (
	"slices"
	"time"
)

// Queue holds the messages that wait for the agent that drives a thread, in the order in which they will be taken. The server
// and the runner both read the log with this type, so that they agree. It is not safe for concurrent use.
type Queue struct {
	agent string
	// through is the position up to which nothing waits, and done the position of the last message that was taken or
	// cancelled.
	through, done int64
	// moved means that a message was put before another since the queue was last empty, and named is the position before the
	// first of those others. The order of the queue follows from entries after named only, even if some of them are gone.
	moved   bool
	named   int64
	waiting []Queued
	changes int
}

// Queued is a waiting message.
type Queued struct {
	ID, Author string
	Seq        int64
	Time       time.Time
	// Chat is the message as the agent will get it, with the text of the last edit.
	Chat Chat
	// Version is the position of its last change, or of the message if it was not changed. EditedAt is the position of the
	// last edit, and EditedBy its author; zero if there was none.
	Version, EditedAt int64
	EditedBy          string
	// Later means that the agent gets it after its current work, even if the agent could take it during that work.
	Later bool
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
			q.waiting = append(q.waiting, Queued{ID: e.ID, Author: e.Author, Seq: e.Seq, Time: e.Time, Chat: p, Version: e.Seq, Later: p.Queue})
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
	case QueueTimed:
		q.changes++
		if i := q.index(p.EntryID); i >= 0 {
			q.waiting[i].Version, q.waiting[i].Later = e.Seq, p.Queue
		}
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
	if p.Before != "" {
		first := min(w.Seq, q.waiting[q.index(p.Before)].Seq) - 1
		if !q.moved || first < q.named {
			q.moved, q.named = true, first
		}
	}
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
	if len(q.waiting) == 0 {
		q.moved = false
	} else if q.moved {
		through = min(through, q.named)
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

// Through returns the position up to which nothing waits. A queue that begins there, and learns the entries after it, has the
// same messages in the same order.
func (q *Queue) Through() int64 { return q.through }

// Changes returns the number of changes it has learned.
func (q *Queue) Changes() int { return q.changes }
