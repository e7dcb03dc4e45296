package jobs

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/arbe-dev/arbe/db"
)

// liveness shows other servers that this one is running: Postgres holds a lock for it exactly as long as its connection
// exists. Therefore no heartbeat is needed.
type liveness struct {
	server   Server
	database *pgx.ConnConfig
	// regained is called when the server has its lock again after a loss, because it may have counted as dead
	// meanwhile.
	regained func(context.Context, Server)
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// serverLockGrace is how long a server may be without its lock before it counts as dead. It is longer than a server
// needs to connect again, so that a broken connection does not count as a death.
const serverLockGrace = 3 * time.Second

// serverPrefix is the start of the name under which a server takes jobs. The lock's key follows.
const serverPrefix = "arbe-"

// Server is a server of the installation, by the key of the lock that it holds while it runs.
type Server int64

// String returns the name under which the server takes jobs.
func (s Server) String() string { return serverPrefix + strconv.FormatInt(int64(s), 16) }

// parseServer returns the server with this name; zero if it is not the name of a server.
func parseServer(name string) Server {
	key, err := strconv.ParseInt(strings.TrimPrefix(name, serverPrefix), 16, 64)
	if err != nil {
		return 0 // not the key of any server
	}
	return Server(key)
}

// GoneTx reports whether nobody holds the lock of a server. The server cannot take it until tx ends. The check shares the
// lock, so that two checks at the same time do not take each other for the server.
func (s Server) GoneTx(ctx context.Context, tx pgx.Tx) (gone bool, err error) {
	err = tx.QueryRow(ctx, "select pg_try_advisory_xact_lock_shared($1)", int64(s)).Scan(&gone)
	return gone, err
}

// startLiveness takes a new lock, and takes it again whenever its connection is lost. After a loss, it calls regained.
func startLiveness(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger, regained func(context.Context, Server)) (*liveness, error) {
	var random [8]byte
	rand.Read(random[:])
	l := &liveness{server: Server(binary.BigEndian.Uint64(random[:]) >> 1), database: pool.Config().ConnConfig, regained: regained}
	conn, err := l.lock(ctx)
	if err != nil {
		return nil, db.Explain(err)
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.done.Go(func() { l.hold(ctx, conn, logger) })
	return l, nil
}

// end releases the lock.
func (l *liveness) end() {
	l.cancel()
	l.done.Wait()
}

// lock takes the lock on a connection outside the pool, because the pool may be full of dead connections just when the
// lock is needed.
func (l *liveness) lock(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, l.database)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "select pg_advisory_lock($1)", int64(l.server))
	if err != nil {
		conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// hold keeps the connection that holds the lock.
func (l *liveness) hold(ctx context.Context, conn *pgx.Conn, logger *slog.Logger) {
	for ctx.Err() == nil {
		if conn != nil {
			_, _ = conn.WaitForNotification(ctx) // nobody sends notifications here, so it returns only when the connection has ended
			conn.Close(context.WithoutCancel(ctx))
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		if conn, err = l.lock(ctx); err != nil {
			logger.Warn("cannot show the other servers that this one is running; trying again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		l.done.Go(func() { l.regained(ctx, l.server) }) // in the background, because the lock may be lost again
	}
	if conn != nil {
		conn.Close(context.WithoutCancel(ctx))
	}
}
