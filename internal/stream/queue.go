package stream

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// queueBytes bounds what all calls hold that wait for their commit, and laneBytes those of one stream, so
	// that one which cannot be written to leaves room for the others.
	queueBytes, laneBytes = 64 << 20, 8 << 20
	// entryBytes is what an entry costs beside its payload.
	entryBytes = 512
	// patience is how long a call waits for room in the queue.
	patience = 2 * time.Second

	// batchEntries and batchBytes end a batch: with the call that passes one of them.
	batchEntries, batchBytes = 1024, 4 << 20

	// keptLanes is how many streams without a call are remembered with their tails, roughly.
	keptLanes = 4096
	// firstPark and longestPark bound the pause before a stream that was locked is tried again.
	firstPark, longestPark = time.Millisecond, 16 * time.Millisecond
)

// unknown is a tail that must be looked up.
const unknown = -1

// call is one Append that waits for its outcome.
type call struct {
	// entries are the drafts, and after the commit what became of them.
	entries []entry.Entry
	err     error
	done    chan struct{} // closed when entries or err is final
	since   time.Time
	bytes   int64
}

// lane is the queue of one stream: its calls are committed in their order. The queue's lock guards it.
type lane struct {
	ref Ref
	// id and tail are what was true when last heard of; the database has the last word on both.
	id, tail int64
	calls    []*call
	// placed says that somebody has the lane: it stands in line, or its calls are being written, or it is
	// parked. Nobody else may take its calls.
	placed bool
	// gone says that there was no such stream lately: the next call asks again.
	gone bool
	// alone says that the last calls had to be written by themselves, and the next ones must be as well.
	alone bool
	// park is the pause when the stream is found locked once more.
	park time.Duration
	// users are the calls of the lane, from before they are queued until their outcome.
	users int
	room  *semaphore.Weighted
}

// part is what a batch takes from one lane.
type part struct {
	lane     *lane
	id, tail int64 // these and alone are the lane's, when it was taken
	alone    bool
	entries  int
	calls    []*call
}

func (p part) isKnown() bool { return p.tail != unknown }

// queue holds calls until the committer takes them, and serves streams in turns.
type queue struct {
	room *semaphore.Weighted
	// filled says that a lane has come to stand in line.
	filled chan struct{}

	mu     sync.Mutex
	closed error
	lanes  map[Ref]*lane
	ids    map[int64]*lane
	line   []*lane // those to be served, the next one first
	full   int     // the number of lanes at which to look for idle ones
}

func newQueue() *queue {
	return &queue{
		room: semaphore.NewWeighted(queueBytes), filled: make(chan struct{}, 1),
		lanes: map[Ref]*lane{}, ids: map[int64]*lane{}, full: keptLanes,
	}
}

// enter finds the lane of a stream for one call, which leaves it with finish or leave. It is nil when the
// stream is not known here.
func (q *queue) enter(ref Ref) *lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lanes[ref]
	if n == nil || n.gone {
		return nil
	}
	n.users++
	return n
}

// learn notes which stream has a name, and where it ends.
func (q *queue) learn(ref Ref, id, tail int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lanes[ref]
	if n == nil {
		n = &lane{ref: ref, room: semaphore.NewWeighted(laneBytes)}
		q.lanes[ref] = n
	}
	n.gone = false
	if n.id != id {
		delete(q.ids, n.id)
		n.id, n.tail = id, tail
		q.ids[id] = n
	}
	if len(q.lanes) > q.full {
		q.sweep()
	}
}

// sweep forgets the lanes that nobody uses. Callers hold the lock.
func (q *queue) sweep() {
	for ref, n := range q.lanes {
		if n.users == 0 {
			delete(q.lanes, ref)
			delete(q.ids, n.id)
		}
	}
	q.full = max(keptLanes, 2*len(q.lanes))
}

// forget makes the next call ask for its stream again.
func (q *queue) forget(n *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n.gone = true
}

// heard learns from a notification that somebody else wrote up to tail. It is no more than a hint: the tail
// is looked up before it is used.
func (q *queue) heard(id, tail int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.ids[id]; n != nil && tail > n.tail {
		n.tail = unknown
	}
}

// put queues a call when there is room for it.
func (q *queue) put(ctx context.Context, n *lane, c *call) error {
	if err := acquire(ctx, n.room, c.bytes); err != nil {
		q.leave(n)
		return err
	}
	if err := acquire(ctx, q.room, c.bytes); err != nil {
		n.room.Release(c.bytes)
		q.leave(n)
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		n.room.Release(c.bytes)
		q.room.Release(c.bytes)
		n.users--
		return q.closed
	}
	n.calls = append(n.calls, c)
	if !n.placed {
		q.stand(n)
	}
	return nil
}

// acquire waits for room, but not for long.
func acquire(ctx context.Context, room *semaphore.Weighted, bytes int64) error {
	if room.TryAcquire(bytes) {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := room.Acquire(short, bytes); err == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fault.New(fault.Exhausted, "more is being written than the database takes, and too much waits already",
		"try again in a moment; with the same ids nothing is written twice")
}

func (q *queue) leave(n *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n.users--
}

// stand puts a lane at the end of the line. Callers hold the lock.
func (q *queue) stand(n *lane) {
	n.placed = true
	q.line = append(q.line, n)
	select {
	case q.filled <- struct{}{}:
	default: // it is told already
	}
}

// take takes the next batch: from every lane that stands in line, as far as there is space, at most its
// share. Whoever takes a part gives its lane back with resume, retry or park.
func (q *queue) take() []part {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.line) == 0 {
		return nil
	}
	share := max(1, batchEntries/len(q.line))
	shareBytes := max(1, batchBytes/int64(len(q.line)))
	parts := make([]part, 0, min(len(q.line), batchEntries))
	entries, bytes, served := 0, int64(0), 0
	for served < len(q.line) && entries < batchEntries && bytes < batchBytes {
		p, b := q.line[served].cut(share, shareBytes)
		parts = append(parts, p)
		served, entries, bytes = served+1, entries+p.entries, bytes+b
	}
	q.line = slices.Delete(q.line, 0, served)
	return parts
}

// cut takes the first calls: one, and more until they are as many entries or bytes as given.
func (n *lane) cut(entries int, bytes int64) (p part, taken int64) {
	p = part{lane: n, id: n.id, tail: n.tail, alone: n.alone}
	for len(p.calls) < len(n.calls) && p.entries < entries && taken < bytes {
		c := n.calls[len(p.calls)]
		p.calls = n.calls[:len(p.calls)+1]
		p.entries += len(c.entries)
		taken += c.bytes
	}
	p.calls = slices.Clip(p.calls)
	if n.calls = n.calls[len(p.calls):]; len(n.calls) == 0 {
		n.calls = nil
	}
	return p, taken
}

// resume gives a lane back whose part has its outcome; tail is where its stream ends now.
func (q *queue) resume(n *lane, tail int64, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n.tail, n.alone, n.park = tail, alone, 0
	q.place(n)
}

// place lets a lane stand in line again when it has calls. Callers hold the lock.
func (q *queue) place(n *lane) {
	if n.placed = len(n.calls) > 0; n.placed {
		q.stand(n)
	}
}

// retry gives a lane back with calls that were not written: they are its first again, after a pause.
func (q *queue) retry(n *lane, calls []*call) {
	q.mu.Lock()
	if closed := q.closed; closed != nil {
		q.mu.Unlock()
		q.finish(n, calls, closed)
		return
	}
	defer q.mu.Unlock()
	n.calls = slices.Concat(calls, n.calls)
	n.park = min(max(2*n.park, firstPark), longestPark)
	time.AfterFunc(n.park, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.place(n)
	})
}

// finish tells calls their outcome.
func (q *queue) finish(n *lane, calls []*call, err error) {
	q.mu.Lock()
	n.users -= len(calls)
	q.mu.Unlock()
	var bytes int64
	for _, c := range calls {
		c.err = err
		bytes += c.bytes
		close(c.done)
	}
	n.room.Release(bytes)
	q.room.Release(bytes)
}

// close refuses all that waits and all that comes.
func (q *queue) close(err error) {
	q.mu.Lock()
	q.closed = err
	waiting := map[*lane][]*call{}
	for _, n := range q.lanes {
		waiting[n], n.calls = n.calls, nil
	}
	q.line = nil
	q.mu.Unlock()
	for n, calls := range waiting {
		q.finish(n, calls, err)
	}
}
