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
	// time, so by then every server knows of a use that one of them saw.
	recordEvery = 250 * time.Millisecond
	// clearEvery is the time between two deletions of expired logs. Until then nobody can see them.
	clearEvery = time.Minute
	// clearAfter is how long an expired log is kept before it is deleted, because a use of it may still be recorded.
	clearAfter = 10 * time.Second
	// maxUses is the largest number of uses that one transaction records, to keep the transaction short.
	maxUses = 1000
)

// expiry records which logs were used, and deletes logs that have expired. It collects uses and records them together,
// so that a read costs no write.
type expiry struct {
	store *store.Store
	log   *slog.Logger

	mu   sync.Mutex
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
	x.last[id] = time.Now()
	x.wake()
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

// run records uses and deletes expired logs until ctx ends.
func (x *expiry) run(ctx context.Context) {
	clearTick := time.NewTicker(clearEvery)
	defer clearTick.Stop()
	for {
		var err error
		select {
		case <-x.pending:
			ids, times := x.take()
			err = x.store.RecordUse(ctx, ids, times)
			select {
			case <-time.After(recordEvery):
			case <-ctx.Done():
			}
		case <-clearTick.C:
			err = x.store.DeleteExpired(ctx, time.Now().Add(-clearAfter))
		case <-ctx.Done():
			return
		}
		if err != nil && ctx.Err() == nil {
			x.log.Warn("cannot record uses of streams or delete expired ones; trying again", "error", fault.From(err).Detail())
		}
	}
}
