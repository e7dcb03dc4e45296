package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
	"github.com/arbe-dev/arbe/internal/wait"
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
	// decideLast is how long a stopping server goes on deciding. It is short, because other servers decide the rest.
	decideLast = 5 * time.Second
)

// News holds a thread's new entries. A [Selector] reads what it needs, once, with one of the methods. The decision covers the
// entries up to the last one that the method looked at, or all of them if the selector called none.
type News struct {
	House, Thread string
	// Direct is the recipient if the thread is a direct message; otherwise empty.
	Direct string
	// Driver is the bot that drives the thread; empty for a chat.
	Driver string
	// Answering is the bot, if any, that answers in the thread without being mentioned. Settled reports that the first
	// message, or a person, has decided that.
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
// them. Skipping a chat costs about a hundredth of returning it, so a long log of output or of other people's talk delays
// nobody.
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

// first returns the id of the thread's first chat, or "" if there is none.
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

// Selector returns the work that new entries ask for, or nil if they ask for none, which is the usual case. It must be quick,
// because the entries of all threads wait for it. It must have no side effects, because it may be called again for the same
// entries, also by another server. If it fails, it is retried a second later, without delaying other threads.
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

// start starts deciding the entries that arrive through the log, until the log closes.
func (c *decider) start(ctx context.Context) error {
	c.news, c.lanes, c.failed = newNewsQueue(), make(chan struct{}, decideHouses), map[int64]stream.Ref{}
	c.closing, c.done = make(chan struct{}), make(chan struct{})
	err := c.in(ctx, func(tx pgx.Tx) error { return queries.RegisterServer(ctx, tx, int64(c.jobs.Server())) })
	if err != nil {
		return err
	}
	c.index = startIndexing(c.db, c.logger)
	c.log.Follow(c)
	go c.run()
	return nil
}

// in runs a transaction that belongs to no house, because a round decides for the threads of many houses.
func (c *decider) in(ctx context.Context, f func(pgx.Tx) error) error {
	return c.db.In(ctx, db.Scope{}, f)
}

// Committed records that a thread's log has new entries. Other logs are ignored. It must not decide anything itself, because
// the log's committer calls it and would wait.
func (c *decider) Committed(ref stream.Ref, id int64) {
	if isThreads(ref) {
		c.news.add(id, ref)
	}
}

// isThreads reports whether a log belongs to a thread.
func isThreads(ref stream.Ref) bool { return strings.HasPrefix(ref.Name, thread.StreamName("")) }

// Closing decides the remaining entries, and indexes them if that takes only a moment. If none is left, it also removes this
// server's row, so that no other server checks all cursors on its account.
func (c *decider) Closing(pending bool) {
	close(c.closing)
	<-c.done
	defer c.index.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), decideLast)
	defer cancel()
	c.retry()
	for c.unfinished() {
		c.round(ctx, c.news.takeAll())
		c.working.Wait()
		if c.hasFailed() {
			return
		}
	}
	if indexed := c.index.stop(); pending || !indexed {
		return
	}
	if err := c.in(ctx, func(tx pgx.Tx) error { return queries.UnregisterServer(ctx, tx, int64(c.jobs.Server())) }); err != nil {
		c.logger.Debug("this server left entries undecided; other servers will decide them", "error", fault.From(err).Detail())
	}
}

func (c *decider) unfinished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.moves) > 0 || !c.news.empty()
}

func (c *decider) hasFailed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failed) > 0
}

// retry puts failed logs into the next round.
func (c *decider) retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, ref := range c.failed {
		c.news.add(id, ref)
	}
	clear(c.failed)
}

// run decides in rounds until the log closes.
func (c *decider) run() {
	defer close(c.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-c.closing
		cancel()
	}()
	defer c.working.Wait()
	least := decidePause
	if c.choose == nil {
		least = idlePause
	}
	for c.scan(ctx) != nil {
		if !wait.For(ctx, decideAgain) {
			return
		}
	}
	var again, ready <-chan time.Time
	for {
		select {
		case <-c.news.wakeup:
		case <-ready:
		case <-again:
			c.retry()
			again = nil
			continue
		case <-ctx.Done():
			return
		}
		news, next := c.news.take(time.Now())
		c.round(ctx, news)
		if ready = nil; !next.IsZero() {
			ready = time.After(time.Until(next))
		}
		if again == nil && c.hasFailed() {
			again = time.After(decideAgain)
		}
		wait.For(ctx, least)
	}
}

// fail schedules a retry of logs after a pause.
func (c *decider) fail(err error, refs map[int64]stream.Ref) {
	level := slog.LevelWarn
	if errors.Is(err, context.Canceled) {
		level = slog.LevelDebug
	}
	c.logger.Log(context.Background(), level, "cannot decide what work new entries ask for; trying again", "threads", len(refs), "error", fault.From(err).Detail())
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.failed, refs)
	c.news.wake()
}

// move moves a cursor past decided entries.
type move struct {
	stream       int64
	ref          stream.Ref
	behind, upto int64
}

// round writes the decisions of earlier rounds and begins to decide for houses, each on its own, so that no house waits for
// another's entries. It does not wait for the decisions.
func (c *decider) round(ctx context.Context, news []*houseNews) {
	c.settleIdle(ctx)
	var ids []int64
	for _, n := range news {
		ids = slices.AppendSeq(ids, maps.Keys(n.taken))
	}
	if len(ids) == 0 {
		return
	}
	var rows []query.UndecidedRow
	err := c.in(ctx, func(tx pgx.Tx) (err error) {
		rows, err = queries.Undecided(ctx, tx, ids)
		return err
	})
	by := map[string][]query.UndecidedRow{}
	for _, row := range rows {
		by[row.HouseID] = append(by[row.HouseID], row)
	}
	for _, n := range news {
		if err != nil {
			c.fail(err, n.taken)
			c.news.end(n, 0, false)
			continue
		}
		c.working.Go(func() {
			c.lanes <- struct{}{}
			defer func() { <-c.lanes }()
			cost, behind := c.decide(ctx, n.taken, by[n.house])
			c.news.end(n, cost, behind)
		})
	}
}

// decide decides the waiting entries of a house's threads, for about decideTime. It returns what that costs the house, and
// whether entries remain for a later round.
func (c *decider) decide(ctx context.Context, refs map[int64]stream.Ref, rows []query.UndecidedRow) (cost time.Duration, behind bool) {
	var left atomic.Bool
	later := func(id int64) {
		left.Store(true)
		c.news.add(id, refs[id])
	}
	settle := func(m move, tail int64, err error) {
		switch {
		case fault.CodeOf(err) == fault.NotFound: // the thread was deleted
		case err != nil && !errors.Is(err, errOvertaken):
			c.fail(err, map[int64]stream.Ref{m.stream: m.ref})
		case err != nil, m.upto < tail:
			later(m.stream)
		}
	}
	var all sync.WaitGroup
	places := make(chan struct{}, decideAtOnce)
	// Take short logs first, so that nobody waits for those that need several rounds.
	slices.SortFunc(rows, func(a, b query.UndecidedRow) int { return cmp.Compare(a.Tail-a.Decided, b.Tail-b.Decided) })
	room, began := int64(decideScan), time.Now()
	for _, row := range rows {
		if room <= 0 || time.Since(began) >= decideTime {
			later(row.StreamID)
			continue
		}
		m := move{row.StreamID, refs[row.StreamID], row.Decided, row.Tail}
		var work Work
		var err error
		if c.choose != nil {
			m.upto = min(m.upto, m.behind+room)
			news := &News{House: row.HouseID, Thread: row.ThreadID, Direct: row.Direct, Driver: row.Driver, Answering: row.Answering, Settled: row.Settled, People: row.People, Roster: row.Roster, decider: c, log: m.ref, move: m}
			work, err = c.choose(ctx, news)
			m = news.move
			room -= m.upto - m.behind
			cost += threadCost + time.Duration(m.upto-m.behind)*entryCost
		}
		switch {
		case err == nil && work != nil:
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places }()
				err := c.commit(ctx, m, work)
				if err == nil {
					c.index.add(m.stream)
				}
				settle(m, row.Tail, err)
			})
			continue
		case err == nil:
			c.mu.Lock()
			c.moves = append(c.moves, m)
			c.mu.Unlock()
		}
		settle(m, row.Tail, err)
	}
	all.Wait()
	return cost, left.Load()
}

// settleIdle moves the cursors past entries that ask for no work, for all houses together and without waiting for the disk.
// If these decisions are lost, they are made again.
func (c *decider) settleIdle(ctx context.Context) {
	c.mu.Lock()
	moves := c.moves
	c.moves = nil
	c.mu.Unlock()
	if len(moves) == 0 {
		return
	}
	var streams, behind, upto []int64
	refs := map[int64]stream.Ref{}
	for _, m := range moves {
		streams, behind, upto = append(streams, m.stream), append(behind, m.behind), append(upto, m.upto)
		refs[m.stream] = m.ref
	}
	err := c.in(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local synchronous_commit = off"); err != nil {
			return err
		}
		return queries.DecideIdle(ctx, tx, streams, behind, upto)
	})
	if err != nil {
		c.fail(err, refs)
		return
	}
	c.index.add(streams...)
}

// errOvertaken reports that another server moved a cursor first, or that its thread was deleted.
var errOvertaken = errors.New("another server decided")

// commit commits a decision with its work. If the cursor has moved since the decision began, another server has decided, and
// commit does nothing.
func (c *decider) commit(ctx context.Context, m move, work Work) error {
	return c.db.In(ctx, db.Scope{House: m.ref.House}, func(tx pgx.Tx) error {
		moved, err := queries.Decide(ctx, tx, m.upto, m.stream, m.behind)
		switch {
		case err != nil:
			return err
		case moved == 0:
			return errOvertaken
		}
		asks, err := work(ctx, tx)
		for _, t := range asks.Turns {
			if err == nil {
				_, err = c.requestTurn(ctx, tx, m.ref, t)
			}
		}
		if err == nil && len(asks.Notes) > 0 {
			_, err = c.log.AppendTx(ctx, tx, m.ref, asks.Notes...)
		}
		return err
	})
}

// scan finds all threads with undecided entries, whichever server accepted them.
func (c *decider) scan(ctx context.Context) error {
	for after := int64(0); ; {
		var rows []query.UndecidedAfterRow
		err := c.in(ctx, func(tx pgx.Tx) (err error) {
			rows, err = queries.UndecidedAfter(ctx, tx, after, newsMost)
			return err
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			after = row.StreamID
			c.Committed(stream.Ref{House: row.HouseID, Name: row.Stream}, row.StreamID)
		}
		if len(rows) < newsMost {
			return nil
		}
	}
}

// recoverDead decides and indexes what dead servers left behind. A server that stopped in an orderly way left nothing behind
// and has no row. A server that looks dead may only have lost its connection and still accept entries, or be about to stop.
// So its row is kept for an hour and then checked one last time.
func (c *decider) recoverDead(ctx context.Context) error {
	gone, err := c.gone(ctx)
	if err != nil || len(gone) == 0 {
		return err
	}
	if !wait.For(ctx, c.jobs.LockGrace()) {
		return ctx.Err()
	}
	again, err := c.gone(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(gone, func(key int64, _ query.ListServersRow) bool { _, still := again[key]; return !still })
	if len(gone) == 0 {
		return nil
	}
	if err := errors.Join(c.scan(ctx), c.index.scan(ctx)); err != nil {
		return err
	}
	return c.in(ctx, func(tx pgx.Tx) error {
		for key, server := range gone {
			if server.LongDead {
				err = queries.UnregisterServer(ctx, tx, key)
			} else {
				err = queries.MarkServerDead(ctx, tx, key)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// gone returns the servers whose lock is free and that are due for a check. If a server's lock is held again, the server had
// only lost its connection, so gone removes its mark.
func (c *decider) gone(ctx context.Context) (gone map[int64]query.ListServersRow, err error) {
	gone = map[int64]query.ListServersRow{}
	err = c.in(ctx, func(tx pgx.Tx) error {
		servers, err := queries.ListServers(ctx, tx)
		for _, server := range servers {
			free := false
			if server.Key != int64(c.jobs.Server()) && err == nil {
				free, err = jobs.Server(server.Key).GoneTx(ctx, tx)
			}
			switch {
			case err != nil:
				return err
			case free && (!server.Dead || server.LongDead):
				gone[server.Key] = server
			case !free && server.Dead:
				err = queries.MarkServerAlive(ctx, tx, server.Key)
			}
		}
		return err
	})
	return gone, err
}

// known holds the agents of a house who can be mentioned.
type known struct {
	bot.Roster
	people []inbox.Person
}

// handles returns everyone's handles.
func (k known) handles() []string {
	all := []string{}
	for _, b := range k.Bots {
		all = append(all, b.Handle)
	}
	for _, p := range k.people {
		all = append(all, p.Handles...)
	}
	return all
}
