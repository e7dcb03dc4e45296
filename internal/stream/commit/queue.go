package commit

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

const (
	// queueBytes limits the memory of all waiting calls, and laneBytes that of one stream's calls, so that a stream
	// which cannot be written to leaves space for the others.
	queueBytes, laneBytes = 64 << 20, 8 << 20
	// enqueueTimeout is how long a call waits for space in the queue.
	enqueueTimeout = 2 * time.Second

	// batchEntries and batchBytes end a batch: the call that exceeds one of them is its last.
	batchEntries, batchBytes = 1024, 4 << 20

	// keptLanes is approximately how many streams without a waiting call are remembered with their tails, so that the
	// next append to one of them needs no query first.
	keptLanes = 4096
	// firstPark and longestPark limit the pause before a locked stream is tried again.
	firstPark, longestPark = time.Millisecond, 16 * time.Millisecond
)

// unknown is a tail that has to be looked up.
const unknown = -1

// lane is the queue of one stream, whose calls are committed in order. The queue's lock guards it.
type lane struct {
	ref store.Ref
	// id and tail were right when they were last read. They may be outdated, because other servers write too; the
	// database then refuses the batch. connection is the number of the writer's connection over which tail was read.
	id, tail   int64
	connection int
	calls      []*call
	// queued reports that the lane is in line, being written or parked. It must not be put in line again, because two
	// parts of it could then be written at the same time and out of order.
	queued bool
	// contentType is the stream's content type, which never changes while the stream keeps its id. It is nil if
	// unknown, and for a stream that expires, because only the database knows whether that stream still exists.
	contentType *string
	// gone reports that the stream did not exist recently: the next call asks the database again.
	gone bool
	// alone reports that the last calls had to be written on their own. The next ones are too, because they would
	// probably make a batch fail.
	alone bool
	// park is the pause to make if the stream is locked again.
	park time.Duration
	// users is the number of calls of the lane that have no result yet, including those not queued yet. A lane with
	// users is not swept, because a second lane of its stream would then be written at the same time.
	users int
	quota *semaphore.Weighted
}

// part is the share of a batch that comes from one lane.
type part struct {
	lane       *lane
	id, tail   int64 // copies, because the lane's fields may change meanwhile; so are connection and alone
	connection int
	alone      bool
	entries    int
	calls      []*call
}

func (p part) isKnown() bool { return p.tail != unknown }

// queue holds calls until the writer takes them, and serves streams in turn.
type queue struct {
	quota *semaphore.Weighted
	// filled receives a token when a lane is put in line.
	filled chan struct{}

	mu     sync.Mutex
	closed error
	lanes  map[store.Ref]*lane
	ids    map[int64]*lane
	line   []*lane // the lanes to serve, first come first served
	full   int     // the number of lanes at which idle ones are removed
}

func newQueue() *queue {
	return &queue{
		quota: semaphore.NewWeighted(queueBytes), filled: make(chan struct{}, 1),
		lanes: map[store.Ref]*lane{}, ids: map[int64]*lane{}, full: keptLanes,
	}
}

// enter returns the lane of a stream for one call, which must end with finish or leave; nil if this server does not
// know the stream.
func (q *queue) enter(ref store.Ref) *lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lanes[ref]
	if n == nil || n.gone {
		return nil
	}
	n.users++
	return n
}

// recall returns the data that describe stored about the stream that recently had this name.
func (q *queue) recall(ref store.Ref) (id int64, contentType string, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.lanes[ref]; n != nil && !n.gone && n.contentType != nil {
		return n.id, *n.contentType, true
	}
	return 0, "", false
}

// describe is learn with the stream's content type.
func (q *queue) describe(ref store.Ref, id int64, contentType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.note(ref, id).contentType = &contentType
}

// learn stores which stream has a name. The writer looks up its tail over its own connection.
func (q *queue) learn(ref store.Ref, id int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.note(ref, id)
}

// note is learn for callers that hold the lock.
func (q *queue) note(ref store.Ref, id int64) *lane {
	n := q.lanes[ref]
	if n == nil {
		n = &lane{ref: ref, quota: semaphore.NewWeighted(laneBytes)}
		q.lanes[ref] = n
	}
	n.gone = false
	if n.id != id {
		delete(q.ids, n.id)
		n.id, n.tail, n.contentType = id, unknown, nil
		q.ids[id] = n
	}
	if len(q.lanes) > q.full {
		q.sweep()
	}
	return n
}

// sweep forgets the lanes without users. It runs again only when the lanes have doubled, so that it stays rare even if
// most are in use. Callers hold the lock.
func (q *queue) sweep() {
	for ref, n := range q.lanes {
		if n.users == 0 {
			delete(q.lanes, ref)
			delete(q.ids, n.id)
		}
	}
	q.full = max(keptLanes, 2*len(q.lanes))
}

// forget makes the next call look up its stream again. The lane itself stays, because calls may be waiting in it.
func (q *queue) forget(n *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n.gone = true
}

// heard records a notification that another writer extended a stream to tail. The tail is looked up before it is used,
// because the notification is only a hint.
func (q *queue) heard(id, tail int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.ids[id]; n != nil && tail > n.tail {
		n.tail = unknown
	}
}

// put queues a call if there is space for it.
func (q *queue) put(ctx context.Context, n *lane, c *call) error {
	c.bytes = min(c.bytes, laneBytes) // so that a larger one can use the whole lane
	// The lane's quota comes first, so that calls of a locked stream hold no shared quota while they wait.
	if err := acquire(ctx, n.quota, c.bytes); err != nil {
		q.leave(n)
		return err
	}
	if err := acquire(ctx, q.quota, c.bytes); err != nil {
		n.quota.Release(c.bytes)
		q.leave(n)
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		n.quota.Release(c.bytes)
		q.quota.Release(c.bytes)
		n.users--
		return q.closed
	}
	n.calls = append(n.calls, c)
	if !n.queued {
		q.enqueue(n)
	}
	return nil
}

// acquire waits for quota for at most enqueueTimeout.
func acquire(ctx context.Context, quota *semaphore.Weighted, bytes int64) error {
	if quota.TryAcquire(bytes) {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, enqueueTimeout)
	defer cancel()
	if err := quota.Acquire(short, bytes); err == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fault.New(fault.Exhausted, "too many writes are waiting: the database cannot keep up",
		"try again in a moment; with the same ids nothing is written twice")
}

func (q *queue) leave(n *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n.users--
}

// enqueue puts a lane at the end of the line. Callers hold the lock.
func (q *queue) enqueue(n *lane) {
	n.queued = true
	q.line = append(q.line, n)
	select {
	case q.filled <- struct{}{}:
	default: // a token is already pending
	}
}

// take returns the next batch. It takes from every lane in line as long as there is space, at most a lane's share of
// it, so that a busy stream does not delay the others. The caller must return each part's lane with resume, retry or
// park.
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

// cut removes calls from the front of a lane: at least one, because a call larger than the limits could otherwise never
// be written, and more until they have the given number of entries or bytes. A part with a call that exceeds a whole
// batch is written alone, because the calls of all streams wait for a batch.
func (n *lane) cut(entries int, bytes int64) (p part, taken int64) {
	p = part{lane: n, id: n.id, tail: n.tail, connection: n.connection, alone: n.alone}
	for len(p.calls) < len(n.calls) && p.entries < entries && taken < bytes {
		c := n.calls[len(p.calls)]
		p.calls = n.calls[:len(p.calls)+1]
		p.alone = p.alone || c.stream != 0 && c.stream != n.id || len(c.entries) > batchEntries
		p.entries += len(c.entries)
		taken += c.bytes
	}
	p.calls = slices.Clip(p.calls)
	if n.calls = n.calls[len(p.calls):]; len(n.calls) == 0 {
		n.calls = nil
	}
	return p, taken
}

// resume returns the lane of a part that has its result. tail is where its stream ends now, as read over the given
// connection.
func (q *queue) resume(n *lane, tail int64, connection int, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n.tail, n.connection, n.alone, n.park = tail, connection, alone, 0
	q.requeue(n)
}

// requeue puts a lane in line again if it has calls. Callers hold the lock.
func (q *queue) requeue(n *lane) {
	if n.queued = len(n.calls) > 0; n.queued {
		q.enqueue(n)
	}
}

// retry returns a lane with calls that were not written. They become its first calls again, because a stream's calls
// are committed in order, and wait for a pause.
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
		q.requeue(n)
	})
}

// finish gives calls their result.
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
	n.quota.Release(bytes)
	q.quota.Release(bytes)
}

// close refuses all waiting and new calls.
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
