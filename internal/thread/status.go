package thread

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Status is the bucket a thread is in now: an index over its log, not the report (seed 000, "one
// subagent status enum"). Who drives it picks the vocabulary.
//
//	chat:    open ⇄ closed
//	driven:  idle → running → completed | failed | cancelled → running …
type Status string

// The statuses of a chat, and of a thread that a bot drives.
const (
	Open   Status = "open"
	Closed Status = "closed"

	Idle      Status = "idle"
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// next is where each status may lead.
var next = map[Status][]Status{
	Open:      {Closed},
	Closed:    {Open},
	Idle:      {Running, Failed, Cancelled},
	Running:   {Completed, Failed, Cancelled},
	Completed: {Running},
	Failed:    {Running},
	Cancelled: {Running},
}

// first is the status a thread begins with.
func first(driver string) Status {
	if driver == "" {
		return Open
	}
	return Idle
}

// SetStatusTx changes a thread's status and tells it in the thread's log, as one. author is the agent who
// did it, empty for arbe itself; reason may be empty. The status it has already is no change and no
// entry. A step that the machine does not have is a [fault.Precondition].
func (t *Threads) SetStatusTx(ctx context.Context, tx pgx.Tx, id string, to Status, author, reason string) error {
	th, err := t.LockTx(ctx, tx, id)
	if err != nil || th.Status == to {
		return err
	}
	return t.flip(ctx, tx, th, to, author, reason)
}

// flip makes a step of the machine; the caller holds the row.
func (t *Threads) flip(ctx context.Context, tx pgx.Tx, th Thread, to Status, author, reason string) error {
	if !slices.Contains(next[th.Status], to) {
		return fault.Newf(fault.Precondition, "see its status with: arbe thread show "+th.ID,
			"a thread that is %s cannot become %s", th.Status, to)
	}
	if err := t.q.SetThreadStatus(ctx, tx, string(to), th.ID); err != nil {
		return err
	}
	_, err := t.log.AppendTx(ctx, tx, th.Stream(), entry.NewDraft("", author,
		entry.StatusChanged{From: string(th.Status), To: string(to), Reason: reason}))
	return err
}
