// Package fanout is the log's engine for following: it sends each watcher of a stream new entries and deltas, whichever
// server they come through.
//
// A [Hub] keeps one topic (topic.go; topics.go holds all of them) for each stream that is watched on this server. A
// topic holds the newest entries, fetched once however many watchers there are, and the previews of entries in progress
// (preview.go). A watcher (watch.go) holds only a cursor. It takes what the topic has after its cursor, or reads from
// the log (reader.go) if it is further behind, so a slow watcher delays no other.
//
// listen.go receives notifications of all servers' commits. poll.go also asks Postgres regularly, because notifications
// may be lost. notify.go notifies other servers of batches, and forward.go sends them deltas.
//
// The rule to remember: a notification is only a hint to look. Hints may come late, twice or never. What a watcher
// receives depends only on its cursor and on Postgres' commits.
//
// The engine does not know how entries are written. Its owner offers it the commits of this server ([Hub.Offer]), which
// saves a read, and learns of other servers' commits through [Hooks].
package fanout

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// Hub sends new entries and deltas to watchers. It is safe for concurrent use.
type Hub struct {
	store    *store.Store
	topics   *topics
	poller   *poller
	notifier *notifier

	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
	once sync.Once
}

// Open connects and starts to listen for commits. Later it reconnects by itself. The error is a [fault.Unavailable] if
// the database refuses the connection. hooks may be called before Open returns.
func Open(ctx context.Context, s *store.Store, log *slog.Logger, hooks Hooks) (*Hub, error) {
	h := &Hub{store: s}
	// Without the caller's cancellation, because ctx is only for Open and may end long before the Hub.
	h.ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.topics = newTopics(h.ctx, &h.work, log, &reader{store: s, slots: make(chan struct{}, maxReaders)})
	h.poller = &poller{ctx: h.ctx, log: log, store: s, topics: h.topics, now: make(chan struct{}, 1)}
	h.notifier = newNotifier(h.ctx, log, s)
	deltas := &forwarder{id: uuid.New(), ctx: h.ctx, log: log, store: s, topics: h.topics}
	receiver := &receiver{log: log, hooks: hooks, topics: h.topics, poller: h.poller, notifier: h.notifier, deltas: deltas}
	listener := receiver.listener(s)
	if err := listener.Connect(ctx); err != nil {
		h.stop()
		return nil, err
	}
	h.work.Go(func() { listener.Run(h.ctx) })
	h.work.Go(h.poller.run)
	h.work.Go(h.notifier.run)
	h.work.Go(deltas.run)
	return h, nil
}

// End ends every watch with [fault.Unavailable]. A watch whose consumer is busy ends at its next step.
func (h *Hub) End() {
	h.stop()
	h.topics.close()
}

// Close ends every watch, sends the notifications that [Hub.Notify] asked for, and waits until the hub's own work has
// ended.
func (h *Hub) Close() {
	h.End()
	h.once.Do(func() { close(h.notifier.over) })
	h.work.Wait()
}

// Watch sends every entry of a log after a position, in order, both existing and new ones, and the deltas that are
// published meanwhile. Errors of its start are returned here and not by the sequence. If stream is not 0, a different
// stream that has taken the log's name is a [fault.NotFound]. The caller must range over the sequence once, in any
// goroutine; only that releases the log.
//
// The sequence ends without an error when ctx ends or the log is closed. Otherwise it ends with its one error:
// [fault.OutOfRange], [fault.NotFound] or [fault.Unavailable].
func (h *Hub) Watch(ctx context.Context, ref store.Ref, stream, after int64) (iter.Seq2[Event, error], error) {
	if err := store.ShutdownError(h.ctx); err != nil {
		return nil, err
	}
	w := &watcher{store: h.store, topics: h.topics, ref: ref, id: stream, cursor: after}
	if err := w.begin(ctx); err != nil {
		if stopping := store.ShutdownError(h.ctx); stopping != nil {
			err = stopping
		}
		return nil, err
	}
	return w.events(ctx), nil
}

// Watchers returns how many watches of all streams are open.
func (h *Hub) Watchers() (n int) {
	// The topics' locks are taken without that of topics, so that a count delays no watcher that joins.
	h.topics.mu.Lock()
	all := slices.Collect(maps.Values(h.topics.all))
	h.topics.mu.Unlock()
	for _, t := range all {
		t.mu.Lock()
		n += t.watchers
		t.mu.Unlock()
	}
	return n
}

// Publish sends a piece of an unfinished entry to the watchers of a log on all servers. It does not wait for them, and
// a slow watcher misses pieces. The bytes of an entry id never change, so pieces at offsets that were already sent are
// skipped. Errors: [fault.NotFound], and [fault.Invalid] for a negative offset or an entry id that is empty, longer
// than 200 bytes or not UTF-8.
func (h *Hub) Publish(ctx context.Context, ref store.Ref, d Delta) error {
	if d.EntryID == "" || len(d.EntryID) > maxEntryID || !utf8.ValidString(d.EntryID) || d.Offset < 0 {
		return fault.New(fault.Invalid, "a delta needs the id of its entry, of at most 200 bytes of UTF-8, and an offset that is not negative", "check both")
	}
	id, known := h.topics.idOf(ref)
	if !known {
		end, err := h.store.Find(ctx, ref)
		if err != nil {
			return err
		}
		id = end.ID
	}
	h.topics.publish(id, ref, d, true)
	return nil
}

// Offer gives watchers of a stream the entries of a commit of this server, which saves a read. entries is called only
// if there is a watcher.
func (h *Hub) Offer(stream int64, entries func() []entry.Entry) {
	if t := h.topics.find(stream); t != nil {
		h.topics.offer(t, entries())
	}
}

// Closed reports that a stream was closed through this server, at position tail.
func (h *Hub) Closed(stream, tail int64) { h.topics.closed(stream, tail) }

// Notify asks to notify other servers that a stream reaches position tail. It is for commits that made no notification;
// other servers would otherwise see them only when they poll.
func (h *Hub) Notify(stream, tail int64) { h.notifier.note(stream, tail) }

// Check compares where the watched streams end before it returns. Watchers of a stream that lost its end start again,
// because other entries may take the positions that they were sent.
func (h *Hub) Check() { h.poller.check() }
