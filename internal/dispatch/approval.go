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

// parkTurnTx leaves a turn that a worker comes back from alone until it is due, or [Dispatcher.Answer] queues it again. The
// worker's job ends and another one waits, because the queue reports the end of a job by its id a moment later: it would
// take a job that has begun once more for the one that ended.
func (d *Dispatcher) parkTurnTx(ctx context.Context, tx pgx.Tx, t turn.Turn) error {
	return d.Jobs.ReplaceTx(ctx, tx, turnArgs{t.House, t.Thread, t.ID}, "turn", t.ID, t.Due)
}

// Answer records what the scope's agent says to a bot that asks for approval, and lets the bot go on. Errors: those of
// [approval.AnswerTx], and [fault.Precondition] if the thread is closed.
func (d *Dispatcher) Answer(ctx context.Context, scope db.Scope, a approval.Answer) (answered approval.Approval, err error) {
	asked, err := d.Approval(ctx, scope, a.Approval)
	if err == nil && asked.Epoch > 0 && asked.Thread == a.Thread {
		return d.Runs.Answer(ctx, scope, a)
	} else if err != nil && fault.CodeOf(err) != fault.NotFound { // the transaction below says what is wrong
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
			return fault.New(fault.Precondition, "this thread is closed, so its bots do nothing more", "reopen it, and let the bot try again")
		case resume == "":
			return nil
		}
		return d.rescheduleTx(ctx, tx, turn.Turn{ID: resume})
	})
	return answered, err
}

// runs reports whether bots work in a thread with this status.
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

// OpenApprovals returns up to limit requests for approval of the scope's house that wait for an answer, after a cursor, the
// oldest first. With a thread, it returns only those of that thread.
func (d *Dispatcher) OpenApprovals(ctx context.Context, scope db.Scope, threadID string, after db.Cursor, limit int) (list []approval.Approval, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		list, err = approval.OpenTx(ctx, tx, scope.House, threadID, after, limit)
		return err
	})
	return list, err
}

// StatusChanged ends the turns that wait for people in a thread that was closed. If it is not called, or fails, a sweep ends
// them.
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
