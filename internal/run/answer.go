package run

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Answer records an answer of the scope's agent to a coding agent's question. Errors: those of [approval.AnswerTx].
func (r *Runs) Answer(ctx context.Context, scope db.Scope, a approval.Answer) (answered approval.Approval, err error) {
	if th, err := r.config.Threads.Get(ctx, scope, a.Thread); err == nil {
		r.Fresh(ctx, scope, th) // a dead agent cannot be answered
	}
	err = r.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := r.config.Threads.LockTx(ctx, tx, a.Thread)
		if err != nil {
			return err
		}
		var d *entry.Draft
		answered, d, err = approval.AnswerTx(ctx, tx, scope.Agent, a, func(by approval.By) (bool, error) {
			return th.Status == thread.Running && th.Run.Epoch == by.Epoch, nil
		})
		if err != nil || d == nil {
			return err
		}
		_, err = r.config.Log.AppendTx(ctx, tx, th.Stream(), *d)
		return err
	})
	return answered, err
}
