package jobs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
)

// BenchmarkTake measures the choice of the next 16 jobs while others wait: in one house, and in 100 houses, with up to 50
// threads each. Its cost should not grow with the jobs that wait.
func BenchmarkTake(b *testing.B) {
	for _, waiting := range []int{100, 10_000, 50_000} {
		for _, houses := range []int{1, 100} {
			b.Run(fmt.Sprintf("waiting=%d/houses=%d", waiting, houses), func(b *testing.B) {
				d := dbtest.New(b)
				owner := d.Owner(b)
				_, err := owner.Exec(b.Context(), `insert into `+db.JobSchema+`.river_job (kind, queue, args, max_attempts, priority, state)
					select 'turn', 'turns', jsonb_build_object('house', 'h' || n % $2, 'thread', 't' || n % ($2 * 50), 'turn', 'x' || n), 25, 1, 'available'
					from generate_series(1, $1::int) n`, waiting, houses)
				if err == nil {
					_, err = owner.Exec(b.Context(), "analyze "+db.JobSchema+".river_job")
				}
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					err := d.DB.In(b.Context(), db.Scope{}, func(tx pgx.Tx) error {
						if _, err := tx.Exec(b.Context(), "select "+byIndex); err != nil {
							return err
						}
						rows, err := tx.Query(b.Context(), take, pgx.NamedArgs{
							"queue": "turns", "server": "bench", "person": 64, "house": 32, "thread": 8, "threads": threadsLooked, "most": 16,
							"reserve": 0, "kept_names": 10, "machines": []string{}, "machine_gone": time.Hour,
						})
						if err != nil {
							return err
						}
						if taken, err := pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(taken) != 16 {
							return fmt.Errorf("%d jobs were taken: %w", len(taken), err)
						}
						return tx.Rollback(context.WithoutCancel(b.Context())) // so that the next choice finds the same jobs
					})
					if err != nil && err != pgx.ErrTxClosed {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
