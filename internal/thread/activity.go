package thread

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

// Touch updates the last activity of the threads of some streams, of any house, and thereby their place in lists. It
// returns the streams whose threads were locked, to be touched again, so that one locked thread does not delay the
// others. Repeating a touch is harmless. A touch that is lost because Postgres was killed is repaired by
// [Threads.RepairActivity].
func (t *Threads) Touch(ctx context.Context, streams []int64) (again []int64, err error) {
	err = t.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		// Nobody waits for this commit, and its notification takes a lock that all notifying transactions share until
		// they are committed. So do not wait for the disk.
		if _, err := tx.Exec(ctx, "set local synchronous_commit = off"); err != nil {
			return err
		}
		again, err = t.q.TouchThreads(ctx, tx, streams)
		return err
	})
	return again, err
}

// repairBatch is how many threads one transaction of [Threads.RepairActivity] touches. A transaction over all threads
// would hold their locks for long.
const repairBatch = 1000

// RepairActivity touches all threads of all houses, one batch at a time, because touches may have been lost; see
// [Threads.Touch].
func (t *Threads) RepairActivity(ctx context.Context) error {
	for last := ""; ; {
		err := t.db.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
			last, err = t.q.RepairThreadActivity(ctx, tx, last, repairBatch)
			return err
		})
		if err != nil || last == "" {
			return err
		}
	}
}
