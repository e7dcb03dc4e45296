package dispatch

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/turn"
)

// Decisions says up to which entry a thread has been decided, and which turns still wait.
type Decisions struct {
	// Upto is the position of the last entry that was decided.
	Upto int64
	// Delayed are the turns that wait in case somebody else speaks first. The log has no entries about them.
	Delayed []turn.Turn
}

// Decisions returns the state of decisions about a thread. If the caller reads the log after this call, it has the results
// of those decisions.
func (d *Dispatcher) Decisions(ctx context.Context, scope db.Scope, threadID string) (s Decisions, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		s = Decisions{}
		s.Upto, err = queries.Decided(ctx, tx, scope.House, threadID)
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.NotFound, "there is no such thread", "list the house's threads")
		} else if err != nil {
			return err
		}
		active, err := turn.ActiveTx(ctx, tx, scope.House, threadID)
		for _, t := range active {
			if t.Status == turn.Delayed {
				s.Delayed = append(s.Delayed, t)
			}
		}
		return err
	})
	return s, err
}
