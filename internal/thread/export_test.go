package thread

import (
	"context"

	"github.com/arbe-dev/arbe/internal/entry"

	"github.com/jackc/pgx/v5"
)

// SetStatusTx changes a thread's status as arbe itself would. Tests use it to bring threads into each status.
func (t *Threads) SetStatusTx(ctx context.Context, tx pgx.Tx, id string, to Status, author, reason string) error {
	th, err := t.LockTx(ctx, tx, id)
	if err != nil || th.Status == to {
		return err
	}
	return t.changeStatus(ctx, tx, th, to, author, entry.StatusChanged{Reason: reason})
}
