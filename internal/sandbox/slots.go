package sandbox

import (
	"context"
	"slices"
	"sync"
)

// slots limits how many boxes one server builds concurrently, and shares the limit among houses. A box may take half an
// hour, most of which depends on a slow registry or a setup script.
//
// A house gets another slot only while more slots are free than it has. One house alone therefore gets half of them and
// leaves the other half; the next house gets half of those; and a house without a slot gets one as long as one is free.
// Among eligible houses, the first to wait gets the next slot.
//
// It is safe for concurrent use.
type slots struct {
	mu      sync.Mutex
	free    int
	held    map[string]int // by house
	waiting []*waiter
}

// waiter is one caller of acquire.
type waiter struct {
	house string
	ready chan struct{} // closed when it has a slot
}

func newSlots(n int) *slots { return &slots{free: n, held: map[string]int{}} }

// acquire waits for a slot, which the caller must release once. The only error is ctx's.
func (s *slots) acquire(ctx context.Context, house string) (release func(), err error) {
	w := &waiter{house: house, ready: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grantLocked()
	s.mu.Unlock()
	select {
	case <-w.ready:
		return func() { s.release(house) }, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	} else { // it got a slot at the same moment, which would otherwise be lost
		s.releaseLocked(house)
	}
	return nil, ctx.Err()
}

func (s *slots) release(house string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(house)
}

func (s *slots) releaseLocked(house string) {
	s.free++
	if s.held[house]--; s.held[house] == 0 {
		delete(s.held, house)
	}
	s.grantLocked()
}

// grantLocked gives slots to waiters that may have one.
func (s *slots) grantLocked() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool {
		if s.free <= s.held[w.house] {
			return false
		}
		s.free--
		s.held[w.house]++
		close(w.ready)
		return true
	})
}
