package thread

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// maxQueue limits the waiting messages and changes that people can see and change. maxTaken is the limit for a runner
// that takes them, because taking is how the queue gets shorter.
const maxQueue, maxTaken = 20_000, 500_000

// QueueTx returns the messages that wait for the agent of a driven thread, without their texts; see
// [Threads.QueuedTx]. If there are too many, the error is a [fault.Exhausted].
func (t *Threads) QueueTx(ctx context.Context, tx pgx.Tx, th Thread) (*entry.Queue, error) {
	return t.queueTx(ctx, tx, th, maxQueue)
}

// LongQueueTx is QueueTx for a caller that takes from the queue. Its limit is much higher.
func (t *Threads) LongQueueTx(ctx context.Context, tx pgx.Tx, th Thread) (*entry.Queue, error) {
	return t.queueTx(ctx, tx, th, maxTaken)
}

func (t *Threads) queueTx(ctx context.Context, tx pgx.Tx, th Thread, most int) (*entry.Queue, error) {
	rows, err := t.q.QueueEntries(ctx, tx, query.QueueEntriesParams{
		HouseID: th.House, Stream: th.StreamID, Through: th.Run.Through, Types: entry.QueueEntries(), MaxRows: int32(most) + 1,
	})
	if err != nil {
		return nil, err
	}
	if len(rows) > most {
		return nil, fault.Newf(fault.Exhausted, "let the agent take some: continue the thread", "more than %d messages and changes wait", most).WithReason(fault.LimitReached)
	}
	q := entry.NewQueue(th.Agent, th.Run.Through)
	for _, r := range rows {
		q.Learn(entry.Entry{Seq: r.Seq, ID: r.ID, Type: r.Type, Author: r.Author, Time: r.Ts, Payload: json.RawMessage(r.Payload)})
	}
	return q, nil
}

// QueuedTx returns a message of [Threads.QueueTx] with its text.
func (t *Threads) QueuedTx(ctx context.Context, tx pgx.Tx, th Thread, w entry.Queued) (entry.Queued, error) {
	text, err := t.q.EntryAt(ctx, tx, th.House, th.StreamID, w.Seq)
	if err != nil {
		return w, err
	}
	w.Chat, _ = entry.As[entry.Chat](entry.Entry{Type: entry.Chat{}.Type(), Payload: json.RawMessage(text)})
	if w.EditedAt == 0 {
		return w, nil
	}
	if text, err = t.q.EntryAt(ctx, tx, th.House, th.StreamID, w.EditedAt); err != nil {
		return w, err
	}
	edit, _ := entry.As[entry.QueueEdited](entry.Entry{Type: entry.QueueEdited{}.Type(), Payload: json.RawMessage(text)})
	w.Chat.Text = edit.Text
	return w, nil
}

// UnreadTx reports whether a message that may begin a run waits for the agent of a driven thread.
func (t *Threads) UnreadTx(ctx context.Context, tx pgx.Tx, th Thread) (bool, error) {
	q, err := t.QueueTx(ctx, tx, th)
	if fault.CodeOf(err) == fault.Exhausted {
		return true, nil
	}
	if err != nil || len(q.Waiting()) == 0 {
		return false, err
	}
	var seqs []int64
	for _, w := range q.Waiting() {
		seqs = append(seqs, w.Seq)
	}
	return t.q.BeginsRun(ctx, tx, th.House, th.StreamID, seqs)
}

// Logged is an entry of a thread, and whether it was cancelled later.
type Logged struct {
	entry.Entry
	// Cancelled means that it is a message that was cancelled while it waited for the agent.
	Cancelled bool
}

// FindEntryTx returns the entry of a thread with an id; ok is false if there is none.
func (t *Threads) FindEntryTx(ctx context.Context, tx pgx.Tx, th Thread, id string) (logged Logged, ok bool, err error) {
	row, err := t.q.SaidEntry(ctx, tx, th.House, th.StreamID, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return logged, false, nil
	}
	logged.Entry = entry.Entry{Seq: row.Seq, ID: id, Type: row.Type, Author: row.Author, Payload: json.RawMessage(row.Payload)}
	logged.Cancelled = row.Cancelled
	return logged, err == nil, err
}

// TakeTx records that no message up to a position waits any more.
func (t *Threads) TakeTx(ctx context.Context, tx pgx.Tx, th Thread, through int64) error {
	return t.q.TakeQueue(ctx, tx, min(through, th.Tail), th.ID)
}
