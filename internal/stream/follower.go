package stream

import (
	"context"
	"sync"
	"time"
)

// A Follower is called when this server commits entries. Its methods must return quickly, because commits wait for
// them.
type Follower interface {
	// Committed reports that a log may have new entries. It is called after every commit of this server that appended
	// to the log, and sometimes without new entries. stream is the log's id.
	Committed(ref Ref, stream int64)
	// Closing reports that the Log will commit nothing more. [Log.Close] waits until it returns, so the follower can
	// finish its work. pending reports that callers' transactions were still open, which may commit later.
	Closing(pending bool)
}

const (
	// inDoubt is how long the outcome of a caller's transaction may be unknown. No transaction lasts longer. After that
	// time the write is reported, so that a lost notification only delays the Follower.
	inDoubt = time.Minute
	// settleEvery is the time between two checks for writes that have been in doubt for that long.
	settleEvery = 3 * time.Second
)

// follower calls the Follower, if there is one. The committer's own writes are known to be committed. A caller's
// transaction may still be rolled back after [Log.AppendTx]. It is known to be committed only when its notification
// arrives, which carries the id of the Postgres process that wrote.
type follower struct {
	mu       sync.Mutex
	to       Follower
	doubtful map[write]doubt
}

func (f *follower) set(to Follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
}

// run settles writes in doubt until ctx ends.
func (f *follower) run(ctx context.Context) {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.settle(false)
		case <-ctx.Done():
			return
		}
	}
}

// write is a write of a Postgres process to a stream in a transaction that has not ended yet, or whose outcome is
// unknown.
type write struct {
	pid    uint32
	stream int64
}

type doubt struct {
	ref Ref
	// tail is the last position that was written. Notifications arrive in commit order, so one with a lower position
	// belongs to an earlier transaction on the same connection.
	tail  int64
	since time.Time
}

// committed reports to the Follower that a stream has new entries.
func (f *follower) committed(ref Ref, stream int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to != nil {
		f.to.Committed(ref, stream)
	}
}

// expect records that a caller's transaction, in the Postgres process pid, wrote to a stream up to position tail.
func (f *follower) expect(pid uint32, ref Ref, stream, tail int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to == nil {
		return
	}
	if f.doubtful == nil {
		f.doubtful = map[write]doubt{}
	}
	f.doubtful[write{pid, stream}] = doubt{ref, tail, time.Now()}
}

// heard records that the Postgres process pid committed to a stream up to position tail.
func (f *follower) heard(pid uint32, stream, tail int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := write{pid, stream}
	if d, ours := f.doubtful[w]; ours {
		if tail >= d.tail {
			delete(f.doubtful, w)
		}
		f.to.Committed(d.ref, stream)
	}
}

// settle reports writes whose notification will not arrive any more, and every write in doubt if notifications were
// lost. It forgets the writes whose transactions must have ended. It reports them although they may have been rolled
// back, because the Follower must not miss a commit, and a report without new entries is harmless.
func (f *follower) settle(lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w, d := range f.doubtful {
		ended := time.Since(d.since) > inDoubt
		if ended {
			delete(f.doubtful, w)
		}
		if ended || lost {
			f.to.Committed(d.ref, w.stream)
		}
	}
}

// close tells the Follower that nothing more will be committed.
func (f *follower) close() {
	f.settle(true)
	f.mu.Lock()
	to, pending := f.to, len(f.doubtful) > 0
	f.to, f.doubtful = nil, nil
	f.mu.Unlock()
	if to != nil {
		// Without the lock, because the Follower finishes its work before it returns.
		to.Closing(pending)
	}
}
