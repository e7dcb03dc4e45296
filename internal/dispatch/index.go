package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/wait"
)

var queries = query.New()

const (
	// indexTime is roughly how long one indexing transaction lasts. It is short, because meanwhile nobody can delete or lock
	// the threads of these entries.
	indexTime = 50 * time.Millisecond
	// indexMost limits the threads in one transaction.
	indexMost = 50
	// After a transaction, the indexer pauses for indexPause plus indexIdle times the transaction's duration. So entries of
	// short conversations are searchable at once, and a long log keeps one database process only partly busy.
	indexPause, indexIdle = 20 * time.Millisecond, 2
	// indexAgain is the pause before the indexer retries what failed, or what another server was working on.
	indexAgain = time.Second
	// indexLast is how long a stopping server continues to index. It is short, because other servers continue.
	indexLast = time.Second
)

// indexer makes decided entries searchable at its own pace: deciding never waits for it. Each thread has a second cursor,
// which moves in the transaction that adds the words, so a killed server leaves nothing half done. Only one server at a time
// works on a thread.
//
// Like the decider, it is notified only of this server's entries, and finds those of killed servers by checking all cursors.
type indexer struct {
	db     *db.DB
	logger *slog.Logger

	mu sync.Mutex
	// waiting holds the logs with entries to index, and failed those to be retried after a pause.
	waiting, failed map[int64]bool
	// wakeup receives a token when waiting is not empty.
	wakeup chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

// startIndexing starts indexing, first the entries that earlier servers left, until [indexer.stop].
func startIndexing(d *db.DB, logger *slog.Logger) *indexer {
	x := &indexer{db: d, logger: logger, waiting: map[int64]bool{}, failed: map[int64]bool{}, wakeup: make(chan struct{}, 1), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	go x.run(ctx)
	return x
}

// add queues logs with decided entries.
func (x *indexer) add(streams ...int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range streams {
		x.waiting[id] = true
	}
	x.wake()
}

// wake starts the next round. Callers hold the lock.
func (x *indexer) wake() {
	select {
	case x.wakeup <- struct{}{}:
	default: // a token is already pending
	}
}

// stop ends the work, and reports whether all entries known to this server are searchable.
func (x *indexer) stop() bool {
	x.cancel()
	<-x.done
	ctx, cancel := context.WithTimeout(context.Background(), indexLast)
	defer cancel()
	for x.retry(); x.round(ctx) && ctx.Err() == nil; {
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.waiting)+len(x.failed) == 0
}

func (x *indexer) run(ctx context.Context) {
	defer close(x.done)
	for x.scan(ctx) != nil {
		if !wait.For(ctx, indexAgain) {
			return
		}
	}
	var again <-chan time.Time
	for {
		select {
		case <-x.wakeup:
		case <-again:
			x.retry()
			again = nil
			continue
		case <-ctx.Done():
			return
		}
		began := time.Now()
		x.round(ctx)
		if again == nil {
			x.mu.Lock()
			if len(x.failed) > 0 {
				again = time.After(indexAgain)
			}
			x.mu.Unlock()
		}
		wait.For(ctx, max(indexPause, indexIdle*time.Since(began)))
	}
}

// retry puts failed logs into the next round.
func (x *indexer) retry() {
	x.mu.Lock()
	failed := x.failed
	x.failed = map[int64]bool{}
	x.mu.Unlock()
	for id := range failed {
		x.add(id)
	}
}

// round indexes some entries of some waiting logs. It returns false if no log waits.
func (x *indexer) round(ctx context.Context) bool {
	ids := x.take()
	if len(ids) == 0 {
		return false
	}
	began := time.Now()
	more, err := x.index(ctx, ids)
	if err != nil {
		more = ids
		level := slog.LevelWarn
		if errors.Is(err, context.Canceled) {
			level = slog.LevelDebug
		}
		x.logger.Log(context.Background(), level, "cannot make new entries searchable; trying again", "threads", len(ids), "error", fault.From(err).Detail())
	}
	if err == nil && time.Since(began) >= indexTime {
		x.add(more...)
		return true
	}
	// The time was not used up: another server is working on these threads, or they are being deleted.
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range more {
		x.failed[id] = true
	}
	return true
}

// take takes some waiting logs.
func (x *indexer) take() (ids []int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.waiting {
		if len(ids) == indexMost {
			x.wake()
			break
		}
		ids = append(ids, id)
		delete(x.waiting, id)
	}
	return ids
}

// index indexes some entries of logs, and returns the logs that have more.
func (x *indexer) index(ctx context.Context, ids []int64) (more []int64, err error) {
	err = x.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		// Work that the database loses is done again.
		_, err := tx.Exec(ctx, "set local synchronous_commit = off")
		if err == nil {
			more, err = queries.IndexNext(ctx, tx, ids, int32(indexTime.Milliseconds()))
		}
		return err
	})
	return more, err
}

// scan finds all threads with entries to index, whichever server accepted them.
func (x *indexer) scan(ctx context.Context) error {
	for after := int64(0); ; {
		var ids []int64
		err := x.db.In(ctx, db.Scope{}, func(tx pgx.Tx) (err error) {
			ids, err = queries.UnindexedAfter(ctx, tx, after, newsMost)
			return err
		})
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			x.add(ids...)
			after = ids[len(ids)-1]
		}
		if len(ids) < newsMost {
			return nil
		}
	}
}
