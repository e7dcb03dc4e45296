package dispatch

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// keepHead and keepTail are how much of a command's output its result holds, in bytes.
	keepHead = 64 << 10
	keepTail = 64 << 10
	// publishEvery is the pace of live output: fast enough to look live, slow enough to cost nothing.
	publishEvery = 50 * time.Millisecond
	// publishMost is the largest live piece: what the result holds whole is published whole. Of output
	// that comes faster, watchers see the end.
	publishMost = keepHead + keepTail
)

// output takes what a command prints, both streams interleaved as they come: it keeps head and tail for
// the result and publishes the rest live. It holds a bounded amount, whatever is printed.
type output struct {
	publish func(offset int64, data []byte)

	mu      sync.Mutex
	head    []byte
	tail    []byte // the last bytes behind head; up to twice keepTail before it is trimmed
	total   int64
	pending []byte // not published yet: the last bytes printed

	wake chan struct{} // holds one token when something is pending
	stop chan struct{}
	done chan struct{}
}

func newOutput(ctx context.Context, log *stream.Log, ref stream.Ref, entryID string) *output {
	o := &output{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	o.publish = func(offset int64, data []byte) {
		// A lost piece of live output is no loss: the result holds it.
		_ = log.Publish(ctx, ref, stream.Delta{EntryID: entryID, Offset: offset, Data: data})
	}
	go o.run()
	return o
}

// Write never fails and never waits for a watcher.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += int64(len(p))
	o.pending = keepLast(append(o.pending, lastOf(p, publishMost)...), publishMost)
	rest := p
	if room := keepHead - len(o.head); room > 0 {
		n := min(room, len(rest))
		o.head, rest = append(o.head, rest[:n]...), rest[n:]
	}
	o.tail = keepLast(append(o.tail, lastOf(rest, keepTail)...), keepTail)
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

// run publishes what is pending: at once after a pause, then at its pace.
func (o *output) run() {
	defer close(o.done)
	for {
		select {
		case <-o.stop:
			return
		case <-o.wake:
		}
		o.mu.Lock()
		data, end := bytes.Clone(lastOf(o.pending, publishMost)), o.total
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

// close ends the publishing and returns the result's part that output knows.
func (o *output) close() entry.CommandResult {
	close(o.stop)
	<-o.done
	o.mu.Lock()
	defer o.mu.Unlock()
	r := entry.CommandResult{OutputBytes: o.total}
	tail := lastOf(o.tail, keepTail)
	if o.total <= int64(len(o.head)+len(tail)) {
		r.Output = text(append(o.head, tail...))
		return r
	}
	r.Truncated = true
	r.Output, r.OutputTail = text(wholeEnd(o.head)), text(wholeStart(tail))
	return r
}

// wholeEnd leaves out the character at the end that the cut went through, wholeStart the one at the start.
func wholeEnd(b []byte) []byte {
	for i := len(b) - 1; i >= max(len(b)-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				return b
			}
			return b[:i]
		}
	}
	return b
}

func wholeStart(b []byte) []byte {
	for i := range min(utf8.UTFMax, len(b)) {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// keepLast trims b to its last n bytes once it has grown to twice that, so that trimming stays cheap.
func keepLast(b []byte, n int) []byte {
	if len(b) <= 2*n {
		return b
	}
	return append(b[:0], b[len(b)-n:]...)
}

func lastOf(b []byte, n int) []byte { return b[max(len(b)-n, 0):] }

// text is output as a payload takes it: what is no text is replaced.
func text(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\u2400")
}
