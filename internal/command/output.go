package command

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// publishEvery is the time between two live pieces: short enough to look live, long enough to cost little.
	publishEvery = 50 * time.Millisecond
	// publishMost is the size of the largest live piece. An output that fits into the result is published completely; of
	// faster output, watchers see only the end of each piece.
	publishMost = keepHead + keepTail
	// publishBinary is the size of the largest live piece of output that is no text.
	publishBinary = 1 << 10
)

// output collects a command's output, both streams interleaved as they arrive. It keeps the beginning and the end for the
// result and publishes everything live. It uses a bounded amount of memory.
//
// Each stream is converted to text first. The result and the live output therefore hold the same bytes, and all counts
// and offsets refer to those, however the output is cut into pieces.
type output struct {
	publish func(offset int64, data []byte)
	// shows returns how many of n bytes may be published now.
	shows          func(n int) int
	stdout, stderr *text
	unlogged       bool // stdout is ignored

	mu        sync.Mutex
	head      []byte
	headEnded bool   // later output does not follow head directly, because some is unknown
	tail      []byte // the last bytes after head; up to twice keepTail before it is trimmed
	total     int64
	taken     int64  // the number of bytes that went to head and tail; total also counts bytes that are held back
	pending   []byte // the last bytes not yet published
	passed    int64  // how many bytes were passed on to be published
	// spool stores the unconverted output, because an artifact holds the exact bytes; nil stores none. It must be set
	// before anything is printed.
	spool *spool

	wake chan struct{} // holds a token when something is pending
	stop chan struct{}
	done chan struct{}
}

func newOutput(ctx context.Context, log *stream.Log, ref stream.Ref, entryID string) *output {
	return startOutput(func(offset int64, data []byte) {
		// Losing live output is harmless, because the result holds it.
		_ = log.Publish(ctx, ref, stream.Delta{EntryID: entryID, Offset: offset, Data: data})
	})
}

// startOutput returns an output that calls publish.
func startOutput(publish func(offset int64, data []byte)) *output {
	o := &output{publish: publish, shows: func(n int) int { return n }, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	o.redact(nil)
	go o.run()
	return o
}

// redact makes the output remove secrets. It must be called before the first write.
func (o *output) redact(r *secret.Redactor) {
	o.stdout, o.stderr = o.newText(r), o.newText(r)
	if o.unlogged {
		o.unlog()
	}
}

// unlog makes the output ignore stdout, which only the command's reader gets. It must be called before the first write.
func (o *output) unlog() {
	o.unlogged = true
	o.stdout.end() // what is written later is ignored
}

func (o *output) newText(r *secret.Redactor) *text {
	return &text{count: o.count, bytes: r.Stream(o.keep), final: r.Stream(o.take), live: r.Live(o.show)}
}

// keep receives unconverted output.
func (o *output) keep(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spool != nil {
		o.spool.write(p)
	}
}

// count counts converted output.
func (o *output) count(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += n
}

// take receives converted output for the result.
func (o *output) take(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := p
	o.taken += int64(len(p))
	if space := keepHead - len(o.head); space > 0 && !o.headEnded {
		n := min(space, len(rest))
		o.head, rest = append(o.head, rest[:n]...), rest[n:]
	}
	o.tail = keepLast(append(o.tail, lastOf(rest, keepTail)...), keepTail)
}

// show receives converted output for watchers.
func (o *output) show(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.passed += int64(len(p))
	o.pending = keepLast(append(o.pending, lastOf(p, publishMost)...), publishMost)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run publishes pending output: at once after a pause, otherwise every publishEvery.
func (o *output) run() {
	defer close(o.done)
	for {
		select {
		case <-o.stop:
			return
		case <-o.wake:
		}
		o.mu.Lock()
		data, end := lastOf(o.pending, publishMost), o.passed
		if 8*bytes.Count(data, []byte(substitute)) > len(data) {
			data = lastOf(data, publishBinary) // nobody reads it, and compressing it for each watcher takes long
		}
		data = bytes.Clone(dropPartialStart(lastOf(data, o.shows(len(data)))))
		o.pending = o.pending[:0]
		o.mu.Unlock()
		o.publish(end-int64(len(data)), data)
		select {
		case <-o.stop:
			return
		case <-time.After(publishEvery):
		}
	}
}

// skip reports that the next n bytes of the output are unknown. It drops the tail, because later output would look like
// its continuation.
func (o *output) skip(n int64) {
	o.stdout.cut()
	o.stderr.cut()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total, o.taken, o.passed = o.total+n, o.taken+n, o.passed+n
	o.pending, o.tail = o.pending[:0], o.tail[:0]
	o.headEnded = true
	if o.spool != nil {
		o.spool.skip(n)
	}
}

// empty reports whether nothing was printed.
func (o *output) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total == 0
}

// reserve reserves n more bytes of the server's disk for the output, besides what the spool takes. It fails if the spool
// no longer stores the output, or if there is no space. They are freed when the spool closes.
func (o *output) reserve(n int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.spool != nil && o.spool.reserve(n)
}

// seen returns a part of the output so far; see [partOf].
func (o *output) seen(from int64) Seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	return partOf(o.head, o.tail, o.taken, from)
}

// close stops publishing and returns the output's part of the result.
func (o *output) close() entry.CommandResult {
	o.stdout.end()
	o.stderr.end()
	close(o.stop)
	<-o.done
	o.mu.Lock()
	defer o.mu.Unlock()
	r := entry.CommandResult{OutputBytes: o.total}
	tail := lastOf(o.tail, keepTail)
	if o.total <= int64(len(o.head)+len(tail)) {
		r.Output = string(o.head) + string(tail)
		return r
	}
	r.Truncated = true
	r.Output, r.OutputTail = string(dropPartialEnd(o.head)), string(dropPartialStart(tail))
	return r
}

// keepLast trims b to its last n bytes when it has grown to twice that, so that trimming stays cheap.
func keepLast(b []byte, n int) []byte {
	if len(b) <= 2*n {
		return b
	}
	return append(b[:0], b[len(b)-n:]...)
}

func lastOf(b []byte, n int) []byte { return b[max(len(b)-n, 0):] }
