package thread

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Direct returns the latest open direct message of the scope's house to the draft's ParentAgent. If there is none, it
// creates one from the draft. Several calls at once return the same thread. Errors: those of [Threads.Create], and a
// [fault.Invalid] if the draft has no ParentAgent.
func (t *Threads) Direct(ctx context.Context, scope db.Scope, d Draft) (found Thread, err error) {
	if d.ParentAgent == "" {
		return Thread{}, fault.New(fault.Invalid, "reuse: there is no parent_agent_id, and only direct messages are reused", "name an agent, or leave reuse out")
	}
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := t.q.LockDirect(ctx, tx, scope.House, d.ParentAgent); err != nil {
			return err
		}
		// The agent may have left since the last message.
		if _, err := t.q.AgentName(ctx, tx, d.ParentAgent); errors.Is(err, pgx.ErrNoRows) {
			return noSuch("parent_agent_id")
		} else if err != nil {
			return err
		}
		id, err := t.q.DirectThread(ctx, tx, scope.House, &d.ParentAgent)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			found, err = t.CreateTx(ctx, tx, scope, d)
		case err == nil:
			found, err = t.GetTx(ctx, tx, id)
		}
		return err
	})
	return found, err
}
