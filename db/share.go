package db

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fair"
)

// This file shares the database among houses, so that a house's use of it delays other houses only a little.
//
// No house uses more than half of the connections, so slow queries of one house never block the others from the
// database.
//
// Many quick queries do harm too: each connection in use slows the others down, because the database has only so many
// processors. A house is busy if it uses the database all the time, for several transactions at once. While another
// house uses the database, the transactions of all busy houses share a few lanes. The houses take turns in the lanes
// by their past use (start-time fair queuing). The number of lanes adapts to how much the database can serve without
// delaying everyone. A house that sends one query at a time needs no lane, and does not wait behind houses that send
// hundreds at once.

const (
	// A house is busy from an average of busyFrom connections during the last usedFor.
	busyFrom, usedFor = 0.5, time.Second
	// besideFor is how long busy houses share lanes after another house used the database.
	besideFor = time.Second
	// slowAfter is when a transaction leaves its lane. By then it waits for something else, such as a lock, so the
	// transactions behind it need not wait for it.
	slowAfter = 100 * time.Millisecond
	// lanesLeast is the smallest number of lanes. Two lanes could use all of a database with two processors.
	lanesLeast = 1
)

// shares limits each house's concurrent use of a database. It is safe for concurrent use.
type shares struct {
	// each is the number of connections that a house may use.
	each int

	mu    sync.Mutex
	house map[string]*share
	swept time.Time
	// activity records when houses used the database.
	activity fair.Activity

	lanes lanes
	// queue has the transactions of busy houses, with costs in nanoseconds.
	queue fair.Queue
}

// share is a house's use of the database.
type share struct {
	connections chan struct{}
	// users counts the transactions that have a connection or wait for one.
	users int
	// used is how long the house's recent transactions took, as of the time at. It decays with the time constant
	// usedFor.
	used time.Duration
	at   time.Time
	// typical is how long its last transaction took.
	typical time.Duration
}

// newShares gives every house half of a pool, so that no house can use all of it.
func newShares(connections int32) *shares {
	each := max(1, int(connections)/2)
	return &shares{each: each, house: map[string]*share{}, lanes: lanes{open: float64(each), most: float64(each)}}
}

// enter waits until a house may use a connection, or ctx ends. The caller must call leave when done. A transaction
// without a house does not wait.
func (s *shares) enter(ctx context.Context, house string) (leave func(), err error) {
	if house == "" {
		return func() {}, nil
	}
	mine := s.share(house)
	select {
	case mine.connections <- struct{}{}:
	case <-ctx.Done():
		s.gone(mine)
		return nil, ctx.Err()
	}
	free, err := s.lane(ctx, house, mine)
	if err != nil {
		<-mine.connections
		s.gone(mine)
		return nil, err
	}
	began := time.Now()
	return func() {
		free()
		<-mine.connections
		s.mu.Lock()
		mine.add(time.Since(began), time.Now())
		s.mu.Unlock()
		s.gone(mine)
	}, nil
}

// share returns the share of a house for one more transaction.
func (s *shares) share(house string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	mine := s.house[house]
	if mine == nil {
		mine = &share{connections: make(chan struct{}, s.each), at: now}
		s.house[house] = mine
	}
	mine.users++
	s.activity.Ask(house, now)
	return mine
}

// gone ends a transaction's use of a share. A few times a second it removes the shares of houses with no recent use,
// so that the map does not grow with every house.
func (s *shares) gone(mine *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine.users--
	if now := time.Now(); now.Sub(s.swept) > usedFor/4 {
		s.swept = now
		for house, other := range s.house {
			if other.users == 0 && now.Sub(other.at) > 2*usedFor {
				delete(s.house, house)
			}
		}
	}
}

// add adds the duration of a transaction.
func (m *share) add(took time.Duration, now time.Time) {
	m.used = m.lately(now) + took
	m.at = now
	m.typical = took
}

// lately returns the house's recent use.
func (m *share) lately(now time.Time) time.Duration {
	return time.Duration(float64(m.used) * math.Exp(-float64(now.Sub(m.at))/float64(usedFor)))
}

// busy reports whether a house must share lanes: it uses the database all the time, and now for more transactions
// than the smallest number of lanes. Callers hold the lock.
func (m *share) busy(now time.Time) bool {
	return m.users > lanesLeast && m.lately(now) >= time.Duration(busyFrom*float64(usedFor))
}

// lane waits for a lane, if the house needs one. The caller must call free when the transaction has ended.
func (s *shares) lane(ctx context.Context, house string, mine *share) (free func(), err error) {
	s.mu.Lock()
	now := time.Now()
	if s.activity.Others(house, now) > besideFor || !mine.busy(now) {
		s.mu.Unlock()
		return func() {}, nil
	}
	turn := s.queue.Add(house, int64(mine.typical))
	s.advance()
	s.mu.Unlock()
	select {
	case <-turn.Begun:
	case <-ctx.Done():
		s.mu.Lock()
		left := s.queue.Leave(turn)
		s.mu.Unlock()
		if !left { // it got a lane in the meantime
			s.free()
		}
		return nil, ctx.Err()
	}
	once := sync.OnceFunc(s.free)
	slow := time.AfterFunc(slowAfter, once)
	return func() { slow.Stop(); once() }, nil
}

func (s *shares) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.End()
	s.advance()
}

// advance gives free lanes to those that come first. Callers hold the lock.
func (s *shares) advance() {
	for s.queue.Waiting() > 0 && s.queue.Running() < int(s.lanes.open) {
		s.queue.Begin(s.queue.First(nil))
	}
}

// answered records how long the database took to begin a transaction, which costs the database nothing.
func (s *shares) answered(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes.answered(took)
	s.advance()
}

// lanes is the number of transactions of busy houses that a database serves at a time without delaying everyone. It
// falls while the database answers late, and rises while it answers in time.
type lanes struct {
	open, most float64
	// quickest is how long an idle database takes to answer, and recent how long this one took lately.
	quickest, recent time.Duration
}

func (l *lanes) answered(took time.Duration) {
	if l.recent == 0 {
		l.quickest, l.recent = took, took
	}
	l.recent += (took - l.recent) / 16
	l.quickest = min(l.quickest+(took-l.quickest)/8192, took)
	if l.recent > 4*l.quickest+100*time.Microsecond {
		l.open = max(min(lanesLeast, l.most), l.open*0.98)
	} else {
		l.open = min(l.open+0.02, l.most)
	}
}
