package db

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crowd is a set of houses that use a database with twenty connections, in synthetic time.
type crowd struct {
	*shares
	t       *testing.T
	ctx     context.Context
	over    context.CancelFunc
	callers sync.WaitGroup
	// running, most and done count a house's transactions: those that run, the most that ran at once, and those that
	// have ended.
	mu                  sync.Mutex
	running, most, done map[string]int
}

func inCrowd(t *testing.T, f func(*crowd)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{shares: newShares(20), t: t, running: map[string]int{}, most: map[string]int{}, done: map[string]int{}}
		c.ctx, c.over = context.WithCancel(t.Context())
		f(c)
		c.over()
		c.callers.Wait()
		if n := c.queue.Waiting() + c.queue.Running(); n != 0 {
			t.Errorf("%d transactions still wait or have lanes", n)
		}
	})
}

// answers makes the database take this long to begin transactions, until the number of lanes has settled.
func (c *crowd) answers(took time.Duration) {
	for range 1000 {
		c.answered(took)
	}
}

// calls makes a house run transactions of this duration, this many at a time.
func (c *crowd) calls(house string, callers int, each time.Duration) {
	for range callers {
		c.callers.Go(func() {
			for c.ctx.Err() == nil {
				if leave, err := c.enter(c.ctx, house); err == nil {
					c.count(house, 1)
					time.Sleep(each)
					c.count(house, -1)
					leave()
				}
			}
		})
	}
}

func (c *crowd) count(house string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[house] += n
	c.most[house] = max(c.most[house], c.running[house])
	if n < 0 {
		c.done[house]++
	}
}

// during returns the most concurrent transactions of a house during this time, and how many ended.
func (c *crowd) during(house string, d time.Duration) (most, done int) {
	c.mu.Lock()
	c.most[house] = 0
	before := c.done[house]
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most[house], c.done[house] - before
}

// visits makes a house run a quick transaction ten times a second, and returns the longest wait.
func (c *crowd) visits(house string, d time.Duration) (longest time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		began := time.Now()
		leave, err := c.enter(c.ctx, house)
		if err != nil {
			c.t.Fatal(err)
		}
		longest = max(longest, time.Since(began))
		time.Sleep(time.Millisecond)
		leave()
	}
	return longest
}

func TestAHouseAloneUsesHalfOfTheConnections(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		c.answers(time.Millisecond)
		c.answers(20 * time.Millisecond)
		c.calls("busy", 30, 5*time.Millisecond)
		time.Sleep(2 * time.Second)
		if most, _ := c.during("busy", time.Second); most != 10 {
			t.Errorf("it uses %d", most)
		}
	})
}

func TestABusyHouseLeavesASlowDatabaseToOthers(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		c.answers(time.Millisecond)
		c.calls("busy", 30, 5*time.Millisecond)
		c.visits("quiet", 2*time.Second)
		if most, _ := c.during("busy", 500*time.Millisecond); most != 10 {
			t.Errorf("while the database answers in time, it uses %d connections", most)
		}
		c.answers(20 * time.Millisecond)
		c.visits("quiet", time.Second)
		if most, _ := c.during("busy", 500*time.Millisecond); most != lanesLeast {
			t.Errorf("while the database answers late, it uses %d connections", most)
		}
		if waited := c.visits("quiet", time.Second); waited > 0 {
			t.Errorf("the quiet house waits for %s", waited)
		}
		c.answers(time.Millisecond)
		c.visits("quiet", time.Second)
		if most, _ := c.during("busy", 500*time.Millisecond); most != 10 {
			t.Errorf("when the database answers in time again, it uses %d connections", most)
		}
	})
}

func TestBusyHousesTakeTurns(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		c.answers(time.Millisecond)
		c.answers(20 * time.Millisecond)
		c.calls("many", 30, 5*time.Millisecond)
		c.calls("few", 2, 5*time.Millisecond)
		time.Sleep(2 * time.Second)
		_, few := c.during("few", time.Second)
		_, many := c.during("many", time.Second)
		if float64(few) < 0.9*float64(many) {
			t.Errorf("the house with two callers ends %d transactions a second, that with 30 ends %d", few, many)
		}
	})
}

// A house that sends one query at a time also uses the database all the time. But it uses less than a house that
// sends hundreds at once, and does not wait behind it.
func TestABusyHouseWaitsForNoBusierOne(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		c.answers(time.Millisecond)
		c.answers(20 * time.Millisecond)
		c.calls("many", 30, 5*time.Millisecond)
		var waited time.Duration
		for began := time.Now(); time.Since(began) < 4*time.Second; time.Sleep(2 * time.Millisecond) {
			asked := time.Now()
			leave, err := c.enter(c.ctx, "one")
			if err != nil {
				t.Fatal(err)
			}
			if time.Since(began) > 2*time.Second {
				waited = max(waited, time.Since(asked))
			}
			time.Sleep(5 * time.Millisecond)
			leave()
		}
		if waited > 0 {
			t.Errorf("the house that asks for one thing at a time waits for %s", waited)
		}
		if most, _ := c.during("many", 500*time.Millisecond); most > lanesLeast {
			t.Errorf("the busier one uses %d connections", most)
		}
	})
}

func TestSlowTransactionsLeaveTheirLanes(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		c.answers(time.Millisecond)
		c.answers(20 * time.Millisecond)
		c.calls("busy", 2, 5*time.Millisecond)
		c.visits("quiet", 2*time.Second)
		c.calls("busy", 8, time.Minute)
		c.visits("quiet", time.Second)
		if waited := c.visits("busy", time.Second); waited > 2*slowAfter {
			t.Errorf("beside slow ones, a quick transaction of the house waits for %s", waited)
		}
	})
}

func TestATransactionThatIsNotWantedAnyMoreTakesNoLane(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		c.answers(time.Millisecond)
		c.answers(20 * time.Millisecond)
		c.calls("busy", 8, 90*time.Millisecond)
		c.visits("quiet", 2*time.Second)
		ctx, cancel := context.WithTimeout(c.ctx, time.Millisecond)
		defer cancel()
		if _, err := c.enter(ctx, "busy"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it gets the error %v", err)
		}
	})
}

func TestSharesOfHousesThatAreGoneAreRemoved(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		for range 3 {
			for _, house := range []string{"a", "b", "c", "d"} {
				c.visits(house, 100*time.Millisecond)
			}
		}
		time.Sleep(3 * usedFor)
		c.visits("e", 100*time.Millisecond)
		if n := len(c.house); n != 1 {
			t.Errorf("%d houses are in memory", n)
		}
	})
}
