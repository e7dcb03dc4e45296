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
	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

const (
	// After a round there is a pause of decidePause. Deciding leaves the machine to other work: a round costs credit, as
	// much as it took without the work that it found, and each pauseFor of time earns one of credit, up to decideCredit.
	// The pause lasts until a debt is earned, but at most idlePause, and at most as long as the round took if a thread has
	// more entries. So a question is decided at once where little is said, and entries are decided many at a time where
	// they come fast. A server whose decisions never ask for work always pauses for idlePause.
	decidePause, pauseFor, idlePause = 20 * time.Millisecond, 20, time.Second
	decideCredit                     = 100 * time.Millisecond
	// decideAgain is the pause before a failed decision is retried, so that a broken database is not asked all the time.
	decideAgain = time.Second
	// decideMost is the number of threads in one round, and decideEntries the number of entries per thread that a
	// [Selector] sees. They bound the memory of a round, because all threads with new entries may wait after an outage.
	decideMost, decideEntries = 1000, 1000
	// decideScan is the number of entries in one round, with those that no selector sees. It bounds the time of a round.
	decideScan = 250_000
	// decideAtOnce is how many decisions with work are committed at the same time, because each waits for the database.
	decideAtOnce = 4
	// decideLast limits the decisions of a stopping server. It may be short, because other servers make the remaining
	// ones.
	decideLast = 5 * time.Second
)

// News are the new entries of a thread. A [Selector] reads the part that it needs, once, with one of the methods. The
// decision holds for the entries up to the last one that the method looked at, and for all if none was called.
type News struct {
	House, Thread string
	// Direct is the agent to whom the thread is a direct message; empty if it is none.
	Direct string
	// Roster is the version of the house's bots.
	Roster int64

	decider *decider
	log     stream.Ref
	move    move
}

// Entries returns the next entries, whatever they are, in the order of the log.
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

// Chats returns what agents said next, in the order of the log. It leaves out chats that certainly mention none of the
// handles, unless these are nil. What it leaves out costs about a hundredth of what it returns, so that a long log of
// output or of other people's talk delays nobody.
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

// Selector returns the work that new entries ask for: usually none, which is nil. It must be quick, because the entries
// of all threads wait for it, and must have no side effects, because it may be called again for the same entries, also
// by another server. If it fails, it is called again a second later, without delaying other threads.
type Selector func(context.Context, *News) (Work, error)

// Work finds out, in the transaction that records the decision, what new entries ask for. Of all results of a [Selector]
// for an entry exactly one is committed. Decisions about a thread are made one after the other.
type Work func(context.Context, pgx.Tx) (Outcome, error)

// Outcome is what new entries ask for.
type Outcome struct {
	Jobs  []river.InsertManyParams
	Turns []turn.Request
	// Notes are entries for the thread's log.
	Notes []entry.Draft
}

var queries = query.New()

// decider decides for each entry of each thread what work it asks for. Each thread has a cursor. The transaction that
// queues the work moves the cursor over the decided entries, if it is still where the decision began. So each entry is
// decided exactly once, however many servers try.
//
// The decider learns of threads with new entries from this server's log. That information is lost when the server is
// killed, so servers also check all cursors: each when it starts, and one of them when another server has died
// (recoverDead).
type decider struct {
	db     *db.DB
	log    *stream.Log
	queue  *river.Client[pgx.Tx]
	logger *slog.Logger
	choose Selector
	// requestTurn is [Dispatcher.requestTurnTx].
	requestTurn func(context.Context, pgx.Tx, stream.Ref, turn.Request) (string, error)
	index       *indexer
	// key is the server's liveness lock, and lockGrace that of [Config].
	key       int64
	lockGrace time.Duration

	mu sync.Mutex
	// waiting are the logs with entries to decide, and failed those to be retried after a pause. They are apart, so that
	// a log that keeps failing does not make every round retry it.
	waiting, failed map[int64]stream.Ref
	// wakeup receives a token when waiting is not empty.
	wakeup        chan struct{}
	closing, done chan struct{}
}

// startDeciding starts to decide the entries that come in through the dispatcher's log, until the log closes.
func startDeciding(ctx context.Context, d *Dispatcher) (*decider, error) {
	c := &decider{
		db: d.db, log: d.log, queue: d.queue, logger: d.logger, choose: d.config.Select, key: d.liveness.key, lockGrace: d.config.lockGrace, requestTurn: d.requestTurnTx,
		waiting: map[int64]stream.Ref{}, failed: map[int64]stream.Ref{},
		wakeup: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	err := c.in(ctx, func(tx pgx.Tx) error { return queries.RegisterServer(ctx, tx, c.key) })
	if err != nil {
		return nil, err
	}
	c.index = startIndexing(d.db, d.logger)
	c.log.Follow(c)
	go c.run()
	return c, nil
}

// in runs a transaction without a house, because a round decides for the threads of many houses.
func (c *decider) in(ctx context.Context, f func(pgx.Tx) error) error {
	return c.db.In(ctx, db.Scope{}, f)
}

// Committed records that a thread's log has new entries. Other logs need no decisions. It decides nothing itself,
// because the log's committer calls it and would wait.
func (c *decider) Committed(ref stream.Ref, id int64) {
	if !isThreads(ref) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[id] = ref
	c.wake()
}

// isThreads reports whether a log is a thread's.
func isThreads(ref stream.Ref) bool { return strings.HasPrefix(ref.Name, thread.StreamName("")) }

// wake makes the next round begin. Callers hold the lock.
func (c *decider) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default: // a token is already pending
	}
}

// Closing decides what is left, and makes it searchable if that takes only a moment. If nothing is left, it also removes
// this server's row, so that no other server checks all cursors because of it.
func (c *decider) Closing(pending bool) {
	close(c.closing)
	<-c.done
	defer c.index.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), decideLast)
	defer cancel()
	c.retry()
	for !c.idle() {
		c.round(ctx)
		if len(c.failed) > 0 {
			return
		}
	}
	if indexed := c.index.stop(); pending || !indexed {
		return
	}
	if err := c.in(ctx, func(tx pgx.Tx) error { return queries.UnregisterServer(ctx, tx, c.key) }); err != nil {
		c.logger.Debug("this server left entries undecided; other servers will decide them", "error", fault.From(err).Detail())
	}
}

func (c *decider) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) == 0
}

// retry makes the next round include what failed.
func (c *decider) retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failed) > 0 {
		maps.Copy(c.waiting, c.failed)
		clear(c.failed)
		c.wake()
	}
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
	least, credit, earned := decidePause, decideCredit, time.Now()
	if c.choose == nil {
		least = idlePause
	}
	for c.scan(ctx) != nil {
		if !pause(ctx, decideAgain) {
			return
		}
	}
	var again <-chan time.Time
	for {
		select {
		case <-c.wakeup:
		case <-again:
			c.retry()
			again = nil
			continue
		case <-ctx.Done():
			return
		}
		began := time.Now()
		worked, behind := c.round(ctx)
		took := time.Since(began) - worked
		if len(c.failed) > 0 && again == nil {
			again = time.After(decideAgain)
		}
		credit = max(min(credit+time.Since(earned)/pauseFor, decideCredit)-took, -idlePause/pauseFor)
		earned = time.Now()
		longest := idlePause
		if behind { // somebody may have waited for long
			longest = took
		}
		pause(ctx, max(least, min(-credit*pauseFor, longest)))
	}
}

// pause returns false if ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// take returns the threads for a round.
func (c *decider) take() (refs map[int64]stream.Ref, ids []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	refs = map[int64]stream.Ref{}
	for id, ref := range c.waiting {
		if len(ids) == decideMost {
			c.wake()
			break
		}
		refs[id] = ref
		ids = append(ids, id)
		delete(c.waiting, id)
	}
	return refs, ids
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
}

// move moves a cursor over decided entries.
type move struct {
	stream       int64
	house        string
	behind, upto int64
}

// round decides the waiting entries. Decisions without work are committed together and without waiting for the disk: if
// they are lost, they are made again. It returns how long it took to commit those with work, and whether it left entries of
// a thread to the next round.
func (c *decider) round(ctx context.Context) (worked time.Duration, behind bool) {
	refs, ids := c.take()
	if len(ids) == 0 {
		return 0, false
	}
	var rows []query.UndecidedRow
	err := c.in(ctx, func(tx pgx.Tx) (err error) {
		rows, err = queries.Undecided(ctx, tx, ids)
		return err
	})
	if err != nil {
		c.fail(err, refs)
		return 0, false
	}
	var left atomic.Bool
	idle := map[int64]stream.Ref{}
	var moves []move
	type ask struct {
		move
		work Work
		tail int64
	}
	var asks []ask
	settle := func(m move, tail int64, err error) {
		switch {
		case fault.CodeOf(err) == fault.NotFound: // the thread was deleted
		case err != nil && !errors.Is(err, errOvertaken):
			c.fail(err, map[int64]stream.Ref{m.stream: refs[m.stream]})
		case err != nil, m.upto < tail:
			left.Store(true)
			c.Committed(refs[m.stream], m.stream)
		}
	}
	// Short logs first, so that nobody waits for those that take several rounds.
	slices.SortFunc(rows, func(a, b query.UndecidedRow) int { return cmp.Compare(a.Tail-a.Decided, b.Tail-b.Decided) })
	room := int64(decideScan)
	for _, row := range rows {
		if room <= 0 {
			left.Store(true)
			c.Committed(refs[row.StreamID], row.StreamID)
			continue
		}
		m := move{row.StreamID, row.HouseID, row.Decided, row.Tail}
		var work Work
		if err = nil; c.choose != nil {
			m.upto = min(m.upto, m.behind+room)
			news := &News{House: m.house, Thread: row.ThreadID, Direct: row.Direct, Roster: row.Roster, decider: c, log: refs[m.stream], move: m}
			work, err = c.choose(ctx, news)
			m = news.move
			room -= m.upto - m.behind
		}
		if err == nil && work != nil {
			asks = append(asks, ask{m, work, row.Tail})
			continue
		}
		if err == nil {
			idle[m.stream] = refs[m.stream]
			moves = append(moves, m)
		}
		settle(m, row.Tail, err)
	}
	began := time.Now()
	var all sync.WaitGroup
	places := make(chan struct{}, decideAtOnce)
	for _, a := range asks {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			err := c.commit(ctx, refs[a.stream], a.move, a.work)
			if err == nil {
				c.index.add(a.stream)
			}
			settle(a.move, a.tail, err)
		})
	}
	all.Wait()
	worked = time.Since(began)
	if len(idle) > 0 {
		if err = c.move(ctx, moves); err != nil {
			c.fail(err, idle)
		} else {
			c.index.add(slices.Collect(maps.Keys(idle))...)
		}
	}
	return worked, left.Load()
}

// move moves cursors over entries that ask for no work, without waiting for the disk.
func (c *decider) move(ctx context.Context, moves []move) error {
	var streams, behind, upto []int64
	for _, m := range moves {
		streams, behind, upto = append(streams, m.stream), append(behind, m.behind), append(upto, m.upto)
	}
	return c.in(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local synchronous_commit = off"); err != nil {
			return err
		}
		return queries.DecideIdle(ctx, tx, streams, behind, upto)
	})
}

// errOvertaken reports that another server moved a cursor first, or that its thread was deleted.
var errOvertaken = errors.New("another server decided")

// commit commits a decision with its work, unless the cursor has moved since the decision began, because then
// another server has decided.
func (c *decider) commit(ctx context.Context, log stream.Ref, m move, work Work) error {
	return c.db.In(ctx, db.Scope{House: m.house}, func(tx pgx.Tx) error {
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
				_, err = c.requestTurn(ctx, tx, log, t)
			}
		}
		if err == nil && len(asks.Notes) > 0 {
			_, err = c.log.AppendTx(ctx, tx, log, asks.Notes...)
		}
		if err == nil && len(asks.Jobs) > 0 {
			_, err = c.queue.InsertManyTx(ctx, tx, asks.Jobs)
		}
		return err
	})
}

// scan finds all threads with entries to decide, whichever server accepted them.
func (c *decider) scan(ctx context.Context) error {
	for after := int64(0); ; {
		var rows []query.UndecidedAfterRow
		err := c.in(ctx, func(tx pgx.Tx) (err error) {
			rows, err = queries.UndecidedAfter(ctx, tx, after, decideMost)
			return err
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			after = row.StreamID
			c.Committed(stream.Ref{House: row.HouseID, Name: row.Stream}, row.StreamID)
		}
		if len(rows) < decideMost {
			return nil
		}
	}
}

// recoverDead decides what dead servers left undecided, and has it indexed. A server that stopped regularly left nothing and has no row. A
// server that looks dead may only have lost its connection and still accept entries, or be about to stop. Its row is
// therefore kept for an hour and then checked a last time.
func (c *decider) recoverDead(ctx context.Context) error {
	gone, err := c.gone(ctx)
	if err != nil || len(gone) == 0 {
		return err
	}
	if !pause(ctx, c.lockGrace) {
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

// gone returns the servers whose lock nobody holds and that are due for a check. A server whose lock is held again had
// only lost its connection, so its mark is removed.
func (c *decider) gone(ctx context.Context) (gone map[int64]query.ListServersRow, err error) {
	gone = map[int64]query.ListServersRow{}
	err = c.in(ctx, func(tx pgx.Tx) error {
		servers, err := queries.ListServers(ctx, tx)
		for _, server := range servers {
			free := false
			if server.Key != c.key && err == nil {
				free, err = isGone(ctx, tx, server.Key)
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
