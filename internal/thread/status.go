package thread

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
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
// locked the row, so that th has the current status. author is the agent who did it, or empty for arbe itself; what may
// say more. A transition that is not allowed is a [fault.Precondition].
func (t *Threads) changeStatus(ctx context.Context, tx pgx.Tx, th Thread, to Status, author string, what entry.StatusChanged) error {
	if err := th.may(to); err != nil {
		return err
	}
	if err := t.q.SetThreadStatus(ctx, tx, string(to), th.ID); err != nil {
		return err
	}
	_, err := t.log.AppendTx(ctx, tx, th.Stream(), th.changed(to, author, what))
	return err
}

// may returns an error if the thread's status must not become another one.
func (t Thread) may(to Status) error {
	if slices.Contains(transitions[t.Status], to) {
		return nil
	}
	return fault.Newf(fault.Precondition, "see its status with: arbe thread show "+t.ID, "a thread that is %s cannot become %s", t.Status, to)
}

// changed returns the entry that records a change of status.
func (t Thread) changed(to Status, author string, what entry.StatusChanged) entry.Draft {
	what.From, what.To = string(t.Status), string(to)
	return entry.NewDraft("", author, what)
}
