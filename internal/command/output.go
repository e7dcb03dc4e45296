package command

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

const (
	// keepHead and keepTail are how much of the beginning and the end of an output its result holds, in bytes.
	keepHead = 64 << 10
	keepTail = 64 << 10
	// publishEvery is the time between two live pieces: short enough to look live, long enough to cost little.
	publishEvery = 50 * time.Millisecond
	// publishMost is the size of the largest live piece: an output that fits into the result is published completely.
	// Of an output that comes faster, watchers see the end.
	publishMost = keepHead + keepTail
	// PeekMost is the size of the largest [Seen].
	PeekMost = 40 << 10
)

// output collects what a command prints, both streams interleaved as they arrive. It keeps the beginning and the end
// for the result and publishes everything live. It uses a bounded amount of memory.
//
// Each stream is converted to text first. The result and the live output therefore hold the same bytes, and all counts
// and offsets refer to those, however the output is cut into pieces.
type output struct {
	publish func(offset int64, data []byte)
	// shows returns how many of n bytes may be published now.
	shows          func(n int) int
	stdout, stderr *text
	// to receives the unconverted output too. Its fields are nil if there is no receiver.
	to *attachment

	mu        sync.Mutex
	head      []byte
	headEnded bool   // later output does not follow head, because some is unknown
	tail      []byte // the last bytes after head; up to twice keepTail before it is trimmed
	total     int64
	taken     int64  // how many bytes head and tail stand for; total counts what is held back, too
	pending   []byte // the last bytes that are not published yet
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
	o := &output{publish: publish, shows: func(n int) int { return n }, to: &attachment{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	o.redact(nil)
	go o.run()
	return o
}

// receives makes the output remove the secrets that its command receives. It must be called before anything is written.
func (o *output) receives(r secret.Received) {
	o.redact(r.Redactor)
	if o.to.feed != nil {
		o.to.feed.redact(r.Redactor)
	}
}

// redact makes the output remove secrets from what is written to it. It must be called before that.
func (o *output) redact(r *secret.Redactor) {
	o.stdout, o.stderr = newText(r, o), newText(r, o)
}

// text converts a stream of bytes to UTF-8 without NUL, because Postgres stores no other text. It replaces
// invalid bytes one by one. It removes secrets from both forms, which keeps their lengths and so all counts and offsets.
type text struct {
	mu    sync.Mutex
	o     *output
	bytes *secret.Stream // receives the unconverted stream
	whole *secret.Stream // receives the text for the result
	live  *secret.Stream // receives the text for those who watch
	made  []byte         // the converted form of the last piece
	begun []byte         // the beginning of an incomplete character
	ended bool
}

func newText(redactor *secret.Redactor, o *output) *text {
	return &text{o: o, bytes: redactor.Stream(o.keep), whole: redactor.Stream(o.take), live: redactor.Live(o.show)}
}

// Write never fails and never waits for a watcher, because that would stop the command. It ignores what comes after the
// end, because the result is then being written.
func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return len(p), nil
	}
	_, _ = t.bytes.Write(p) // never fails, nor do the others
	all := p
	if len(t.begun) > 0 {
		all = slices.Concat(t.begun, p)
	}
	whole := wholeEnd(all)
	t.begun = bytes.Clone(all[len(whole):])
	t.give(whole)
	return len(p), nil
}

// end passes on an incomplete character. It may be called more than once.
func (t *text) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		t.give(t.begun)
		t.flush()
	}
}

// cut passes on an incomplete character, because the next bytes do not continue it.
func (t *text) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.give(t.begun)
	t.begun = nil
	t.flush()
}

func (t *text) flush() {
	t.bytes.Flush()
	t.whole.Flush()
	t.live.Flush()
}

func (t *text) give(p []byte) {
	if !utf8.Valid(p) || bytes.IndexByte(p, 0) >= 0 {
		t.made = appendText(t.made[:0], p)
		p = t.made
	}
	t.o.count(int64(len(p)))
	_, _ = t.whole.Write(p)
	_, _ = t.live.Write(p)
}

// appendText appends p as text. It makes one pass and no copy but the result, because binary output may be long.
func appendText(text, p []byte) []byte {
	for len(p) > 0 {
		n := 0
		for n < len(p) && p[n] < utf8.RuneSelf && p[n] != 0 {
			n++
		}
		text, p = append(text, p[:n]...), p[n:]
		if len(p) == 0 {
			break
		}
		r, size := utf8.DecodeRune(p)
		if r == 0 {
			r = '\u2400'
		}
		text, p = utf8.AppendRune(text, r), p[size:] // for an invalid byte, r is U+FFFD and size is 1
	}
	return text
}

// keep receives unconverted output.
func (o *output) keep(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spool != nil {
		o.spool.write(p)
	}
}

// count counts converted output when it comes, because a part of it may be held back.
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
	if room := keepHead - len(o.head); room > 0 && !o.headEnded {
		n := min(room, len(rest))
		o.head, rest = append(o.head, rest[:n]...), rest[n:]
	}
	o.tail = keepLast(append(o.tail, lastOf(rest, keepTail)...), keepTail)
}

// show receives converted output for those who watch.
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

// empty reports whether nothing was printed.
func (o *output) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total == 0
}

// reserve reserves n more bytes of the server's disk for the output, besides what the spool takes. It fails if the spool
// no longer stores the output, or if there is no room. They are freed when the spool is closed.
func (o *output) reserve(n int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.spool != nil && o.spool.reserve(n)
}

// skip reports that the next n bytes of the output are unknown. It drops the tail, because what follows would seem to
// continue it.
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

// run publishes what is pending: at once after a pause, otherwise every publishEvery.
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
		data = bytes.Clone(wholeStart(lastOf(data, o.shows(len(data)))))
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

// seen returns a part of the output so far; see [partOf].
func (o *output) seen(from int64) Seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	return partOf(o.head, o.tail, o.taken, from)
}

// Seen is a part of a command's output.
type Seen struct {
	Text string
	// At is where it begins, and Next where it ends. Total is how much there is.
	At, Next, Total int64
}

// partOf returns the part of an output that begins at a position, or at the first one after it that is kept; if it is
// negative, the end. head and tail are what is kept of total bytes.
func partOf(head, tail []byte, total, from int64) Seen {
	at := total - int64(len(tail)) // of the tail
	if from < 0 {
		from = max(total-PeekMost, 0)
	}
	from = min(from, total)
	var data []byte
	switch n := int64(len(head)); {
	case from < n && n == at:
		data = slices.Concat(head[from:], tail)
	case from < n:
		data = head[from:]
	default:
		from = max(from, at)
		data = tail[from-at:]
	}
	data = data[:min(len(data), PeekMost)]
	whole := wholeEnd(wholeStart(data))
	from += int64(len(data) - len(wholeStart(data)))
	return Seen{Text: string(whole), At: from, Next: from + int64(len(whole)), Total: total}
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
	r.Output, r.OutputTail = string(wholeEnd(o.head)), string(wholeStart(tail))
	return r
}

// wholeEnd drops an incomplete character at the end, wholeStart one at the start.
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

// keepLast trims b to its last n bytes when it has grown to twice that, so that trimming stays cheap.
func keepLast(b []byte, n int) []byte {
	if len(b) <= 2*n {
		return b
	}
	return append(b[:0], b[len(b)-n:]...)
}

func lastOf(b []byte, n int) []byte { return b[max(len(b)-n, 0):] }
