package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// life is how other servers know that this one lives: a lock that Postgres holds for it exactly as long
// as its connection stands. No heartbeat is involved.
type life struct {
	key      int64
	database *pgx.ConnConfig
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// doubt is how long a server may be without its lock before it counts as dead.
const doubt = 3 * time.Second

// lifePrefix begins the name under which a server takes jobs; the lock's key follows.
const lifePrefix = "arbe-"

// begin takes the lock of a new life, and takes it again whenever its connection is lost.
func begin(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) (*life, error) {
	var random [8]byte
	rand.Read(random[:])
	l := &life{key: int64(binary.BigEndian.Uint64(random[:]) >> 1), database: pool.Config().ConnConfig}
	conn, err := l.lock(ctx)
	if err != nil {
		return nil, db.Explain(err)
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.done.Go(func() { l.hold(ctx, conn, logger) })
	return l, nil
}

// name is what the queue knows this server as.
func (l *life) name() string { return lifePrefix + strconv.FormatInt(l.key, 16) }

// end gives the lock back.
func (l *life) end() {
	l.cancel()
	l.done.Wait()
}

// lock takes the lock on a connection of its own: the pool may be full of dead ones just when it matters.
func (l *life) lock(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, l.database)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", l.key); err != nil {
		conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// hold keeps the connection that holds the lock.
func (l *life) hold(ctx context.Context, conn *pgx.Conn, logger *slog.Logger) {
	for ctx.Err() == nil {
		if conn != nil {
			_, _ = conn.WaitForNotification(ctx) // nothing is listened to: this ends with the connection
			conn.Close(context.WithoutCancel(ctx))
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		if conn, err = l.lock(ctx); err != nil {
			logger.Warn("cannot tell the other servers that this one lives; trying again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	if conn != nil {
		conn.Close(context.WithoutCancel(ctx))
	}
}

// sweepArgs asks to look for commands whose server is gone.
type sweepArgs struct{}

// Kind names the job.
func (sweepArgs) Kind() string { return "sweep_commands" }

// InsertOpts: a sweep that failed is followed by the next one.
func (sweepArgs) InsertOpts() river.InsertOpts { return river.InsertOpts{MaxAttempts: 1} }

type sweepWorker struct {
	river.WorkerDefaults[sweepArgs]
	*Dispatcher
}

// Work sweeps.
func (w *sweepWorker) Work(ctx context.Context, _ *river.Job[sweepArgs]) error { return w.sweep(ctx) }

// orphan is a command that the queue thinks some server is running.
type orphan struct {
	Job    int64
	Args   commandArgs
	Server string
}

// key is the lock of the server's life.
func (o orphan) key() int64 {
	key, err := strconv.ParseInt(strings.TrimPrefix(o.Server, lifePrefix), 16, 64)
	if err != nil {
		return 0 // no server has it
	}
	return key
}

// sweep ends the commands that dead servers were running, telling each thread. A server counts as dead
// when nobody holds its lock at two looks: one that only lost its connection takes the lock again between.
func (d *Dispatcher) sweep(ctx context.Context) error {
	suspects, err := d.suspects(ctx)
	if err != nil || len(suspects) == 0 {
		return err
	}
	select {
	case <-time.After(doubt):
	case <-ctx.Done():
		return ctx.Err()
	}
	var failed error
	for _, o := range suspects {
		if err := d.breakOff(ctx, o); err != nil {
			failed = errors.Join(failed, fmt.Errorf("ending the command %s of a dead server: %w", o.Args.Command, err))
		}
	}
	return failed
}

// suspects are the running commands of servers whose lock nobody holds.
func (d *Dispatcher) suspects(ctx context.Context) (list []orphan, err error) {
	err = d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select id, args, attempted_by[array_upper(attempted_by, 1)] from `+db.JobSchema+`.river_job
			where kind = $1 and state = 'running'`, commandArgs{}.Kind())
		if err != nil {
			return err
		}
		running, err := pgx.CollectRows(rows, pgx.RowToStructByPos[orphan])
		if err != nil {
			return err
		}
		gone := map[string]bool{d.life.name(): false}
		for _, o := range running {
			if _, known := gone[o.Server]; !known {
				if gone[o.Server], err = isGone(ctx, tx, o.key()); err != nil {
					return err
				}
			}
			if gone[o.Server] {
				list = append(list, o)
			}
		}
		return nil
	})
	return list, err
}

// isGone tells whether nobody holds the lock of a life, which until tx ends nobody can take then.
func isGone(ctx context.Context, tx pgx.Tx, key int64) (gone bool, err error) {
	err = tx.QueryRow(ctx, "select pg_try_advisory_xact_lock($1)", key).Scan(&gone)
	return gone, err
}

// breakOff ends one command of a dead server. The entry and the end of the job are one transaction, and the
// result's id is derived, so that two servers that sweep do no harm.
func (d *Dispatcher) breakOff(ctx context.Context, o orphan) error {
	return d.db.In(ctx, db.Scope{House: o.Args.House}, func(tx pgx.Tx) error {
		if gone, err := isGone(ctx, tx, o.key()); err != nil || !gone {
			return err
		}
		ended, err := tx.Exec(ctx, "update "+db.JobSchema+".river_job set state = 'discarded', finalized_at = now() where id = $1 and state = 'running'", o.Job)
		if err != nil || ended.RowsAffected() == 0 {
			return err
		}
		if _, err := d.threads.GetTx(ctx, tx, o.Args.Thread); fault.CodeOf(err) == fault.NotFound {
			return nil // the thread was deleted: nobody to tell
		} else if err != nil {
			return err
		}
		d.logger.Info("ending a command of a server that is gone", "thread", o.Args.Thread, "command", o.Args.Command)
		_, err = d.log.AppendTx(ctx, tx, o.Args.log(), result(o.Args.Command, entry.CommandResult{ExitCode: -1, Error: brokenOff}))
		return err
	})
}
