package db

import (
	"context"
	"sync"
)

// shares limits how many connections of a pool each house uses at a time, so that a house with slow queries does not
// keep others from the database. A transaction waits while its house uses all of its share.
type shares struct {
	each int

	mu    sync.Mutex
	house map[string]*share
}

type share struct {
	used chan struct{}
	// users are the transactions that have a connection or wait for one.
	users int
}

// newShares gives every house half of a pool, so that no house can use all of it.
func newShares(connections int32) *shares {
	return &shares{each: max(1, int(connections)/2), house: map[string]*share{}}
}

// enter waits for a connection of a house's share until ctx ends. The caller must call leave when done. A transaction
// without a house does not wait.
func (s *shares) enter(ctx context.Context, house string) (leave func(), err error) {
	if house == "" {
		return func() {}, nil
	}
	s.mu.Lock()
	mine := s.house[house]
	if mine == nil {
		mine = &share{used: make(chan struct{}, s.each)}
		s.house[house] = mine
	}
	mine.users++
	s.mu.Unlock()
	// The share of a house that has no transactions is removed. Otherwise the map would grow with every house.
	gone := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(s.house, house)
		}
	}
	select {
	case mine.used <- struct{}{}:
		return func() { <-mine.used; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}
