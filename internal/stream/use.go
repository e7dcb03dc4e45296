package stream

import (
	"context"
	"sync"
	"time"
)

const (
	// noteEvery is how late a use is written down at most. A log is not taken for expired until a second
	// after its time, so a use that is seen by one server is known to all by then.
	noteEvery = 250 * time.Millisecond
	// clearEvery is how often expired logs are cleared away; nobody sees them meanwhile.
	clearEvery = time.Minute
	// clearAfter leaves an expired log for a moment, in which a use may yet be written down.
	clearAfter = 10 * time.Second
	// maxUses is how many uses are written down in one go.
	maxUses = 1000
)

// uses gathers which logs were used since the last time that was written down: a read costs no write.
type uses struct {
	mu   sync.Mutex
	last map[int64]time.Time
	// some says that there is something to write down.
	some chan struct{}
}

func newUses() *uses { return &uses{last: map[int64]time.Time{}, some: make(chan struct{}, 1)} }

func (u *uses) note(id int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last[id] = time.Now()
	u.tell()
}

func (u *uses) tell() {
	select {
	case u.some <- struct{}{}:
	default: // it is told already
	}
}

// take empties it, up to maxUses.
func (u *uses) take() (ids []int64, times []time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, at := range u.last {
		if len(ids) == maxUses {
			u.tell()
			break
		}
		ids, times = append(ids, id), append(times, at)
		delete(u.last, id)
	}
	return ids, times
}

// Hold keeps a log in use until ctx ends: it does not expire while somebody follows it.
func (l *Log) Hold(ctx context.Context, s Stream) {
	if s.TTL == nil {
		return
	}
	every := max(*s.TTL/4, noteEvery)
	go func() {
		for ctx.Err() == nil && l.ctx.Err() == nil {
			l.use(s)
			select {
			case <-time.After(every):
			case <-ctx.Done():
			case <-l.ctx.Done():
			}
		}
	}()
}

// keep writes down uses, and clears away what was not used for too long.
func (l *Log) keep() {
	clear := time.NewTicker(clearEvery)
	defer clear.Stop()
	for {
		var err error
		select {
		case <-l.uses.some:
			err = l.prolong()
			pause(l.ctx, noteEvery)
		case <-clear.C:
			// Past [db.DB.In], since it may take long.
			err = queries.DeleteExpiredStreams(l.ctx, l.db.Pool(), time.Now().Add(-clearAfter))
		case <-l.ctx.Done():
			return
		}
		if err != nil && l.ctx.Err() == nil {
			l.log.Warn("cannot tend to streams that expire", "error", detail(err))
		}
	}
}

func (l *Log) prolong() error {
	ids, times := l.uses.take()
	return l.in(l.ctx, Ref{}, func(tx txn) error { return queries.TouchStreams(l.ctx, tx, ids, times) })
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
