package dispatch

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"errors"
	"fmt"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

const (
	// decidePause is the pause after a round, so that a burst of entries is decided in batches. A server whose decisions
	// never ask for work pauses for idlePause.
	decidePause = 20 * time.Millisecond
	// decideAgain is the pause before a failed decision is retried, so that a broken database is not flooded with retries.
	decideAgain = time.Second
	// decideEntries is the number of entries per thread that a [Selector] sees. It bounds the memory of a round, because
	// all threads with new entries may wait after an outage.
	decideEntries = 1000
	// decideScan is the number of entries of a house in one round, including those that no selector sees.
	decideScan = 250_000
	// decideTime is roughly how long one round works for a house. The remaining entries wait for the next round.
	decideTime = 50 * time.Millisecond
	// decideHouses limits the houses for which a server decides concurrently. decideAtOnce limits the concurrent commits of a
	// house's decisions with work, each of which waits for the database.
	decideHouses, decideAtOnce = 8, 4
	// decideLast is how long a stopping server continues to decide. It is short, because other servers decide the rest.
	decideLast = 5 * time.Second
)

// decider decides what work each entry of each thread asks for. Each thread has a cursor. The transaction that queues the
// work also moves the cursor past the decided entries, provided that it is still where the decision began. So each entry is
// decided exactly once, however many servers try.
//
// The decider learns of new entries from this server's log. If the server is killed, this knowledge is lost, so servers also
// check all cursors: each when it starts, and one of them when another server has died (recoverDead).
type decider struct {
	// These are set before [decider.start].
	db     *db.DB
	log    *stream.Log
	jobs   *jobs.Jobs
	logger *slog.Logger
	saidIn *saidIn
	logs   *logSizes
	choose Selector
	// requestTurn is [Dispatcher.requestTurnTx].
	requestTurn func(context.Context, pgx.Tx, stream.Ref, turn.Request) (string, error)

	index *indexer
	news  *newsQueue
	// lanes limits the houses for which this server decides concurrently. working also counts the houses that wait.
	lanes   chan struct{}
	working sync.WaitGroup

	mu sync.Mutex
	// failed holds logs to be retried after a pause. They are kept apart, so that a log that keeps failing is not retried in
	// every round.
	failed map[int64]stream.Ref
	// moves holds decisions without work that are yet to be written.
	moves []move

	closing, done chan struct{}
}

// in runs a transaction that belongs to no house, because a round decides for the threads of many houses.
func (c *decider) in(ctx context.Context, f func(pgx.Tx) error) error {
	return c.db.In(ctx, db.Scope{}, f)
}

// Committed records that a log has grown, and that a thread's log has new entries. It must not decide anything itself, because
// the log's committer calls it and would wait.
func (c *decider) Committed(ref stream.Ref, id int64) {
	c.logs.grew(id)
	if isThreads(ref) {
		c.news.add(id, ref)
	}
}

// isThreads reports whether a log belongs to a thread.
func isThreads(ref stream.Ref) bool { return strings.HasPrefix(ref.Name, thread.StreamName("")) }

// News holds a thread's new entries. A [Selector] reads what it needs, once, with one of the methods. The decision covers the
// entries up to the last one that the method looked at, or all of them if the selector called none.
type News struct {
	House, Thread string
	// Direct is the recipient if the thread is a direct message; otherwise empty.
	Direct string
	// Driver is the bot that drives the thread; empty for a chat.
	Driver string
	// Answering is the bot, if any, that answers in the thread without being mentioned. Settled reports that the first
	// message, or a person, has chosen the bot or none.
	Answering string
	Settled   bool
	// People are the members who see the thread in their lists; empty if the whole house sees it.
	People []string
	// Roster is the version of the house's bots.
	Roster int64

	decider *decider
	log     stream.Ref
	move    move
}

// Entries returns the next entries of every kind, in the order of the log.
func (n *News) Entries(ctx context.Context) ([]entry.Entry, error) {
	entries, _, err := n.decider.log.Read(ctx, n.log, stream.Range{After: n.move.behind, Before: n.move.upto + 1, Limit: decideEntries})
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("the log %s has no entry after %d", n.log.Name, n.move.behind)
	}
	n.move.upto = entries[len(entries)-1].Seq
	return entries, nil
}

// Chats returns the next chats, in the order of the log. Unless handles is nil, it skips chats that cannot mention any of
// them. Skipping a chat costs about a hundredth of returning it, so a long log of other entries or chats delays nobody.
func (n *News) Chats(ctx context.Context, handles []string) ([]entry.Entry, error) {
	var rows []query.ChatsRow
	err := n.decider.db.In(ctx, db.Scope{House: n.House}, func(tx pgx.Tx) (err error) {
		rows, err = queries.Chats(ctx, tx, query.ChatsParams{
			Stream: n.move.stream, Behind: n.move.behind, Upto: n.move.upto, Handles: handles, Most: decideEntries,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	chats := make([]entry.Entry, len(rows))
	for i, r := range rows {
		chats[i] = entry.Entry{Seq: r.Seq, ID: r.ID, Type: entry.Chat{}.Type(), Author: r.Author, Payload: r.Payload, Time: r.Ts}
	}
	if len(chats) == decideEntries {
		n.move.upto = chats[len(chats)-1].Seq
	}
	return chats, nil
}

// first returns the id of the thread's first chat. It returns "" if the thread has no chat.
func (n *News) first(ctx context.Context) (id string, err error) {
	err = n.decider.db.In(ctx, db.Scope{House: n.House}, func(tx pgx.Tx) (err error) {
		id, err = queries.FirstChat(ctx, tx, n.move.stream)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return err
	})
	return id, err
}

// authorOf returns the author of an entry of the thread; empty if there is no such entry.
func (n *News) authorOf(ctx context.Context, id string) (string, error) {
	e, err := n.decider.log.Get(ctx, n.log, id)
	if fault.CodeOf(err) == fault.NotFound {
		return "", nil
	}
	return e.Author, err
}

// Selector returns the work that new entries ask for, or nil for none, the usual case. It must be quick, because the entries
// of all threads wait for it. It must have no side effects, because it may be called again for the same entries, also by
// another server. If it fails, it is retried a second later, without delaying other threads.
type Selector func(context.Context, *News) (Work, error)

// Work determines what new entries ask for, in the transaction that records the decision. For each entry, exactly one result
// of a [Selector] is committed. Decisions about a thread are made one after another.
type Work func(context.Context, pgx.Tx) (Outcome, error)

// Outcome is the work that new entries ask for.
type Outcome struct {
	Turns []turn.Request
	// Notes are entries for the thread's log.
	Notes []entry.Draft
}

// move moves a cursor past decided entries.
type move struct {
	stream       int64
	ref          stream.Ref
	behind, upto int64
}
