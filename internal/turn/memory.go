package turn

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// A bot reads the last entries of a thread unchanged. This file stores the position of the first of them, and the
// replacement for the entries before it: a summary, and the spans that no summary covers. The beginning changes rarely,
// so that requests begin alike. All bots of a thread share it. compact.go decides when it changes.

// maxSpans limits the spans of unread entries of a thread. Beyond it, neighbours are merged, together with the entries
// between them.
const maxSpans = 8

// leaveOut adds entries without a summary, after the existing spans.
func (m *memory) leaveOut(s span) {
	if s.To < s.From {
		return
	}
	m.unread = append(m.unread[:len(m.unread):len(m.unread)], s)
	if n := len(m.unread); n > 1 && m.unread[n-2].To+1 == s.From || n > maxSpans {
		at := n - 2
		if m.unread[at].To+1 != s.From {
			at = 0
		}
		joined := span{m.unread[at].From, m.unread[at+1].To, m.unread[at].Since, m.unread[at+1].Until}
		m.unread = append(append(m.unread[:at:at], joined), m.unread[at+2:]...)
	}
}

// recall reads the end of the thread and its memory.
func (r *run) recall(ctx context.Context) error {
	t := &r.transcript
	t.reads = slices.ContainsFunc(r.tools, func(t Tool) bool { return t.Name == entry.ReadThreadTool })
	tokens, err := r.readMemory(ctx)
	if err != nil {
		return err
	}
	from := t.memory.begins
	if r.turn.Steps > 0 { // another server made the last step, which must be read
		last, err := r.log.Get(ctx, r.ref, r.turn.stepID(r.turn.Steps))
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			return err
		} else if err == nil {
			from, tokens = min(from, last.Seq), r.budget()
		}
	}
	if err := t.load(ctx, r.log, r.ref, from, tokens); err != nil {
		return err
	}
	if err := t.readAsked(ctx, r.log, r.ref, r.turn.AskedSeqs); err != nil {
		return err
	}
	if t.states, err = entrystate.Of(ctx, r.db, r.ref, t.entries); err != nil {
		return err
	}
	if r.turn.Steps > 0 {
		t.admit()
	}
	return nil
}

// readMemory reads the thread's memory, and returns for how many tokens entries are read after it.
func (r *run) readMemory(ctx context.Context) (tokens int64, err error) {
	t := &r.transcript
	tokens = r.most()
	err = r.db.In(ctx, r.scope(), func(tx pgx.Tx) error {
		row, err := queries.ThreadSummary(ctx, tx, r.turn.House, r.turn.Thread)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		t.memory = memory{begins: row.Begins, summary: row.Summary, model: row.Model, by: db.Zero(row.AgentID)}
		if row.Depth == 0 {
			t.memory.version = int(row.Version)
		}
		if len(row.Unread) > 0 {
			if err := json.Unmarshal(row.Unread, &t.memory.unread); err != nil {
				return err
			}
		}
		had, err := queries.HadTurns(ctx, tx, r.turn.House, r.turn.Thread, r.turn.ID)
		if err == nil && had { // a summary may replace these entries
			tokens = r.budget()
		}
		return err
	})
	return tokens, err
}

// follow reads the entries written since, and the present states of all.
func (r *run) follow(ctx context.Context) (err error) {
	t := &r.transcript
	if err = t.follow(ctx, r.log, r.ref); err == nil {
		t.states, err = entrystate.Of(ctx, r.db, r.ref, t.entries)
	}
	return err
}

// admit makes the transcript say that entries between the memory and its own entries are left out, if there are any.
func (t *transcript) admit() {
	if t.reached || len(t.entries) == t.lead {
		return
	}
	begins := t.entries[t.lead].Seq
	t.memory.leaveOut(span{From: max(t.memory.begins, 1), To: begins - 1})
	t.memory.begins, t.reached = begins, true
}

// readAsked puts the entries that the turn answers before the others if they are not among them.
func (t *transcript) readAsked(ctx context.Context, log *stream.Log, ref stream.Ref, asked []int64) error {
	const most = 5 // the last ones
	t.asked = map[int64]bool{}
	for _, seq := range asked[max(len(asked)-most, 0):] {
		t.asked[seq] = true
	}
	var before []entry.Entry
	for _, seq := range asked[max(len(asked)-most, 0):] {
		if len(t.entries) > 0 && seq >= t.entries[0].Seq || seq < 1 {
			continue
		}
		page, _, err := log.Read(ctx, ref, stream.Range{After: seq - 1, Limit: 1})
		if err != nil {
			return err
		}
		before = append(before, page...)
	}
	sortBySeq(before)
	t.lead, t.entries = len(before), append(before, t.entries...)
	return nil
}

// cutTo drops the entries before an index, except those that the turn answers.
func (t *transcript) cutTo(at int) {
	var before []entry.Entry
	for _, e := range t.entries[:at] {
		if t.asked[e.Seq] {
			before = append(before, e)
		}
	}
	t.lead, t.entries = len(before), append(before, t.entries[at:]...)
}
