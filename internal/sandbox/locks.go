package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/arbe-dev/arbe/db"
)

const (
	// lockRetry is the pause between two attempts to get a lock that another server holds. Waiting in the database
	// instead would block the connection that all builds share.
	lockRetry = 100 * time.Millisecond
	// lockTimeout limits one query, because others wait for the connection.
	lockTimeout = 10 * time.Second
	// lockKey is the key of the advisory lock on a sandbox.
	lockKey = "hashtextextended('arbe.sandbox.' || $1, 0)"
)

// locks are this server's advisory locks on the boxes that it builds, so that no other server builds them too. One
// connection holds all of them, because builds take long and there may be many. It is not from the pool, because
// other work needs the pool's connections. A connection that breaks releases its locks, but on this server the holders
// keep them: the next connection takes them again. If another server has got one in the meantime, both work on the box,
// and this server takes the lock when it is free.
//
// It is safe for concurrent use.
type locks struct {
	pool *pgxpool.Pool // for the address of the database

	mu   sync.Mutex
	conn *pgx.Conn       // nil if no lock is held or it broke
	held map[string]bool // by this server; true if conn has the lock, which the database would grant it again
}

func newLocks(pool *pgxpool.Pool) *locks { return &locks{pool: pool, held: map[string]bool{}} }

// lock waits until nobody else, on this or another server, builds the box of this sandbox. If the database is
// unreachable, the error is a [fault.Unavailable].
func (l *locks) lock(ctx context.Context, id string) (unlock func(), err error) {
	for {
		unlock, got, err := l.tryLock(ctx, id)
		if err != nil || got {
			return unlock, err
		}
		select {
		case <-time.After(lockRetry):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryLock takes the lock if nobody has it.
func (l *locks) tryLock(ctx context.Context, id string) (unlock func(), got bool, err error) {
	if got, err = l.try(ctx, id); err != nil || !got {
		return nil, false, db.Explain(err)
	}
	return func() { l.unlock(context.WithoutCancel(ctx), id) }, true, nil
}

// try takes the lock if it is free. The end of ctx does not interrupt it, because that would break the connection of
// all locks.
func (l *locks) try(ctx context.Context, id string) (got bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.held[id]; held {
		return false, nil
	}
	if l.conn == nil {
		if l.conn, err = pgx.ConnectConfig(ctx, l.pool.Config().ConnConfig); err != nil {
			l.conn = nil
			return false, err
		}
	}
	defer l.closeUnusedLocked(ctx)
	for lost, has := range l.held {
		if has {
			continue
		}
		if l.held[lost], err = l.takeLocked(ctx, lost); err != nil {
			return false, err
		}
	}
	if got, err = l.takeLocked(ctx, id); got {
		l.held[id] = true
	}
	return got, err
}

// takeLocked takes a lock that the connection does not have, if no other server has it.
func (l *locks) takeLocked(ctx context.Context, id string) (got bool, err error) {
	err = l.conn.QueryRow(ctx, "select pg_try_advisory_lock("+lockKey+")", id).Scan(&got)
	return got, err
}

// unlock releases a lock.
func (l *locks) unlock(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.held[id]
	delete(l.held, id)
	if has {
		if _, err := l.conn.Exec(ctx, "select pg_advisory_unlock("+lockKey+")", id); err != nil {
			l.conn.Close(ctx) // this also releases the lock, which would otherwise stay
		}
	}
	l.closeUnusedLocked(ctx)
}

// closeUnusedLocked closes a connection without locks, so that an idle server has none open. A connection that broke
// has lost its locks.
func (l *locks) closeUnusedLocked(ctx context.Context) {
	if l.conn != nil && (len(l.held) == 0 || l.conn.IsClosed()) {
		l.conn.Close(ctx)
		l.conn = nil
		for id := range l.held {
			l.held[id] = false
		}
	}
}
