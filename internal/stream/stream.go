// Package stream is the log: an ordered, durable record of what happened in a thread.
//
// A [Log] appends entries ([Log.Append], [Log.AppendTx]), reads them ([Log.Read], [Log.Get]) and sends them to
// followers as they are committed ([Log.Tail]). Positions start at 1, have no gaps, and follow commit order. A reader
// who remembers one position therefore misses nothing and sees nothing twice, across reconnects, server restarts and
// several servers on one database.
//
// A Log is thin. It owns two engines that do not know each other:
//
//   - Package commit writes: it queues appends to all streams and commits them in groups.
//   - Package fanout follows: it sends entries and deltas to tails, whichever server they came through.
//
// Package store is the base of all three: transactions, and reading and writing entries in them.
//
// stream.go connects the engines: it offers what one commits to the other. append.go, read.go and tail.go are the Log's
// API to them. follower.go and changes.go notify other packages that work on new entries.
//
// Clients may also create logs of their own. The protocol of the stream door needs more for those: metadata.go (the
// description of a log), create.go (creation and forks), write.go and outcome.go (appends that depend on the log's
// state), content.go (clients' bytes as entries) and offset.go (positions as clients write them). page.go reads more
// than a reader should hold in memory at once, and expiry.go deletes logs that have not been used for their TTL.
//
// The rule to remember: a notification is only a hint to look. Hints may come late, twice or never. What a tail sends
// depends only on its cursor and on what Postgres has committed.
package stream

import (
	"context"
	"log/slog"
	"sync"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/stream/commit"
	"github.com/arbe-dev/arbe/internal/stream/fanout"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// Log is one server's access to all logs of a database. It is safe for concurrent use.
type Log struct {
	store  *store.Store
	commit *commit.Committer
	fanout *fanout.Hub

	expiry   *expiry
	follower follower
	changes  *changes

	// ctx ends when the Log is closed.
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup
}

var queries = query.New()

// Open starts a Log on d. It opens connections of its own that listen, commit and notify, and starts the loops that
// keep tails up to date. The error is a [fault.Unavailable] if the database refuses the connections; later the Log
// reconnects by itself. Close the Log before d, because its last commit and notifications need d.
func Open(ctx context.Context, d *db.DB, log *slog.Logger) (*Log, error) {
	s := &store.Store{DB: d}
	l := &Log{store: s, expiry: newExpiry(s, log), changes: newChanges()}
	// Without the caller's cancellation, because ctx is only for Open and may end long before the Log.
	l.ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if l.commit, err = commit.Open(ctx, s, commit.Hooks{Committed: l.committed, Notify: l.notify, Reconnected: l.reconnected}); err != nil {
		l.stop()
		return nil, err
	}
	if l.fanout, err = fanout.Open(ctx, s, log, fanout.Hooks{Changed: l.changed, Appended: l.appended}); err != nil {
		l.stop()
		l.commit.Close()
		return nil, err
	}
	l.work.Go(func() { l.expiry.run(l.ctx) })
	l.work.Go(func() { l.follower.run(l.ctx) })
	return l, nil
}

// Close ends every tail with [fault.Unavailable] and waits until the Log's own work has ended. A tail whose consumer is
// busy ends at its next step. Later appends fail with the same error. The [Follower] finishes its work before Close
// returns.
func (l *Log) Close() {
	l.stop()
	l.fanout.End()
	l.commit.Close()
	l.fanout.Close() // last, because it notifies other servers of the last commit
	l.work.Wait()
	l.follower.close()
}

// Stats counts what a [Log] has done since it was opened, and what goes on now.
type Stats struct {
	commit.Stats
	// Tails is how many tails are open.
	Tails int
}

// Stats returns the counts so far.
func (l *Log) Stats() Stats { return Stats{l.commit.Stats(), l.fanout.Watchers()} }

// stopping returns the error of every call to a closed Log, and nil before it is closed.
func (l *Log) stopping() error { return store.ShutdownError(l.ctx) }

// committed notifies this server's tails and followers of the committer's entries.
func (l *Log) committed(c commit.Commit) {
	l.fanout.Offer(c.Stream, c.Entries)
	l.follower.committed(c.Ref, c.Stream)
}

// notify notifies other servers of new entries.
func (l *Log) notify(stream, tail int64) { l.fanout.Notify(stream, tail) }

// reconnected checks where logs end after the committer has reconnected. The new database may have lost the end of a
// log; a tail must then end, because entries with the same positions may replace those that it sent.
func (l *Log) reconnected() { l.fanout.Check() }

// changed notifies the followers of all logs of what any server committed.
func (l *Log) changed(streams []int64) {
	if streams == nil {
		// The notifications of callers' transactions may be among the lost ones.
		l.follower.settle(true)
	}
	l.changes.heard(streams)
}

// appended handles the notification of a commit that the committer did not make.
func (l *Log) appended(pid uint32, stream, tail int64) {
	l.follower.heard(pid, stream, tail)
	l.commit.Heard(stream, tail)
}

// Follow sets the Log's only follower. Call it once, before the entries that f must know of are appended. Earlier ones
// are not reported to it, because nothing is recorded while there is no follower.
func (l *Log) Follow(f Follower) { l.follower.set(f) }

// Changes returns a channel that receives one token after any number of appends to any log through any server. Like
// every notification it is a hint. All callers share the channel, so that only one of them receives each token.
func (l *Log) Changes() <-chan struct{} { return l.changes.changed }

// OnChange makes the Log call f with the streams that were appended to through any server, some milliseconds after the
// commits, and with nil if notifications may have been lost. A hint may come twice, or for a stream without new
// entries. f must be quick, because no notification is read while it runs; one goroutine at a time calls it. A later
// OnChange replaces f.
func (l *Log) OnChange(f func(streams []int64)) { l.changes.callback.Store(&f) }
