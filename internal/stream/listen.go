package stream

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
)

const (
	// appendChannel tells "<stream>:<tail>" of every stream that a commit changed, with commas between them,
	// "<stream>:closed" after the last of these, and "<stream>:deleted".
	appendChannel = "arbe_stream"
	// pollEvery is how late a tail is at worst when a notification is lost.
	pollEvery = 3 * time.Second
	// proveEvery is how long the listening connection may be silent before it must prove that it lives.
	proveEvery = 20 * time.Second
)

// connect opens a connection beside the pool, for a purpose that operators see by its name. The settings are
// Postgres' own, for this connection.
func connect(ctx context.Context, d *db.DB, name string, settings map[string]string) (*pgx.Conn, error) {
	cfg := d.Pool().Config().ConnConfig
	maps.Copy(cfg.RuntimeParams, settings)
	cfg.RuntimeParams["application_name"] = name
	conn, err := pgx.ConnectConfig(ctx, cfg)
	return conn, db.Explain(err)
}

// listen opens a connection that hears of appends and deltas.
func listen(ctx context.Context, d *db.DB) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	conn, err := connect(ctx, d, "arbe listen", nil)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "listen "+appendChannel+"; listen "+deltaChannel); err != nil {
		hangUp(conn)
		return nil, db.Explain(err)
	}
	return conn, nil
}

// hear passes notifications on until the Log closes, and replaces the connection when it breaks.
func (l *Log) hear(conn *pgx.Conn) {
	var pause backoff
	for {
		err := l.receive(conn)
		hangUp(conn)
		if l.ctx.Err() != nil {
			return
		}
		l.log.Warn("the connection that hears of new entries broke; making a new one", "error", detail(err))
		for {
			if !pause.wait(l.ctx) {
				return
			}
			if conn, err = listen(l.ctx, l.db); err == nil {
				break
			}
		}
		pause = backoff{}
		// Whatever was committed in between was told to nobody.
		l.checkNow()
	}
}

// hangUp closes a connection that may be dead: it does not wait long for a goodbye.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx)
}

func (l *Log) receive(conn *pgx.Conn) error {
	for {
		ctx, cancel := context.WithTimeout(l.ctx, proveEvery)
		n, err := conn.WaitForNotification(ctx)
		cancel()
		switch {
		case err == nil:
			l.notified(n)
		case l.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			ctx, cancel := context.WithTimeout(l.ctx, proveEvery)
			err = conn.Ping(ctx)
			cancel()
			if err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// notified must be quick: what it does not take, Postgres keeps for all.
func (l *Log) notified(n *pgconn.Notification) {
	if n.Channel == deltaChannel {
		l.heardDelta(n.Payload)
		return
	}
	select {
	case l.changes <- struct{}{}:
	default: // it is told already
	}
	if n.PID == l.teller.pid.Load() {
		return // the committer told all here already
	}
	for change := range strings.SplitSeq(n.Payload, ",") {
		if !l.heard(change) {
			l.log.Warn("a notification that is not ours", "channel", n.Channel, "payload", n.Payload)
		}
	}
}

// heard takes one "<stream>:<tail>", "<stream>:closed" or "<stream>:deleted".
func (l *Log) heard(change string) (ok bool) {
	id, what, _ := strings.Cut(change, ":")
	stream, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return false
	}
	if what == "deleted" {
		l.hub.deleted(stream)
		return true
	}
	if what == "closed" {
		l.hub.closed(stream, 0) // its tail was told before
		return true
	}
	tail, err := strconv.ParseInt(what, 10, 64)
	if err != nil {
		return false
	}
	l.queue.heard(stream, tail)
	l.hub.reached(stream, tail)
	return true
}

// checkNow makes the poller look without waiting for its time.
func (l *Log) checkNow() {
	select {
	case l.recheck <- struct{}{}:
	default: // it is asked already
	}
}

// poll asks Postgres now and then where the watched streams end: notifications make tails fast, this makes
// them right.
func (l *Log) poll() {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.hub.sweep()
		case <-l.recheck:
		case <-l.ctx.Done():
			return
		}
		if err := l.check(); err != nil && l.ctx.Err() == nil {
			l.log.Warn("cannot look for new entries; trying again", "error", detail(err))
		}
	}
}

// check tells every topic where its stream ends, and whether it is closed or gone.
func (l *Log) check() error {
	ids := l.hub.watched()
	if len(ids) == 0 {
		return nil
	}
	var found []query.StreamTailsRow
	var closed []int64
	err := l.in(l.ctx, Ref{}, func(tx txn) (err error) {
		// In this order: a closed stream ends where it ended when it was closed.
		if closed, err = queries.ClosedStreams(l.ctx, tx, ids); err != nil {
			return err
		}
		found, err = queries.StreamTails(l.ctx, tx, ids)
		return err
	})
	if err != nil {
		return err
	}
	tails := make(map[int64]int64, len(found))
	for _, s := range found {
		tails[s.ID] = s.Tail
	}
	for _, id := range ids {
		if tail, ok := tails[id]; ok {
			l.hub.reached(id, tail)
		} else {
			l.hub.deleted(id)
		}
	}
	for _, id := range closed {
		l.hub.closed(id, tails[id])
	}
	return nil
}
