package run

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

// This file lets another coding agent continue the work of a thread. The agent works in a child thread, because a
// thread has one agent, whose session its runs share. The child's log is a fork of the thread's. From it, the runner
// rebuilds the session as for a fresh sandbox, whichever agent wrote the log.

// continueElsewhereTx lets another bot continue the work of a thread, whose row is locked.
func (r *Runs) continueElsewhereTx(ctx context.Context, tx pgx.Tx, scope db.Scope, th thread.Thread, how Resume) (c Continued, err error) {
	t := Task{ID: how.ID, Parent: th.ID, Text: cmp.Or(how.Task, carryOn), Agent: how.Agent, Sandbox: how.Sandbox, continues: true}
	if err := t.check(r.config.Limits); err != nil {
		return c, err
	}
	child, err := r.spawnTx(ctx, tx, scope, t)
	if err != nil {
		return c, err
	}
	c = Continued{Thread: child.ID, Epoch: child.Run.Epoch}
	if child.Status == thread.Idle {
		c.Epoch++
	}
	return c, nil
}

// mayLeaveTx refuses to continue a thread elsewhere while its own agent works on it.
func (r *Runs) mayLeaveTx(ctx context.Context, tx pgx.Tx, th thread.Thread) error {
	busy := th.Status == thread.Running
	rows, err := r.launchesTx(ctx, tx, th.ID)
	if err != nil {
		return err
	}
	for _, row := range rows {
		var a launchArgs
		busy = busy || row.Args(&a) == nil && a.Epoch > th.Run.Epoch
	}
	if busy {
		return fault.New(fault.Precondition, "the agent of this thread is at work", "post a message for it, or stop it before another agent continues: arbe thread stop "+th.ID)
	}
	return nil
}

// begin returns the first entries of a child after those that it shares with its parent.
func (t Task) begin(author string, child thread.Thread) (drafts []entry.Draft) {
	if child.Origin != nil {
		drafts = append(drafts, entry.NewDraft("", author, entry.Forked{ThreadID: child.Origin.Thread, Seq: child.Origin.Seq}))
	}
	return append(drafts, entry.NewDraft("", author, entry.Chat{Text: t.Text}))
}

// name returns the title of a child.
func (t Task) name(parent thread.Thread) string {
	if t.continues && t.Text == carryOn {
		return cmp.Or(nameOf(parent.Name), nameOf(t.Text))
	}
	return nameOf(t.Text)
}
