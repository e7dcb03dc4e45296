package db

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fair"
)

// This file shares the database among houses, so that what one house does delays the others little.
//
// No house uses more than half of the connections, so that slow queries of one house keep nobody else from the database.
//
// Quick queries do harm, too, if there are many: each connection in use makes the others slower, because the database has
// only so many processors. A house that uses the database all the time, for several transactions at once, is busy. While
// another house uses it, the transactions of all busy houses share a few lanes, in which these houses take turns by what they
// have used (start-time fair queuing). There are as many lanes as the database can serve without making everybody wait. Who
// asks one question after the other has no need of lanes, and does not wait behind those who ask hundreds at once.

const (
	// busyFrom makes a house busy: it used this many connections on average during the last usedFor.
	busyFrom, usedFor = 0.5, time.Second
	// besideFor is how long after a house used the database the others share lanes.
	besideFor = time.Second
	// slowAfter is when a transaction leaves its lane. It waits for something else then, such as a lock, and those behind it
	// are no reason for it to hurry.
	slowAfter = 100 * time.Millisecond
	// lanesLeast is the smallest number of lanes. With two, a database of two processors has none left for others.
	lanesLeast = 1
)

// shares limits how much of a database each house uses at a time. It is safe for concurrent use.
type shares struct {
	// each is how many connections a house may use.
	each int

	mu    sync.Mutex
	house map[string]*share
	swept time.Time
	// activity records when houses used the database.
	activity fair.Activity

	lanes lanes
	// queue has the transactions of busy houses, and costs in nanoseconds.
	queue fair.Queue
}

// share is what a house uses.
type share struct {
	connections chan struct{}
	// users are the transactions that have a connection or wait for one.
	users int
	// used is how long the house's transactions of the last usedFor took, as of the time at: older ones count less and less.
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

// enter waits until a house may use a connection, or ctx ends. The caller must call leave when done. A transaction without
// a house does not wait.
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

// gone ends a transaction's use of a share. Shares of houses that used nothing lately are removed, a few times a second;
// otherwise the map would grow with every house.
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

// add adds what a transaction used.
func (m *share) add(took time.Duration, now time.Time) {
	m.used = m.lately(now) + took
	m.at = now
	m.typical = took
}

// lately is what the house used lately.
func (m *share) lately(now time.Time) time.Duration {
	return time.Duration(float64(m.used) * math.Exp(-float64(now.Sub(m.at))/float64(usedFor)))
}

// busy reports whether a house shares lanes: it uses the database all the time, and now for more transactions at once than
// there are lanes in any case. Callers hold the lock.
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
		if !left { // it got a lane meanwhile
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

// answered tells how long the database took to begin a transaction, which costs it nothing.
func (s *shares) answered(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes.answered(took)
	s.advance()
}

// lanes is how many transactions of busy houses a database serves at a time without making everybody wait: there are
// fewer while it answers late, and more while it answers in time.
type lanes struct {
	open, most float64
	// quickest is how long a database takes that has nothing else to do, and recent how long it took lately.
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
