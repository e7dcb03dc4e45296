package thread

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// RecordInHouseTx appends an entry by the scope's agent to the primary thread of the scope's house, in the transaction
// that changes the rows that the entry is about. If that log is closed, it appends nothing, because an error would let
// a member who closes the log prevent their own removal.
func (t *Threads) RecordInHouseTx(ctx context.Context, tx pgx.Tx, scope db.Scope, what entry.Payload) error {
	primary, err := t.q.PrimaryThread(ctx, tx, scope.House)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && primary == "" {
		return nil
	} else if err != nil {
		return err
	}
	// A savepoint, because a failed statement would otherwise abort the caller's transaction.
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := t.log.AppendTx(ctx, tx, stream.Ref{House: scope.House, Name: StreamName(primary)}, entry.NewDraft("", scope.Agent, what))
		return err
	})
	if code := fault.CodeOf(err); code == fault.NotFound || code == fault.Precondition {
		return nil
	}
	return err
}
