//go:build linux

package dispatch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbe-dev/arbe/internal/stream"
)

// wait adds this many logs of a house.
func (q *newsQueue) wait(house string, logs int) {
	for i := range logs {
		q.add(int64(i), stream.Ref{House: house, Name: fmt.Sprint(i)})
	}
}

// turns takes what may be taken now, and returns the number of logs of each house.
func (q *newsQueue) turns() (taken map[string]int, news []*houseNews) {
	news, _ = q.take(time.Now())
	taken = map[string]int{}
	for _, n := range news {
		taken[n.house] = len(n.taken)
	}
	return taken, news
}

func TestHousesTakeTurnsInDecisions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newNewsQueue()
		q.wait("much", 10*houseNewsMost)
		time.Sleep(time.Millisecond)
		q.wait("little", 1)
		taken, news := q.turns()
		if taken["much"] != houseNewsMost || taken["little"] != 1 {
			t.Errorf("a round takes %v", taken)
		}
		q.wait("much", 1)
		q.wait("little", 2)
		if taken, _ := q.turns(); len(taken) > 0 {
			t.Errorf("of houses that have their turn, a round takes %v", taken)
		}
		q.end(news[1], 0, false)
		if taken, _ := q.turns(); len(taken) != 1 || taken["little"] != 2 {
			t.Errorf("while one house has its turn, a round takes %v", taken)
		}
	})
}

func TestAHousePaysForItsDecisionsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newNewsQueue()
		q.wait("much", 1)
		_, news := q.turns()
		q.end(news[0], newsCredit+time.Millisecond, false)
		q.wait("much", 1)
		q.wait("little", 1)
		taken, news := q.turns()
		if taken["much"] > 0 || taken["little"] != 1 {
			t.Errorf("after much was decided for one house, a round takes %v", taken)
		}
		q.end(news[0], time.Millisecond, false)
		_, next := q.take(time.Now())
		if wait := time.Until(next); wait != newsPace*time.Millisecond {
			t.Errorf("a debt of a millisecond lasts %s", wait)
		}
		time.Sleep(time.Until(next))
		taken, news = q.turns()
		if taken["much"] != 1 {
			t.Errorf("when the debt is earned, a round takes %v", taken)
		}
		q.wait("much", 1)
		q.end(news[0], time.Hour, false)
		if _, next := q.take(time.Now()); time.Until(next) != idlePause {
			t.Errorf("after an hour of decisions, a house waits for %s", time.Until(next))
		}
	})
}

func TestAHouseWithMoreEntriesWaitsNoLongerThanItsDecisionsTook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newNewsQueue()
		q.wait("much", 1)
		_, news := q.turns()
		q.wait("much", 1)
		q.end(news[0], 300*time.Millisecond, true)
		if _, next := q.take(time.Now()); time.Until(next) != 300*time.Millisecond {
			t.Errorf("it waits for %s", time.Until(next))
		}
	})
}

func TestHousesWithoutNewsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newNewsQueue()
		q.wait("once", 1)
		_, news := q.turns()
		q.end(news[0], newsCredit, false)
		if q.turns(); len(q.houses) != 1 {
			t.Error("a house in debt is forgotten")
		}
		time.Sleep(newsPace * newsCredit)
		if q.turns(); len(q.houses) != 0 {
			t.Errorf("%d houses are in memory", len(q.houses))
		}
	})
}
