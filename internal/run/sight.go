package run

import (
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/thread"
)

// sights are what this server has seen of runs that it looked at. How long a run has been silent is measured by this: for how long
// has this server seen the same last heartbeat? Neither the clock of the database nor that of this machine matters, which may jump, and
// a server that begins after all were away for hours gives each runner the time to be heard.
type sights struct {
	mu       sync.Mutex
	byThread map[string]sight
}

// sight is what was seen of a run.
type sight struct {
	epoch  int64
	heard  time.Time // the last heartbeat, by the database's clock
	since  time.Time // when that was first seen, and looked when somebody who reads looked last, by this machine's monotonic clock
	looked time.Time
}

// still returns for how long a run has been seen without anything new.
func (s *sights) still(th thread.Thread, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.see(th, now).since)
}

// see returns what is known of a run, whose row was just read.
func (s *sights) see(th thread.Thread, now time.Time) sight {
	known, ok := s.byThread[th.ID]
	if !ok || known.epoch != th.Run.Epoch || !known.heard.Equal(heard(th)) {
		known = sight{epoch: th.Run.Epoch, heard: heard(th), since: now, looked: known.looked}
		s.byThread[th.ID] = known
	}
	return known
}

// mayLook reports whether whoever reads a thread looks at its run, which must have been silent for a while.
func (s *sights) mayLook(th thread.Thread, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.see(th, now)
	if max(now.Sub(known.since), now.Sub(heard(th))) < quiet || now.Sub(known.looked) < readEvery {
		return false
	}
	known.looked = now
	s.byThread[th.ID] = known
	return true
}

// alive notes that a runner was heard, although the database did not take what it posted.
func (s *sights) alive(threadID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.byThread[threadID]; ok {
		known.since = time.Now()
		s.byThread[threadID] = known
	}
}

// keep forgets all threads but those that run.
func (s *sights) keep(running map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.byThread {
		if !running[id] {
			delete(s.byThread, id)
		}
	}
}
