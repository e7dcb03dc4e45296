package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/binary"
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
)

// life is how other servers know that this one lives: a lock that Postgres holds for it exactly as long
// as its connection stands. No clock and no heartbeat is involved.
type life struct {
	key    int64
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// lifePrefix begins the name under which a server takes jobs; the lock's key follows.
const lifePrefix = "arbe-"

// begin takes the lock of a new life, and takes it again whenever its connection is lost.
func begin(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) (*life, error) {
	var random [8]byte
	rand.Read(random[:])
	l := &life{key: int64(binary.BigEndian.Uint64(random[:]) >> 1)}
	conn, err := l.lock(ctx, pool)
	if err != nil {
		return nil, db.Explain(err)
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.done.Go(func() { l.hold(ctx, pool, conn, logger) })
	return l, nil
}

// name is what the queue knows this server as.
func (l *life) name() string { return lifePrefix + strconv.FormatInt(l.key, 16) }

// end gives the lock back.
func (l *life) end() {
	l.cancel()
	l.done.Wait()
}

func (l *life) lock(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Hijack() // it is not given back while the server lives
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", l.key); err != nil {
		conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// hold keeps the connection that holds the lock.
func (l *life) hold(ctx context.Context, pool *pgxpool.Pool, conn *pgx.Conn, logger *slog.Logger) {
	for ctx.Err() == nil {
		if conn != nil {
			_, _ = conn.WaitForNotification(ctx) // nothing is listened to: this ends with the connection
			conn.Close(context.WithoutCancel(ctx))
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		if conn, err = l.lock(ctx, pool); err != nil {
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

// sweep ends the commands that dead servers were running, telling each thread. The entry and the end of
// the job are one transaction, and the result's id is derived, so that sweeping twice is harmless.
func (d *Dispatcher) sweep(ctx context.Context) error {
	rows, err := d.db.Pool().Query(ctx, `
		select id, args, attempted_by[array_upper(attempted_by, 1)] as server from `+db.JobSchema+`.river_job
		where kind = $1 and state = 'running'`, commandArgs{}.Kind())
	if err != nil {
		return db.Explain(err)
	}
	type orphan struct {
		ID     int64
		Args   commandArgs
		Server string
	}
	running, err := pgx.CollectRows(rows, pgx.RowToStructByPos[orphan])
	if err != nil {
		return db.Explain(err)
	}
	for _, job := range running {
		key, err := strconv.ParseInt(strings.TrimPrefix(job.Server, lifePrefix), 16, 64)
		if err != nil || key == d.life.key {
			continue
		}
		err = d.db.In(ctx, db.Scope{House: job.Args.House}, func(tx pgx.Tx) error {
			var gone bool
			if err := tx.QueryRow(ctx, "select pg_try_advisory_xact_lock($1)", key).Scan(&gone); err != nil || !gone {
				return err
			}
			d.logger.Info("ending a command of a server that is gone", "thread", job.Args.Thread, "command", job.Args.Command)
			return d.breakOff(ctx, tx, job.ID, job.Args)
		})
		if err != nil {
			return fmt.Errorf("ending the command %s of a dead server: %w", job.Args.Command, err)
		}
	}
	return nil
}

// breakOff ends one job of a dead server.
func (d *Dispatcher) breakOff(ctx context.Context, tx pgx.Tx, jobID int64, args commandArgs) error {
	_, err := tx.Exec(ctx, "update "+db.JobSchema+".river_job set state = 'discarded', finalized_at = now() where id = $1 and state = 'running'", jobID)
	if err != nil {
		return err
	}
	var threads int
	if err := tx.QueryRow(ctx, "select count(*) from threads where id = $1", args.Thread).Scan(&threads); err != nil || threads == 0 {
		return err // the thread was deleted: nobody to tell
	}
	_, err = d.log.AppendTx(ctx, tx, args.log(), result(args.Command, entry.CommandResult{ExitCode: -1, Error: brokenOff}))
	return err
}
