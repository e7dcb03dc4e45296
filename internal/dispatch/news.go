package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// idlePause is the longest pause between two rounds of decisions.
	idlePause = time.Second
	// newsMost limits the threads in one round of decisions, and houseNewsMost those of one house.
	newsMost, houseNewsMost = 1000, 64
	// These keep deciding from using up the machine's time. Each house has credit. Choosing the work of a thread costs
	// threadCost, plus entryCost for each of its entries, which is about what it takes on an otherwise idle machine. A house
	// earns one unit of credit per newsPace of time, up to newsCredit. A house in debt waits until it has earned the debt
	// back, but at most idlePause. If it has more entries, it waits at most as long as its last decisions cost. So a question
	// in a quiet house is decided at once, entries that come fast are decided in batches, and each house pays only for
	// itself.
	threadCost, entryCost = 500 * time.Microsecond, 2 * time.Microsecond
	newsPace, newsCredit  = 20, 100 * time.Millisecond
)

// newsQueue holds the logs with entries to decide, by house. Houses take turns: after its turn, a house goes behind all
// waiting ones. It is safe for concurrent use.
type newsQueue struct {
	// wakeup receives a token when a round may have something to do.
	wakeup chan struct{}

	mu     sync.Mutex
	houses map[string]*houseNews
}

// houseNews is a house's logs with entries to decide.
type houseNews struct {
	house   string
	waiting map[int64]stream.Ref
	// taken holds the logs that a round is deciding. Until it is empty, the house has no further turn.
	taken map[int64]stream.Ref
	// since is when the house began to wait for its turn, and ready the earliest time for it.
	since, ready time.Time
	// credit is the house's credit at the time earned.
	credit time.Duration
	earned time.Time
}

func newNewsQueue() *newsQueue {
	return &newsQueue{wakeup: make(chan struct{}, 1), houses: map[string]*houseNews{}}
}

// add queues a log that has entries to decide.
func (q *newsQueue) add(id int64, ref stream.Ref) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.houses[ref.House]
	if n == nil {
		n = &houseNews{house: ref.House, waiting: map[int64]stream.Ref{}, credit: newsCredit}
		q.houses[ref.House] = n
	}
	if len(n.waiting) == 0 {
		n.since = time.Now()
	}
	n.waiting[id] = ref
	if n.taken == nil {
		q.wake()
	}
}

func (q *newsQueue) wake() {
	select {
	case q.wakeup <- struct{}{}:
	default: // a token is already pending
	}
}

// empty reports whether no log waits and none is being decided.
func (q *newsQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.houses {
		if len(n.waiting)+len(n.taken) > 0 {
			return false
		}
	}
	return true
}

// take takes the logs of the houses whose turn it is. next is the earliest time at which a waiting house may have its turn;
// zero if no house waits. The caller ends each turn with [newsQueue.end].
func (q *newsQueue) take(now time.Time) (news []*houseNews, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var ready []*houseNews
	for house, n := range q.houses {
		switch {
		case n.taken != nil:
		case len(n.waiting) == 0 && n.earn(now) == newsCredit:
			delete(q.houses, house)
		case len(n.waiting) == 0:
		case !n.ready.After(now):
			ready = append(ready, n)
		case next.IsZero() || n.ready.Before(next):
			next = n.ready
		}
	}
	slices.SortFunc(ready, func(a, b *houseNews) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.house, b.house)) })
	room := newsMost
	for _, n := range ready {
		if room <= 0 {
			q.wake()
			break
		}
		n.begin(min(room, houseNewsMost), now)
		room -= len(n.taken)
		news = append(news, n)
	}
	return news, next
}

// takeAll takes all waiting logs, regardless of whose turn it is.
func (q *newsQueue) takeAll() (news []*houseNews) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.houses {
		if n.taken == nil && len(n.waiting) > 0 {
			n.begin(len(n.waiting), time.Now())
			news = append(news, n)
		}
	}
	return news
}

// begin begins a house's turn with at most this many logs.
func (n *houseNews) begin(most int, now time.Time) {
	n.taken = map[int64]stream.Ref{}
	for id, ref := range n.waiting {
		if len(n.taken) == most {
			break
		}
		n.taken[id] = ref
	}
	maps.DeleteFunc(n.waiting, func(id int64, _ stream.Ref) bool { _, taken := n.taken[id]; return taken })
	n.since = now
}

// earn returns the house's credit at a time.
func (n *houseNews) earn(now time.Time) time.Duration {
	if n.credit < newsCredit {
		n.credit = min(n.credit+now.Sub(n.earned)/newsPace, newsCredit)
	}
	n.earned = now
	return n.credit
}

// end ends the turn of a house. behind reports that entries remain for its next turn.
func (q *newsQueue) end(n *houseNews, cost time.Duration, behind bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	n.credit = max(n.earn(now)-cost, -idlePause/newsPace)
	longest := idlePause
	if behind { // someone may have been waiting for long
		longest = cost
	}
	n.ready, n.taken = now.Add(max(0, min(-n.credit*newsPace, longest))), nil
	q.wake()
}
