package commit

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// planOnce makes Postgres plan the batch statement once, because planning takes as long as a lone append, and with
// indexes, because the tables may be small now and large later. The best plan does not depend on the batch.
var planOnce = map[string]string{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}

// writer commits queued calls, batch after batch, over its own connection. A batch holds the calls that arrived while
// the previous one was committed. One goroutine runs it, because several that shared the streams were measured to be
// slower.
//
// A batch is optimistic: it assumes that the tails are as last read and that the ids are new. If that is wrong,
// Postgres refuses it; the batch is then halved until the wrong part is alone, and careful writes that part.
type writer struct {
	counts  *counts
	ctx     context.Context
	work    *sync.WaitGroup
	store   *store.Store
	queue   *queue
	hooks   Hooks
	careful *careful

	conn *pgx.Conn // nil after it broke
	// connection is the number of conn. Positions that were read over an earlier connection may be outdated: the new one
	// may lead to a server that failed over or was restored, and lacks the last commits.
	connection int
	batch      batch
}

func (w *writer) connect(ctx context.Context) error {
	conn, err := w.store.DB.Connect(ctx, "arbe commit", planOnce)
	if err != nil {
		return err
	}
	if err := w.batch.prepare(ctx, conn); err != nil {
		db.HangUp(conn)
		return db.Explain(err)
	}
	w.conn = conn
	w.connection++
	return nil
}

func (w *writer) disconnect() {
	if w.conn != nil {
		db.HangUp(w.conn)
		w.conn = nil
	}
}

// run works until the context ends, and finishes the commit in progress.
func (w *writer) run() {
	defer w.disconnect()
	defer func() { w.queue.close(store.ShutdownError(w.ctx)) }()
	for w.ctx.Err() == nil {
		parts := w.queue.take()
		if len(parts) == 0 {
			select {
			case <-w.queue.filled:
			case <-w.ctx.Done():
			}
			continue
		}
		var good []part
		for _, p := range parts {
			if p.alone {
				w.work.Go(func() { w.careful.write(p) })
			} else {
				good = append(good, p)
			}
		}
		// Ascending, because append_batch compares them with the streams that it has locked in this order.
		slices.SortFunc(good, func(a, b part) int { return int(a.id - b.id) })
		w.commit(good)
		// Let the callers that the batch woke run first: what they append next can join the next batch.
		runtime.Gosched()
	}
}

// commit gives the calls of parts, ascending by stream, their results, or passes the parts to careful.
func (w *writer) commit(parts []part) {
	var pause store.Backoff
	for len(parts) > 0 {
		v, err := w.write(parts)
		switch {
		case err == nil:
			w.settle(parts, v)
			return
		case store.IsTransient(err), errors.Is(err, context.DeadlineExceeded):
			parts = w.expire(parts, err)
			if !pause.Wait(w.ctx) {
				w.fail(parts, err)
				return
			}
		case isStale(err) && slices.ContainsFunc(parts, part.isKnown):
			// Another writer extended one of these streams.
		case db.State(err) == "" || fault.CodeOf(err) == fault.Exhausted:
			w.fail(parts, err)
			return
		case len(parts) == 1:
			w.work.Go(func() { w.careful.write(parts[0]) })
			return
		default:
			half := len(parts) / 2
			w.commit(parts[:half])
			w.commit(parts[half:])
			return
		}
		for i := range parts {
			parts[i].tail = unknown
		}
	}
}

// isStale reports whether a position was already taken. It compares only the ends of the constraint's name, because
// each partition's key has its own name.
func isStale(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(refusal.ConstraintName, "entries_") && strings.HasSuffix(refusal.ConstraintName, "_pkey")
}

func (w *writer) write(parts []part) (batchResult, error) {
	if w.conn == nil {
		// Not the writer's context, because the commit in progress is finished even when the server stops.
		ctx, cancel := context.WithTimeout(context.Background(), store.StatementTimeout)
		defer cancel()
		if err := w.connect(ctx); err != nil {
			return batchResult{}, err
		}
		w.hooks.Reconnected()
	}
	for i := range parts {
		if parts[i].connection != w.connection {
			parts[i].tail = unknown
		}
	}
	v, err := w.batch.write(w.conn.PgConn(), parts)
	if err != nil && db.State(err) == "" { // Postgres did not answer
		w.disconnect()
	}
	return v, db.Explain(err)
}

// expire fails the calls that have waited too long for an unreachable database, and returns the others.
func (w *writer) expire(parts []part, err error) (left []part) {
	for _, p := range parts {
		young := slices.IndexFunc(p.calls, func(c *call) bool { return time.Since(c.since) < store.RetryFor })
		if young < 0 {
			w.fail([]part{p}, err)
			continue
		}
		w.queue.finish(p.lane, p.calls[:young], store.Explain(p.lane.ref, err))
		p.calls = p.calls[young:]
		left = append(left, p)
	}
	return left
}

// fail fails all calls of parts with the same error.
func (w *writer) fail(parts []part, err error) {
	if stopping := store.ShutdownError(w.ctx); stopping != nil {
		err = stopping
	}
	for _, p := range parts {
		w.queue.finish(p.lane, p.calls, store.Explain(p.lane.ref, err))
		w.queue.resume(p.lane, unknown, w.connection, p.alone)
	}
}

// settle gives each call its result after a batch was committed. It runs the hooks first.
func (w *writer) settle(parts []part, v batchResult) {
	appends, entries := v.written(parts)
	w.counts.batch(appends, entries) // first, so that a caller that has its result is counted
	for i, p := range parts {
		switch {
		case slices.Contains(v.busy, p.id):
			w.queue.retry(p.lane, p.calls)
			continue
		case slices.Contains(v.refused, p.id):
			w.work.Go(func() { w.careful.write(p) })
			continue
		}
		tail := v.tails[i]
		for _, c := range p.calls {
			for j := range c.entries {
				tail++
				c.entries[j].Seq, c.entries[j].Time = tail, v.happened
			}
		}
		w.hooks.Committed(Commit{Ref: p.lane.ref, Stream: p.id, calls: p.calls})
		w.hooks.Notify(p.id, tail)
		w.queue.resume(p.lane, tail, w.connection, false)
		w.queue.finish(p.lane, p.calls, nil)
	}
}

// written counts the appends and the entries that a batch wrote.
func (v batchResult) written(parts []part) (appends, entries int) {
	for _, p := range parts {
		if slices.Contains(v.busy, p.id) || slices.Contains(v.refused, p.id) {
			continue
		}
		appends += len(p.calls)
		for _, c := range p.calls {
			entries += len(c.entries)
		}
	}
	return appends, entries
}
