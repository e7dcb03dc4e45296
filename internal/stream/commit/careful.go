package commit

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

const (
	// lockTimeout is how long a part that is written on its own waits for the lock of its stream, before it releases
	// its connection to other parts.
	lockTimeout = "50ms"
	// maxAlone is the number of parts that may be written on their own at the same time. It is small, so that
	// connections of the pool remain for others.
	maxAlone = 4
)

// ErrMoved is the error of a call whose stream has lost its name to another stream. Nothing was written.
var ErrMoved = errors.New("the name belongs to another stream")

// careful writes parts that cannot be in a batch, each in its own transaction over the pool. The transaction finds the
// reason: entries that exist already, or that are not allowed.
type careful struct {
	ctx   context.Context
	store *store.Store
	queue *queue
	hooks Hooks
	// slots holds one token per part that is being written.
	slots chan struct{}
}

// write gives every call of a part its result, or returns the part to the queue. Calls that fail together are written
// one by one, so that an invalid one does not fail the others.
func (c *careful) write(p part) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	// suspicious reports entries that existed already, or an error. The next calls of the lane are then written alone,
	// too, because they would probably make a batch fail.
	suspicious := false
	for groups := [][]*call{p.calls}; len(groups) > 0; {
		calls := groups[0]
		stream, entries, err := c.transact(p.lane.ref, calls)
		switch {
		case db.State(err) == pgerrcode.LockNotAvailable:
			c.queue.retry(p.lane, slices.Concat(groups...))
			return
		case err != nil && len(calls) > 1 && (db.State(err) != "" || errors.Is(err, ErrMoved)) && !store.IsTransient(err):
			groups = slices.Concat(slices.Collect(slices.Chunk(calls, 1)), groups[1:])
			continue
		case err == nil:
			suspicious = suspicious || !consecutive(entries)
			c.answer(p.lane, calls, stream, entries)
		default:
			suspicious = true
			if fault.CodeOf(err) == fault.NotFound || errors.Is(err, ErrMoved) {
				c.queue.forget(p.lane)
			}
			if stopping := store.ShutdownError(c.ctx); stopping != nil {
				err = stopping
			}
			c.queue.finish(p.lane, calls, err)
		}
		groups = groups[1:]
	}
	c.queue.resume(p.lane, unknown, 0, suspicious)
}

func (c *careful) transact(ref store.Ref, calls []*call) (stream int64, entries []entry.Entry, err error) {
	var drafts []entry.Draft
	for _, w := range calls {
		for _, e := range w.entries {
			drafts = append(drafts, entry.Draft{ID: e.ID, Author: e.Author, Type: e.Type, Payload: e.Payload})
		}
	}
	err = c.store.In(c.ctx, ref, func(tx pgx.Tx) error {
		if _, err := tx.Exec(c.ctx, "set local lock_timeout = '"+lockTimeout+"'"); err != nil {
			return err
		}
		if stream, entries, err = store.Append(c.ctx, tx, ref, drafts); err != nil {
			return err
		}
		if slices.ContainsFunc(calls, func(w *call) bool { return w.stream != 0 && w.stream != stream }) {
			return ErrMoved
		}
		return nil
	})
	return stream, entries, err
}

// consecutive reports whether the entries have consecutive positions: then all of them are new.
func consecutive(entries []entry.Entry) bool {
	for i, e := range entries {
		if e.Seq != entries[0].Seq+int64(i) {
			return false
		}
	}
	return true
}

// answer gives calls the entries written for their drafts. It calls no Hooks.Notify, because their transaction has
// already notified other servers.
func (c *careful) answer(n *lane, calls []*call, stream int64, entries []entry.Entry) {
	for _, w := range calls {
		own := len(w.entries)
		w.entries, entries = entries[:own:own], entries[own:]
	}
	c.queue.learn(n.ref, stream)
	c.hooks.Committed(Commit{Ref: n.ref, Stream: stream, calls: calls})
	c.queue.finish(n, calls, nil)
}
