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
// other work needs the pool's connections. A connection that breaks releases its locks.
//
// It is safe for concurrent use.
type locks struct {
	pool *pgxpool.Pool // for the address of the database

	mu   sync.Mutex
	conn *pgx.Conn       // nil if no lock is held
	held map[string]bool // by conn, because the database grants a lock again to its holder
}

// lock waits until nobody else, on this or another server, builds the box of this sandbox. If the database is
// unreachable, the error is a [fault.Unavailable].
func (l *locks) lock(ctx context.Context, id string) (unlock func(), err error) {
	for {
		conn, got, err := l.try(ctx, id)
		if err != nil {
			return nil, db.Explain(err)
		}
		if got {
			return func() { l.unlock(context.WithoutCancel(ctx), conn, id) }, nil
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
	conn, got, err := l.try(ctx, id)
	if err != nil || !got {
		return nil, false, db.Explain(err)
	}
	return func() { l.unlock(context.WithoutCancel(ctx), conn, id) }, true, nil
}

// try takes the lock if it is free. The end of ctx does not interrupt it, because that would break the connection of
// all locks.
func (l *locks) try(ctx context.Context, id string) (conn *pgx.Conn, got bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.conn.IsClosed() {
		if l.conn, err = pgx.ConnectConfig(ctx, l.pool.Config().ConnConfig); err != nil {
			l.conn = nil
			return nil, false, err
		}
		l.held = map[string]bool{}
	}
	conn = l.conn
	if l.held[id] {
		return conn, false, nil
	}
	if err = conn.QueryRow(ctx, "select pg_try_advisory_lock("+lockKey+")", id).Scan(&got); err == nil && got {
		l.held[id] = true
	}
	l.closeUnusedLocked(ctx)
	return conn, got, err
}

// unlock releases a lock that conn took.
func (l *locks) unlock(ctx context.Context, conn *pgx.Conn, id string) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if conn != l.conn {
		return // it broke and released the lock, which by now another server may hold
	}
	delete(l.held, id)
	if _, err := conn.Exec(ctx, "select pg_advisory_unlock("+lockKey+")", id); err != nil {
		conn.Close(ctx) // this also releases the lock, which would otherwise stay
	}
	l.closeUnusedLocked(ctx)
}

// closeUnusedLocked closes a connection without locks, so that an idle server has none open.
func (l *locks) closeUnusedLocked(ctx context.Context) {
	if l.conn != nil && (len(l.held) == 0 || l.conn.IsClosed()) {
		l.conn.Close(ctx)
		l.conn, l.held = nil, nil
	}
}
