package dispatch

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// parkTurnTx sets a turn aside until it is due, or until [Dispatcher.Answer] queues it. The worker's job ends and a new job
// waits in its place. Reusing the job would be wrong: the queue reports the end of a job by its id a moment later, and would
// take the restarted job for the one that ended.
func (d *Dispatcher) parkTurnTx(ctx context.Context, tx pgx.Tx, t turn.Turn) error {
	return d.Jobs.ReplaceTx(ctx, tx, turnArgs{t.House, t.Thread, t.ID}, "turn", t.ID, t.Due)
}

// Answer records the answer of the scope's agent to a request for approval, and lets the bot continue. Errors: those of
// [approval.AnswerTx], and [fault.Precondition] if the thread is closed.
func (d *Dispatcher) Answer(ctx context.Context, scope db.Scope, a approval.Answer) (answered approval.Approval, err error) {
	asked, err := d.Approval(ctx, scope, a.Approval)
	if err == nil && asked.Epoch > 0 && asked.Thread == a.Thread {
		return d.Runs.Answer(ctx, scope, a)
	} else if err != nil && fault.CodeOf(err) != fault.NotFound { // the transaction below returns the reason
		return answered, err
	}
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.threads.GetTx(ctx, tx, a.Thread)
		if err != nil {
			return err
		}
		var resume string
		answered, resume, err = turn.AnswerTx(ctx, tx, d.log, th.Stream(), scope.Agent, a)
		switch {
		case err != nil:
			return err
		case !runs(th.Status):
			return fault.New(fault.Precondition, "this thread is closed, so its bots have stopped", "reopen it, and ask the bot again")
		case resume == "":
			return nil
		}
		return d.rescheduleTx(ctx, tx, turn.Turn{ID: resume})
	})
	return answered, err
}

// runs reports whether bots may work in a thread with this status.
func runs(s thread.Status) bool {
	return s == thread.Open || s == thread.Idle || s == thread.Running
}

// Approval returns an approval of the scope's house, or a [fault.NotFound].
func (d *Dispatcher) Approval(ctx context.Context, scope db.Scope, id string) (found approval.Approval, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		found, err = approval.GetTx(ctx, tx, scope.House, id)
		return err
	})
	return found, err
}

// OpenApprovals returns up to limit open requests for approval of the scope's house, oldest first, after a cursor. If a
// thread is given, it returns only that thread's.
func (d *Dispatcher) OpenApprovals(ctx context.Context, scope db.Scope, threadID string, after db.Cursor, limit int) (list []approval.Approval, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		list, err = approval.OpenTx(ctx, tx, scope.House, threadID, after, limit)
		return err
	})
	return list, err
}

// StatusChanged ends the turns that wait for people in a closed thread. If it is not called, or fails, a sweep ends them.
func (d *Dispatcher) StatusChanged(ctx context.Context, scope db.Scope, th thread.Thread) error {
	if runs(th.Status) {
		return nil
	}
	return d.db.In(ctx, scope, func(tx pgx.Tx) error {
		asking, err := turn.AskingTx(ctx, tx, scope.House, th.ID)
		for _, id := range asking {
			if err == nil {
				err = d.rescheduleTx(ctx, tx, turn.Turn{ID: id})
			}
		}
		return err
	})
}
