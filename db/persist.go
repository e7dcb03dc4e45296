package db

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// deadlock is the SQLSTATE of a transaction that Postgres aborted because of a deadlock. Trying again helps, because the
// other transaction has continued.
const deadlock = "40P01"

// Persist calls f again while the database is unreachable or full, until ctx ends. It is for work that nobody else
// would do after a failure.
func Persist(ctx context.Context, f func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f()
		if code := fault.CodeOf(err); code != fault.Unavailable && code != fault.Exhausted && State(err) != deadlock {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
