// Package commit is the log's write engine: it accepts appends to all streams and commits them in groups.
//
// Calls of [Committer.Append] wait in a queue (queue.go) with one lane for each stream. One writer (writer.go) takes
// batches from it: all waiting calls, of all streams, in one statement (batch.go). Calls that cannot be part of a
// batch, because they are invalid, were written before or are too large, get their own transaction (careful.go).
//
// The engine knows nothing of readers. It reports commits to its owner through [Hooks].
package commit

import (
	"context"
	"sync"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// Committer commits appends. It is safe for concurrent use.
type Committer struct {
	store  *store.Store
	queue  *queue
	counts counts

	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
}

// Open connects and starts to commit. Later it reconnects by itself. The error is a [fault.Unavailable] if the database
// refuses the connection.
func Open(ctx context.Context, s *store.Store, hooks Hooks) (*Committer, error) {
	c := &Committer{store: s, queue: newQueue()}
	// Without the caller's cancellation, because ctx is only for Open and may end long before the Committer.
	c.ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	w := &writer{
		counts: &c.counts, ctx: c.ctx, work: &c.work, store: s, queue: c.queue, hooks: hooks,
		careful: &careful{ctx: c.ctx, store: s, queue: c.queue, hooks: hooks, slots: make(chan struct{}, maxAlone)},
	}
	if err := w.connect(ctx); err != nil {
		c.stop()
		return nil, err
	}
	c.work.Go(w.run)
	return c, nil
}

// Stats returns the counts so far.
func (c *Committer) Stats() Stats {
	s := Stats{Batches: c.counts.batches.Load(), Appends: c.counts.appends.Load(), Entries: c.counts.entries.Load()}
	for i := range s.Sizes {
		s.Sizes[i] = c.counts.sizes[i].Load()
	}
	return s
}

// Close refuses waiting and new calls with a [fault.Unavailable], and waits for the commit in progress.
func (c *Committer) Close() {
	c.stop()
	c.work.Wait()
}

// Append adds drafts, all of which have ids, at the end of a log, in order and all or none, and returns their entries
// after the commit. For a draft whose id the log already has, it returns the existing entry. If stream is not 0, only
// the stream with this id may receive the entries: if the name belongs to another stream, nothing is written and the
// error is [ErrMoved].
func (c *Committer) Append(ctx context.Context, ref store.Ref, stream int64, drafts []entry.Draft) ([]entry.Entry, error) {
	if err := store.ShutdownError(c.ctx); err != nil || len(drafts) == 0 {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := newCall(ref, stream, drafts)
	if err != nil {
		return nil, err
	}
	n, err := c.lane(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := c.queue.put(ctx, n, w); err != nil {
		return nil, err
	}
	select {
	case <-w.done:
		if w.err != nil {
			return nil, w.err
		}
		return w.entries, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lane returns the lane of a stream. It asks the database if this server has not written to the stream recently. It
// repeats this, because a sweep may forget the lane before it is entered.
func (c *Committer) lane(ctx context.Context, ref store.Ref) (*lane, error) {
	for {
		if n := c.queue.enter(ref); n != nil {
			return n, nil
		}
		end, err := c.store.Find(ctx, ref)
		if err != nil {
			return nil, err
		}
		c.queue.learn(ref, end.ID)
	}
}

// Remember stores the stream that has a name and, for [Committer.Recall], its content type. The type of a stream that
// expires is not stored, because only the database knows whether the stream still exists. Streams without writes are
// forgotten after a while.
func (c *Committer) Remember(ref store.Ref, stream int64, contentType string, expires bool) {
	if expires {
		c.queue.learn(ref, stream)
		return
	}
	c.queue.describe(ref, stream, contentType)
}

// Recall returns the remembered data of the stream that recently had this name. Another stream may have the name by
// now.
func (c *Committer) Recall(ref store.Ref) (stream int64, contentType string, known bool) {
	return c.queue.recall(ref)
}

// Heard reports that another writer extended a stream to a position. It is a hint that avoids a batch which would be
// refused.
func (c *Committer) Heard(stream, tail int64) { c.queue.heard(stream, tail) }
