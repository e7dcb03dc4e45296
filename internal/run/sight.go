package run

import (
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/thread"
)

const (
	// quiet is how long a runner must be silent before its sandbox is checked.
	quiet = 15 * time.Second
	// readEvery is how often a run is checked because somebody reads its thread.
	readEvery = 5 * time.Second
)

// sights are this server's observations of the runs that it checked. A run's silence is how long this server has seen
// the same last heartbeat, so a jump of the database's or this machine's clock does not matter. After hours in which
// all servers were down, a starting server thus gives each runner time to report.
type sights struct {
	mu       sync.Mutex
	byThread map[string]sight
}

// sight is this server's observation of a run.
type sight struct {
	epoch  int64
	heard  time.Time // the last heartbeat, by the database's clock
	since  time.Time // when this server first saw it; looked is when a reader last checked; both by this machine's monotonic clock
	looked time.Time
}

// still returns how long a run has shown nothing new.
func (s *sights) still(th thread.Thread, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.see(th, now).since)
}

// see returns the sight of a run whose row was just read.
func (s *sights) see(th thread.Thread, now time.Time) sight {
	known, ok := s.byThread[th.ID]
	if !ok || known.epoch != th.Run.Epoch || !known.heard.Equal(heard(th)) {
		known = sight{epoch: th.Run.Epoch, heard: heard(th), since: now, looked: known.looked}
		s.byThread[th.ID] = known
	}
	return known
}

// mayLook reports whether a reader of a thread may check its run, which must have been silent for a while.
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

// alive records that a runner has posted although the database did not store its post.
func (s *sights) alive(threadID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.byThread[threadID]; ok {
		known.since = time.Now()
		s.byThread[threadID] = known
	}
}

// keep forgets all threads that are not running.
func (s *sights) keep(running map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.byThread {
		if !running[id] {
			delete(s.byThread, id)
		}
	}
}

// heard returns the time of a run's last heartbeat, or of its start if it has had none.
func heard(th thread.Thread) time.Time {
	if th.Run.HeartbeatAt.IsZero() {
		return th.Run.StartedAt
	}
	return th.Run.HeartbeatAt
}
