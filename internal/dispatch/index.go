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
	// indexTime is about how long one transaction makes entries searchable. It is short, because nobody can delete or
	// lock the threads of these entries meanwhile.
	indexTime = 50 * time.Millisecond
	// indexMost is the number of threads in one transaction.
	indexMost = 50
	// After a transaction there is a pause of indexPause, and of indexIdle times its duration. So entries of little
	// conversations are searchable at once, and a long log takes at most a part of one database process.
	indexPause, indexIdle = 20 * time.Millisecond, 2
	// indexAgain is the pause before the indexer retries what failed, or what another server was working on.
	indexAgain = time.Second
	// indexLast limits how long a stopping server makes entries searchable. It may be short, because other servers
	// continue.
	indexLast = time.Second
)

// indexer makes decided entries searchable, at its own pace: deciding never waits for it. Each thread has a cursor for
// that. It moves in the transaction that adds the words, so that a killed server leaves nothing half done. Of several
// servers, one works on a thread at a time.
//
// Like the decider, it knows of work from this server only, and finds that of killed servers by checking all cursors.
type indexer struct {
	db     *db.DB
	logger *slog.Logger

	mu sync.Mutex
	// waiting are the logs with entries to index, and failed those to be retried after a pause.
	waiting, failed map[int64]bool
	// wakeup receives a token when waiting is not empty.
	wakeup chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

// startIndexing starts to make entries searchable, first those that earlier servers left, until [indexer.stop].
func startIndexing(d *db.DB, logger *slog.Logger) *indexer {
	x := &indexer{db: d, logger: logger, waiting: map[int64]bool{}, failed: map[int64]bool{}, wakeup: make(chan struct{}, 1), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	go x.run(ctx)
	return x
}

// add says that entries of logs were decided.
func (x *indexer) add(streams ...int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range streams {
		x.waiting[id] = true
	}
	x.wake()
}

// wake makes the next round begin. Callers hold the lock.
func (x *indexer) wake() {
	select {
	case x.wakeup <- struct{}{}:
	default: // a token is already pending
	}
}

// stop ends the work, and reports whether all entries are searchable of which this server knows.
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

// retry makes the next round include what failed.
func (x *indexer) retry() {
	x.mu.Lock()
	failed := x.failed
	x.failed = map[int64]bool{}
	x.mu.Unlock()
	for id := range failed {
		x.add(id)
	}
}

// round makes some entries of some waiting logs searchable. It returns false if none waits.
func (x *indexer) round(ctx context.Context) bool {
	x.mu.Lock()
	var ids []int64
	for id := range x.waiting {
		if len(ids) == indexMost {
			x.wake()
			break
		}
		ids = append(ids, id)
		delete(x.waiting, id)
	}
	x.mu.Unlock()
	if len(ids) == 0 {
		return false
	}
	var more []int64
	began := time.Now()
	err := x.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		// What is lost with the database is done again.
		_, err := tx.Exec(ctx, "set local synchronous_commit = off")
		if err == nil {
			more, err = queries.IndexNext(ctx, tx, ids, int32(indexTime.Milliseconds()))
		}
		return err
	})
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
	// The time was not used up: another server works on these, or their threads are being deleted.
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range more {
		x.failed[id] = true
	}
	return true
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
