package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/wait"
)

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

// Closing decides the remaining entries, and indexes them if that takes only a moment. If none is left, it also removes this
// server's row, so that no other server checks all cursors because of it.
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
	c.decideUntil(ctx, least)
}

// decideUntil decides in rounds until ctx ends. least is the shortest pause between two rounds.
func (c *decider) decideUntil(ctx context.Context, least time.Duration) {
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
	d := &deciding{decider: c, refs: refs, places: make(chan struct{}, decideAtOnce)}
	// Take short logs first, so that nobody waits for those that need several rounds.
	sort.Slice(rows, func(i, j int) bool { return rows[i].Tail-rows[i].Decided < rows[j].Tail-rows[j].Decided })
	room, began := int64(decideScan), time.Now()
	for _, row := range rows {
		if room <= 0 || time.Since(began) >= decideTime {
			d.later(row.StreamID)
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
		d.finish(ctx, m, row.Tail, work, err)
	}
	d.all.Wait()
	return cost, d.left.Load()
}

// deciding is a round of decisions for a house.
type deciding struct {
	*decider
	refs   map[int64]stream.Ref
	left   atomic.Bool // entries remain for a later round
	all    sync.WaitGroup
	places chan struct{}
}

// later leaves a thread to a later round.
func (d *deciding) later(id int64) {
	d.left.Store(true)
	d.news.add(id, d.refs[id])
}

// finish commits the work that new entries ask for, in the background, or only notes that they were decided.
func (d *deciding) finish(ctx context.Context, m move, tail int64, work Work, err error) {
	if err == nil && work != nil {
		d.places <- struct{}{}
		d.all.Go(func() {
			defer func() { <-d.places }()
			err := d.commit(ctx, m, work)
			if err == nil {
				d.index.add(m.stream)
			}
			d.settle(m, tail, err)
		})
		return
	}
	if err == nil {
		d.mu.Lock()
		d.moves = append(d.moves, m)
		d.mu.Unlock()
	}
	d.settle(m, tail, err)
}

// settle leaves what remains of a thread, or failed, to a later round.
func (d *deciding) settle(m move, tail int64, err error) {
	switch {
	case fault.CodeOf(err) == fault.NotFound: // the thread was deleted
	case err != nil && !errors.Is(err, errOvertaken):
		d.fail(err, map[int64]stream.Ref{m.stream: m.ref})
	case err != nil, m.upto < tail:
		d.later(m.stream)
	}
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
				of, span := c.saidIn.decide(ctx, m.ref, t.Entry)
				_, err = c.requestTurn(of, tx, m.ref, t)
				span.End(err)
			}
		}
		if err == nil && len(asks.Notes) > 0 {
			_, err = c.log.AppendTx(ctx, tx, m.ref, asks.Notes...)
		}
		return err
	})
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
