// Package stream is the log: what was said and done in a thread, in order, for ever.
//
// A [Log] takes entries ([Log.Append], [Log.AppendTx]), gives them back ([Log.Read], [Log.Get]) and tells
// of them as they come ([Log.Tail]). Positions start at 1, have no gap, and their order is commit order,
// so a reader who remembers one number has missed nothing and sees nothing twice: across reconnects,
// server restarts, and several servers on one database.
//
// How it is laid out: appends wait in a queue (queue.go), one lane per stream, from which the one committer
// (committer.go) writes batches: all that waits, of all streams, in one statement (batch.go). Entries that
// belong to a caller's transaction go their own way (append.go), and share the stream's lock with batches.
// read.go reads, small.go most of it. Tails are told through a hub (hub.go), which keeps one topic (topic.go)
// for each stream that somebody here watches: the newest entries, fetched once however many watch, and what
// is being typed or printed right now (preview.go). listen.go hears from Postgres what any server committed;
// tell.go tells other servers of batches, forward.go of deltas. A tail (tail.go) holds a cursor and nothing
// else; it takes what the topic has behind its cursor, or reads from the log when it is further behind than
// that, so a slow one costs nobody anything.
//
// Clients may make logs of their own, beside the threads': named.go, create.go and write.go are what the
// stream door's protocol asks of those, lineage.go reads forks, and use.go keeps those alive that live as
// long as they are used.
//
// The rule to remember: a notification is only ever a hint to look. What a tail sends is decided by its
// cursor and by what Postgres committed; hints may come late, twice or never.
package stream

import (
	"context"
	"log/slog"
	"sync"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Ref names a log.
type Ref struct {
	// House is the id of the house that owns it: who looks with other eyes finds no such log.
	House string
	// Name is its name in the house; a thread's is "arbe-thread-…" (threads.stream_id).
	Name string
}

// Event is one thing that a tail tells: an entry, a delta, that it has caught up, or that the log is closed.
// Exactly one of Entry, Delta, CaughtUp and Closed is set.
type Event struct {
	// Entry is the next record of the log. Tails share it: do not change it.
	Entry *entry.Entry
	// More says of an entry that the next one is there already.
	More bool
	// Delta is a piece of what will be an entry.
	Delta *Delta
	// CaughtUp says that all that was in the log when the tail began has been told. It comes once.
	CaughtUp bool
	// Closed says that all was told, and that nothing will ever come: the tail ends.
	Closed bool
	// Seq is where to resume after this event: the position of the last entry told, or of the start.
	Seq int64
}

// Delta is a piece of an entry that is still being made: live output, or text as a model writes it. It is
// not in the log, and may be lost; the entry, when it comes, holds the whole. A tail never tells a delta
// after the entry with its id.
type Delta struct {
	// EntryID is the id that the finished entry will have.
	EntryID string
	// Offset is how many bytes came before Data. A tail tells offsets in growing order; one that is
	// further than the last delta's end says that bytes in between were left out.
	Offset int64
	// Data is cut anywhere, also within a character. Tails share it: do not change it.
	Data []byte
}

// Log is one server's access to all logs of a database. It is safe for concurrent use.
type Log struct {
	// id tells this Log's deltas from those of other servers.
	id  uuid.UUID
	db  *db.DB
	log *slog.Logger
	hub *hub

	queue     *queue
	committer *committer
	teller    *teller

	// ctx ends when the Log closes.
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
	// catchUps bounds how many connections those who follow take from the pool, which appends need.
	catchUps chan struct{}
	// recheck asks the poller to look now.
	recheck chan struct{}
	uses    *uses
	changes chan struct{}
}

// maxCatchUps is how many tails and topics read from the log at the same moment; the others wait.
const maxCatchUps = 4

var queries = query.New()

// Open starts a Log on d: connections of its own that listen, commit and tell, and the loops
// that keep tails told. It fails with [fault.Unavailable] when the database does not take them; later it
// reconnects by itself. Close the Log before d.
func Open(ctx context.Context, d *db.DB, log *slog.Logger) (*Log, error) {
	conn, err := listen(ctx, d)
	if err != nil {
		return nil, err
	}
	l := &Log{id: uuid.New(), db: d, log: log, catchUps: make(chan struct{}, maxCatchUps), recheck: make(chan struct{}, 1), uses: newUses(), changes: make(chan struct{}, 1)}
	l.ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.hub, l.queue, l.teller = newHub(l), newQueue(), newTeller(l)
	if l.committer, err = newCommitter(ctx, l); err != nil {
		hangUp(conn)
		l.stop()
		return nil, err
	}
	l.work.Go(l.committer.run)
	l.work.Go(l.teller.run)
	l.work.Go(func() { l.hear(conn) })
	l.work.Go(l.poll)
	l.work.Go(l.forward)
	l.work.Go(l.keep)
	return l, nil
}

// Close ends every tail with [fault.Unavailable] and waits until the Log's own work has ended; a tail whose
// consumer is busy ends at its next step. Appends after Close are refused the same way.
func (l *Log) Close() {
	l.stop()
	l.hub.close()
	l.work.Wait()
}

// Changes tells that something was appended to some log through some server, once for any number of appends.
// It is a hint like all notifications, for one who follows many logs: there is one channel for all callers.
func (l *Log) Changes() <-chan struct{} { return l.changes }

// stopping is the error of everything asked of a closed Log; nil before.
func (l *Log) stopping() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return fault.New(fault.Unavailable, "the server is stopping", "connect again in a moment")
}

// bound is a context that ends with the Log as well; the caller calls done.
func (l *Log) bound(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(l.ctx, cancel)
	return ctx, func() { release(); cancel() }
}

// lookup finds a stream: the id that never comes back, and where it ends now.
func (l *Log) lookup(ctx context.Context, ref Ref) (s query.GetStreamRow, err error) {
	err = l.in(ctx, ref, func(tx txn) error {
		s, err = queries.GetStream(ctx, tx, ref.House, ref.Name)
		return err
	})
	return s, err
}
