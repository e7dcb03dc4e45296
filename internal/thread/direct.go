package thread

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// A direct message is a thread that is listed only for its people: one person who speaks to a bot, or two people who
// speak to each other. It is not secret. Houses are the privacy boundary, so everyone in the house who has its id may
// read it.

// Direct returns the latest open direct message between the scope's agent and the draft's ParentAgent. If there is
// none, it creates one from the draft. Concurrent calls return the same thread. Errors: those of [Threads.Create],
// and a [fault.Invalid] if the draft has no ParentAgent.
func (t *Threads) Direct(ctx context.Context, scope db.Scope, d Draft) (found Thread, err error) {
	if d.ParentAgent == "" {
		return Thread{}, fault.New(fault.Invalid, "reuse: there is no parent_agent_id, and only direct messages can be reused", "name an agent, or leave reuse out")
	}
	err = t.db.In(ctx, scope, func(tx pgx.Tx) error {
		if err := t.q.LockDirect(ctx, tx, scope.House); err != nil {
			return err
		}
		// The agent may have left since the last message.
		if _, err := t.q.NameOfAgent(ctx, tx, d.ParentAgent); errors.Is(err, pgx.ErrNoRows) {
			return noSuch("parent_agent_id")
		} else if err != nil {
			return err
		}
		people, err := t.peopleTx(ctx, tx, scope, d)
		if err != nil {
			return err
		}
		id, err := t.q.DirectThread(ctx, tx, scope.House, people, d.ParentAgent)
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
