package artifact

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/blob"
)

// collectAtOnce is how many blobs are deleted between two queries, so that a long list is never in memory.
const collectAtOnce = 1000

// Collect deletes the bytes to which nothing refers: of deleted artifacts, threads and houses, and of unfinished
// uploads. It skips what it cannot delete now, so that one blob does not hold up the others, and returns an error for
// it.
func (a *Artifacts) Collect(ctx context.Context) error {
	if err := a.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) error { return a.q.CollectBlobs(ctx, tx) }); err != nil {
		return err
	}
	for {
		due, removed, failed := 0, 0, error(nil)
		var keys []blob.Key
		err := a.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			rows, err := a.q.DueBlobs(ctx, tx, collectAtOnce)
			for _, row := range rows {
				keys = append(keys, blob.Key{House: row.HouseID, ID: row.ID})
			}
			return err
		})
		if err != nil {
			return err
		}
		due = len(keys)
		for _, key := range keys {
			err := a.Blobs.Delete(ctx, key)
			if err == nil { // only now, because without the row, remaining bytes would never be deleted
				err = a.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) error { return a.q.ForgetBlob(ctx, tx, key.House, key.ID) })
			}
			if err != nil {
				failed = err
				continue
			}
			removed++
		}
		if due < collectAtOnce || removed == 0 { // without progress, the same blobs would be tried forever
			return failed
		}
	}
}
