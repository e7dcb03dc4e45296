package thread

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Status is the current state of a thread. It is an index over the log, which has the full report.
// Its values depend on whether a bot drives the thread.
//
//	chat:    open ⇄ closed
//	driven:  idle → running → completed | failed | cancelled → running …
type Status string

// The statuses of a chat, and those of a thread that a bot drives.
const (
	Open   Status = "open"
	Closed Status = "closed"

	Idle      Status = "idle"
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// transitions lists the statuses that may follow each status.
var transitions = map[Status][]Status{
	Open:      {Closed},
	Closed:    {Open},
	Idle:      {Running, Failed, Cancelled},
	Running:   {Completed, Failed, Cancelled},
	Completed: {Running},
	Failed:    {Running},
	Cancelled: {Running},
}

// initialStatus returns the status of a new thread.
func initialStatus(driver string) Status {
	if driver == "" {
		return Open
	}
	return Idle
}

// changeStatus changes a thread's status and records it in the thread's log in the same transaction. The caller has
// locked the row, so that th has the current status. author is the agent who did it, or empty for arbe itself; reason
// may be empty. A transition that is not allowed is a [fault.Precondition].
func (t *Threads) changeStatus(ctx context.Context, tx pgx.Tx, th Thread, to Status, author, reason string) error {
	if !slices.Contains(transitions[th.Status], to) {
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
