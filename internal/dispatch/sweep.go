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

// liveness shows other servers that this one is running: Postgres holds a lock for it exactly as long as its connection
// exists. Therefore no heartbeat is needed.
type liveness struct {
	key      int64
	database *pgx.ConnConfig
	// regained is called, with the server's name, when the server has its lock again after it lost it: meanwhile it may
	// have counted as dead.
	regained func(ctx context.Context, name string)
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// serverLockGrace is how long a server may be without its lock before it counts as dead. It is longer than a server
// needs to connect again, so that a broken connection does not count as a death.
const serverLockGrace = 3 * time.Second

// serverPrefix is the start of the name under which a server takes jobs. The lock's key follows.
const serverPrefix = "arbe-"

// startLiveness takes a new lock, and takes it again whenever its connection is lost. Then it calls regained.
func startLiveness(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger, regained func(ctx context.Context, name string)) (*liveness, error) {
	var random [8]byte
	rand.Read(random[:])
	l := &liveness{key: int64(binary.BigEndian.Uint64(random[:]) >> 1), database: pool.Config().ConnConfig, regained: regained}
	conn, err := l.lock(ctx)
	if err != nil {
		return nil, db.Explain(err)
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.done.Go(func() { l.hold(ctx, conn, logger) })
	return l, nil
}

// name returns the server's name in the queue.
func (l *liveness) name() string { return serverPrefix + strconv.FormatInt(l.key, 16) }

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
	_, err = conn.Exec(ctx, "select pg_advisory_lock($1)", l.key)
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
			_, _ = conn.WaitForNotification(ctx) // none comes: it returns when the connection has ended
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
		l.done.Go(func() { l.regained(ctx, l.name()) }) // at the same time, because the lock may be lost again
	}
	if conn != nil {
		conn.Close(context.WithoutCancel(ctx))
	}
}

// sweepArgs are the arguments of a job that looks for jobs of dead servers.
type sweepArgs struct{}

// Kind is the job's kind.
func (sweepArgs) Kind() string { return "sweep_commands" }

// InsertOpts: a failed sweep is not retried, because the next one follows.
func (sweepArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: maintenance, MaxAttempts: 1}
}

type sweepWorker struct {
	river.WorkerDefaults[sweepArgs]
	*Dispatcher
}

// Timeout limits a sweep. It may end early, because the next one continues.
func (w *sweepWorker) Timeout(*river.Job[sweepArgs]) time.Duration { return maintenanceTimeout }

// Work runs a sweep.
func (w *sweepWorker) Work(ctx context.Context, _ *river.Job[sweepArgs]) error {
	return errors.Join(w.reportWaits(ctx), w.sweep(ctx), w.decider.recoverDead(ctx), w.reviveTurns(ctx))
}

// maxWaitReports is how many waiting commands one sweep reports, so that a sweep with a long queue ends in time.
const maxWaitReports = 500

// reportWaits appends entries to threads with commands that no server has started. It waits longer for a command that
// needs a machine, because it is known only after machineAwayAfter whether that machine is away.
func (d *Dispatcher) reportWaits(ctx context.Context) error {
	type waiting struct {
		Job  int64
		Args commandArgs
		Away bool // the machine that must run it is away
	}
	var list []waiting
	err := d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select id, args, exists (select from machines m where m.id = metadata->>'machine' and m.seen_at < now() - $6::interval)
			from `+db.JobSchema+`.river_job
			where queue = $1 and state = 'available' and kind = $2 and not metadata @> $4::jsonb
			  and scheduled_at < now() - $3::interval - case when metadata ? 'machine' then $6::interval else interval '0' end
			order by id limit $5`, commands, commandArgs{}.Kind(), reportWaitAfter, waitReported, maxWaitReports, machineAwayAfter)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[waiting])
		return err
	})
	for _, w := range list {
		err = errors.Join(err, d.db.In(ctx, db.Scope{House: w.Args.House}, func(tx pgx.Tx) error {
			if err := lockCommandsTx(ctx, tx, w.Args.House); err != nil {
				return err
			}
			marked, err := tx.Exec(ctx, `
				update `+db.JobSchema+`.river_job set metadata = metadata || $2::jsonb
				where id = $1 and state = 'available' and not metadata @> $2::jsonb`, w.Job, waitReported)
			if err != nil || marked.RowsAffected() == 0 {
				return err // it is running, or another server reported it
			}
			waits := entry.CommandWaiting{For: entry.WaitServer}
			if w.Away {
				waits.For = entry.WaitMachine
			}
			err = d.reportWaitTx(ctx, tx, w.Args, waits)
			if fault.CodeOf(err) == fault.NotFound {
				return nil // the thread was deleted
			}
			return err
		}))
	}
	return err
}

// orphan is a job that the queue counts as running on some server.
type orphan struct {
	Job    int64
	Kind   string
	Server string
}

// serverKey returns the key of the liveness lock of a server by its name.
func serverKey(name string) int64 {
	key, err := strconv.ParseInt(strings.TrimPrefix(name, serverPrefix), 16, 64)
	if err != nil {
		return 0 // not the key of any server
	}
	return key
}

// sweep queues the jobs of dead servers again. A server counts as dead if nobody holds its lock at two checks: a server
// that only lost its connection takes the lock again in between.
func (d *Dispatcher) sweep(ctx context.Context) error {
	suspects, err := d.suspects(ctx)
	if err != nil || len(suspects) == 0 {
		return err
	}
	select {
	case <-time.After(d.config.lockGrace):
	case <-ctx.Done():
		return ctx.Err()
	}
	var failed error
	for _, o := range suspects {
		if err := d.interrupt(ctx, o); err != nil {
			failed = errors.Join(failed, fmt.Errorf("queueing the job %d of a dead server again: %w", o.Job, err))
		}
	}
	return failed
}

// suspects returns the running jobs of servers whose lock nobody holds.
func (d *Dispatcher) suspects(ctx context.Context) (list []orphan, err error) {
	err = d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select id, kind, `+holder+` from `+db.JobSchema+`.river_job
			where state = 'running'`)
		if err != nil {
			return err
		}
		running, err := pgx.CollectRows(rows, pgx.RowToStructByPos[orphan])
		if err != nil {
			return err
		}
		gone := map[string]bool{d.liveness.name(): false}
		for _, o := range running {
			if _, known := gone[o.Server]; !known {
				if gone[o.Server], err = isGone(ctx, tx, serverKey(o.Server)); err != nil {
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

// isGone reports whether nobody holds a liveness lock. The server cannot take it until tx ends. The lock is shared, so
// that two checks at the same time do not take each other for the server.
func isGone(ctx context.Context, tx pgx.Tx, key int64) (gone bool, err error) {
	err = tx.QueryRow(ctx, "select pg_try_advisory_xact_lock_shared($1)", key).Scan(&gone)
	return gone, err
}

// interrupt queues a job of a dead server again, unless the server has come back: then it still works on the job, and
// another worker would disturb it.
func (d *Dispatcher) interrupt(ctx context.Context, o orphan) error {
	return d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		if gone, err := isGone(ctx, tx, serverKey(o.Server)); err != nil || !gone {
			return err
		}
		d.logger.Info("continuing a job of a dead server", "job", o.Job, "kind", o.Kind)
		return kindOf(o.Kind).interruptTx(ctx, tx, o.Job, o.Server)
	})
}
