package stream

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

const (
	// recordEvery is the longest delay before a use is recorded. A log counts as expired only one second after its
	// time, so that a use which one server saw is recorded by then for all.
	recordEvery = 250 * time.Millisecond
	// retryRecord is the pause after uses could not be recorded.
	retryRecord = time.Second
	// clearEvery is the time between two deletions of expired logs. It need not be shorter, because nobody can see an
	// expired log.
	clearEvery = time.Minute
	// clearAfter is how long an expired log is kept before it is deleted, because a use of it may still be recorded.
	clearAfter = 10 * time.Second
	// maxUses is the largest number of uses that one transaction records, so that it holds the locks of their rows for
	// a short time only.
	maxUses = 1000
	// keptUses is the largest number of uses that are kept while the database is away. It bounds their memory to some
	// megabytes.
	keptUses = 100_000
)

// expiry records which logs were used, and deletes logs that have expired. It collects uses and records them together,
// so that a read costs no write.
type expiry struct {
	store *store.Store
	log   *slog.Logger

	mu sync.Mutex
	// last is when each log was last used, for uses that are not recorded yet.
	last map[int64]time.Time
	// pending holds a token when there are uses to record.
	pending chan struct{}
}

func newExpiry(s *store.Store, log *slog.Logger) *expiry {
	return &expiry{store: s, log: log, last: map[int64]time.Time{}, pending: make(chan struct{}, 1)}
}

// record notes that a log is in use now.
func (x *expiry) record(id int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.note(id, time.Now())
	x.wake()
}

// note keeps a use, unless a later one of the same log is known or too many logs wait. The caller holds mu.
func (x *expiry) note(id int64, at time.Time) {
	if last, known := x.last[id]; !known && len(x.last) < keptUses || known && at.After(last) {
		x.last[id] = at
	}
}

func (x *expiry) wake() {
	select {
	case x.pending <- struct{}{}:
	default: // a token is already pending
	}
}

// take removes up to maxUses uses and returns them.
func (x *expiry) take() (ids []int64, times []time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, at := range x.last {
		if len(ids) == maxUses {
			x.wake()
			break
		}
		ids, times = append(ids, id), append(times, at)
		delete(x.last, id)
	}
	return ids, times
}

// putBack keeps uses that could not be recorded for the next attempt. Otherwise logs in use would expire while the
// database is away.
func (x *expiry) putBack(ids []int64, times []time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, id := range ids {
		x.note(id, times[i])
	}
	x.wake()
}

// run records uses and deletes expired logs until ctx ends.
func (x *expiry) run(ctx context.Context) {
	clearTick := time.NewTicker(clearEvery)
	defer clearTick.Stop()
	for {
		var err error
		select {
		case <-x.pending:
			ids, times := x.take()
			pause := recordEvery
			if err = x.store.RecordUse(ctx, ids, times); err != nil {
				x.putBack(ids, times)
				pause = retryRecord
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		case <-clearTick.C:
			err = x.store.DeleteExpired(ctx, time.Now().Add(-clearAfter))
		case <-ctx.Done():
			return
		}
		if err != nil && ctx.Err() == nil {
			x.log.WarnContext(ctx, "cannot record uses of streams or delete expired ones; trying again", "error", fault.From(err).Detail())
		}
	}
}
