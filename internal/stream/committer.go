package stream

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// lockPatience is how long a stream's calls that are written by themselves wait for its lock, before they
	// leave the connection to others.
	lockPatience = "50ms"
	// maxAlone is how many streams' calls are written by themselves at the same moment.
	maxAlone = 4
)

// planOnce makes Postgres plan what a batch does once, by indexes: what is best depends neither on the batch
// nor on how small the tables are when the server starts, and planning anew takes as long as a lone append.
var planOnce = map[string]string{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}

// committer writes what is queued, batch after batch, over a connection of its own: a batch is what came
// while the one before was committed. It is the work of one goroutine.
//
// A batch is written in good faith: the tails are those that were true when last heard of, and the ids are
// new. Postgres refuses it when that is wrong, and then it is made smaller until what is wrong stands alone,
// to be written by itself and with care, beside the batches.
type committer struct {
	log   *Log
	queue *queue
	conn  *pgx.Conn // nil after it broke
	batch batch
	// alone holds a token for everybody who writes beside the batches.
	alone chan struct{}
}

func newCommitter(ctx context.Context, l *Log) (*committer, error) {
	c := &committer{log: l, queue: l.queue, alone: make(chan struct{}, maxAlone)}
	return c, c.connect(ctx)
}

func (c *committer) connect(ctx context.Context) error {
	conn, err := connect(ctx, c.log.db, "arbe commit", planOnce)
	if err != nil {
		return err
	}
	if err := c.batch.prepare(ctx, conn); err != nil {
		hangUp(conn)
		return db.Explain(err)
	}
	c.conn = conn
	return nil
}

func (c *committer) disconnect() {
	if c.conn != nil {
		hangUp(c.conn)
		c.conn = nil
	}
}

// run works until the Log closes, and finishes the commit under way.
func (c *committer) run() {
	defer c.disconnect()
	defer close(c.log.teller.over)
	defer func() { c.queue.close(c.log.stopping()) }()
	for c.log.ctx.Err() == nil {
		parts := c.queue.take()
		if len(parts) == 0 {
			select {
			case <-c.queue.filled:
			case <-c.log.ctx.Done():
			}
			continue
		}
		var good []part
		for _, p := range parts {
			if p.alone {
				c.log.work.Go(func() { c.writeAlone(p) })
			} else {
				good = append(good, p)
			}
		}
		slices.SortFunc(good, func(a, b part) int { return int(a.id - b.id) })
		c.commit(good)
		// Whom the batch woke may have more to write: they come first, so that the next one takes it along.
		runtime.Gosched()
	}
}

// commit brings parts, ascending by stream, to their outcome, or gives them to somebody who does.
func (c *committer) commit(parts []part) {
	var pause backoff
	for len(parts) > 0 {
		v, err := c.write(parts)
		switch {
		case err == nil:
			c.settle(parts, v)
			return
		case passing(err), errors.Is(err, context.DeadlineExceeded):
			parts = c.expire(parts, err)
			if !pause.wait(c.log.ctx) {
				c.fail(parts, err)
				return
			}
		case isStale(err) && slices.ContainsFunc(parts, part.isKnown):
			// Somebody else wrote to one of these streams.
		case db.State(err) == "" || fault.CodeOf(err) == fault.Exhausted:
			c.fail(parts, err)
			return
		case len(parts) == 1:
			c.log.work.Go(func() { c.writeAlone(parts[0]) })
			return
		default:
			half := len(parts) / 2
			c.commit(parts[:half])
			c.commit(parts[half:])
			return
		}
		for i := range parts {
			parts[i].tail = unknown
		}
	}
}

// isStale tells whether a position was taken already. The key of each partition has a name of its own.
func isStale(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(refusal.ConstraintName, "entries_") && strings.HasSuffix(refusal.ConstraintName, "_pkey")
}

func (c *committer) write(parts []part) (verdict, error) {
	if c.conn == nil {
		ctx, cancel := context.WithTimeout(context.Background(), commitWithin)
		defer cancel()
		if err := c.connect(ctx); err != nil {
			return verdict{}, err
		}
	}
	v, err := c.batch.write(c.conn.PgConn(), parts)
	if err != nil && db.State(err) == "" { // no answer of Postgres
		c.disconnect()
	}
	return v, db.Explain(err)
}

// expire fails the calls that waited long enough for a database that is away, and returns the others.
func (c *committer) expire(parts []part, err error) (left []part) {
	for _, p := range parts {
		young := slices.IndexFunc(p.calls, func(w *call) bool { return time.Since(w.since) < persist })
		if young < 0 {
			c.fail([]part{p}, err)
			continue
		}
		c.queue.finish(p.lane, p.calls[:young], explain(p.lane.ref, err))
		p.calls = p.calls[young:]
		left = append(left, p)
	}
	return left
}

// fail tells all calls of parts the same error.
func (c *committer) fail(parts []part, err error) {
	if stopping := c.log.stopping(); stopping != nil {
		err = stopping
	}
	for _, p := range parts {
		c.queue.finish(p.lane, p.calls, explain(p.lane.ref, err))
		c.queue.resume(p.lane, unknown, p.alone)
	}
}

// settle tells what became of a committed batch: first the tails, then the callers.
func (c *committer) settle(parts []part, v verdict) {
	for i, p := range parts {
		switch {
		case slices.Contains(v.busy, p.id):
			c.queue.retry(p.lane, p.calls)
			continue
		case slices.Contains(v.refused, p.id):
			c.log.work.Go(func() { c.writeAlone(p) })
			continue
		}
		tail := v.tails[i]
		for _, w := range p.calls {
			for j := range w.entries {
				tail++
				w.entries[j].Seq, w.entries[j].Time = tail, v.happened
			}
		}
		c.tell(p.id, p.calls)
		c.log.teller.note(p.id, tail)
		c.queue.resume(p.lane, tail, false)
		c.queue.finish(p.lane, p.calls, nil)
	}
}

// tell gives the entries of committed calls to those who watch their stream here.
func (c *committer) tell(stream int64, calls []*call) {
	if c.log.hub.find(stream) == nil {
		return
	}
	var entries []entry.Entry
	for _, w := range calls {
		entries = append(entries, w.entries...)
	}
	c.log.hub.offer(stream, entries)
}

// writeAlone writes a part in a transaction of its own, which finds out what is the matter with it: entries
// that are there already, or that may not be. Calls that fail together are written one by one.
func (c *committer) writeAlone(p part) {
	c.alone <- struct{}{}
	defer func() { <-c.alone }()
	suspect := false
	for groups := [][]*call{p.calls}; len(groups) > 0; {
		calls := groups[0]
		rows, err := c.transact(p.lane.ref, calls)
		switch {
		case db.State(err) == "55P03": // the lock is not available
			c.queue.retry(p.lane, slices.Concat(groups...))
			return
		case err != nil && len(calls) > 1 && db.State(err) != "" && !passing(err):
			groups = slices.Concat(slices.Collect(slices.Chunk(calls, 1)), groups[1:])
			continue
		case err == nil:
			suspect = suspect || !consecutive(rows)
			c.answer(p.lane, calls, rows)
		default:
			suspect = true
			if fault.CodeOf(err) == fault.NotFound {
				c.queue.forget(p.lane)
			}
			if stopping := c.log.stopping(); stopping != nil {
				err = stopping
			}
			c.queue.finish(p.lane, calls, err)
		}
		groups = groups[1:]
	}
	c.queue.resume(p.lane, unknown, suspect)
}

func (c *committer) transact(ref Ref, calls []*call) (rows []query.AppendEntriesRow, err error) {
	var drafts []entry.Draft
	for _, w := range calls {
		for _, e := range w.entries {
			drafts = append(drafts, entry.Draft{ID: e.ID, Author: e.Author, Type: e.Type, Payload: e.Payload})
		}
	}
	ctx := c.log.ctx
	err = c.log.in(ctx, ref, func(tx txn) error {
		if _, err := tx.Exec(ctx, "set local lock_timeout = '"+lockPatience+"'"); err != nil {
			return err
		}
		rows, err = appendRows(ctx, tx, ref, drafts)
		return err
	})
	return rows, err
}

// consecutive tells whether rows look like new entries, and nothing else.
func consecutive(rows []query.AppendEntriesRow) bool {
	for i, r := range rows {
		if r.Seq != rows[0].Seq+int64(i) {
			return false
		}
	}
	return true
}

// answer gives calls the rows of their drafts.
func (c *committer) answer(n *lane, calls []*call, rows []query.AppendEntriesRow) {
	entries, stream := appended(n.ref, rows), rows[0].StreamID
	c.queue.learn(n.ref, stream, unknown)
	c.log.hub.offer(stream, entries)
	for _, w := range calls {
		own := len(w.entries)
		w.entries, entries = entries[:own:own], entries[own:]
	}
	c.queue.finish(n, calls, nil)
}
