package command

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// Channel is one of a command's two outputs.
type Channel int

// The two outputs.
const (
	Stdout Channel = iota
	Stderr
)

// Piece is a part of a command's output.
type Piece struct {
	Channel Channel
	Data    []byte
}

// ReadIntent is the purpose of a call of [Commands.Read].
type ReadIntent int

// A reader reads, announces that it will read later, leaves, or begins to read a terminal at its current output.
const (
	ReadOn ReadIntent = iota
	Stay
	Leave
	Join
)

// Reader identifies who calls [Commands.Read], and why.
type Reader struct {
	Intent ReadIntent `json:",omitempty"`
	// ID is chosen by a reader that joins, so that it notices when another one joins. Otherwise it is empty.
	ID string `json:",omitempty"`
}

// Reading is the result of [Commands.Read].
type Reading struct {
	Pieces []Piece
	// Position is the position after the pieces, from which to read next.
	Position int64
	// Ended reports that the command will write nothing more and that everything was read.
	Ended bool
}

const (
	// feedSize limits the output that waits for the reader in this server's memory, in bytes. Further bytes wait in the
	// sandbox, because a reader may be slow and a server has many.
	feedSize = 4 << 20
	// feedPieces limits the pieces that wait, because a piece takes more memory than its bytes, and mostPieces those of
	// one answer.
	feedPieces, mostPieces = 16 << 10, 4096
	// mostRead limits the bytes of one answer, because an answer is one message, which is completely in memory.
	mostRead = 1 << 20
	// drainWithin limits how long the end of a command waits for a reader that does not call. It is shorter than absentAfter,
	// because the thread waits for the result.
	drainWithin = 15 * time.Second
)

// errOutputLost is the error for output that is no longer available.
var errOutputLost = fault.New(fault.OutOfRange, "a part of the command's output is no longer available, because nobody read it",
	"see the command's result for the output that the log keeps").WithReason(fault.OutputGone)

// errReplaced is the error for a reader after another one has joined.
var errReplaced = fault.New(fault.OutOfRange, "another terminal is connected to the command now", "join it again")

// feed is the output of a command that its reader does not have yet.
type feed struct {
	condition
	pieces   []fedPiece // starting at base
	base     int64      // the reader has everything before it
	end      int64      // the end of what was written; less than base while output is written again after a restart
	acked    int64      // the record is not needed before this position in it, because that output was read or dropped
	moved    time.Time  // when base moved or hurry was set
	closed   bool       // nothing more will be written
	hurry    bool       // the command was ended, so a reader that stops reading delays nobody
	lost     bool       // unread output was dropped, and later output is dropped too
	left     bool       // another server continues the command
	reader   string     // the reader that joined last, if any
	presence presence

	// redacted redacts the two channels; nil if there are no secrets.
	redacted [2]*secret.Stream
	// back is the output that redacted holds back.
	back heldBack
}

type fedPiece struct {
	Piece
	next int64 // the position in the record after it; 0 in the middle of an entry of the record
}

func newFeed() *feed {
	return &feed{condition: newCondition(), presence: presence{last: time.Now()}}
}

// redact makes the feed remove secrets from what is written to it. It must be called before the first write.
func (f *feed) redact(r *secret.Redactor) {
	if r == nil {
		return
	}
	for i := range f.redacted {
		channel := Channel(i)
		f.redacted[i] = r.Live(func(p []byte) {
			next, ctx := f.back.passed(channel, len(p))
			_ = f.put(ctx, channel, p, next) // the only error is that ctx has ended, which the writer notices
		})
	}
}

// gap reports that the next n bytes are unknown. They are lost unless the reader has them.
func (f *feed) gap(ctx context.Context, n int64) {
	_ = f.flush(ctx) // if ctx has ended, this output is lost anyway
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end += n; f.end > f.base {
		f.lose()
	}
}

// rush reports that the command was ended, so its output no longer waits for a reader that stops reading.
func (f *feed) rush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hurry, f.moved = true, time.Now()
	f.notify()
}

// close reports that nothing more will be written, and waits until the reader has everything or is gone. It fails only if ctx
// ends first.
func (f *feed) close(ctx context.Context) error {
	if err := f.flush(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.notify()
	for f.base < f.end {
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// write adds output that ends at position next of the record. If there is no space, it waits for the reader until ctx
// ends, which is an error.
func (f *feed) write(ctx context.Context, channel Channel, data []byte, next int64) error {
	s := f.redacted[channel]
	if s == nil || len(data) == 0 {
		return f.put(ctx, channel, data, next)
	}
	f.back.add(ctx, channel, len(data), next)
	_, _ = s.Write(data) // never fails
	return context.Cause(ctx)
}

// flush adds the output that is held back.
func (f *feed) flush(ctx context.Context) error {
	for _, s := range f.redacted {
		if s != nil {
			s.Flush()
		}
	}
	return context.Cause(ctx)
}

// put adds redacted output.
func (f *feed) put(ctx context.Context, channel Channel, data []byte, next int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(data) > 0 {
		space := feedSize - (f.end - f.base)
		switch known := min(f.base-f.end, int64(len(data))); {
		case known > 0: // the reader got it from an earlier server; its call may have said so during the wait
			f.end, data = f.end+known, data[known:]
		case f.lost:
			f.end += int64(len(data))
			f.base, f.acked, data = f.end, max(f.acked, next), nil
		case space <= 0 || len(f.pieces) >= feedPieces:
			if err := f.wait(ctx); err != nil {
				return err
			}
		default:
			n := min(int64(len(data)), space)
			behind := next
			if n < int64(len(data)) {
				behind = 0
			}
			f.add(channel, data[:n], behind)
			data = data[n:]
		}
	}
	f.notify()
	return nil
}

// read returns the output after a position, which confirms that the reader has everything before it. It waits for
// output until the deadline. With Stay or Leave it only records the call.
func (f *feed) read(ctx context.Context, as Reader, position int64, deadline time.Time) (Reading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	position = f.join(as, position)
	if f.reader != as.ID {
		return Reading{}, errReplaced
	}
	f.presence.begin()
	defer f.presence.end()
	f.advance(position)
	if as.Intent == Leave {
		f.lose()
		return Reading{Position: position}, nil
	}
	for {
		if r, done, err := f.reply(as, position, deadline); done || err != nil {
			return r, err
		}
		if err := f.sleep(ctx, time.Until(deadline)); err != nil {
			return Reading{}, fault.From(err)
		}
	}
}

// join makes a reader that joins the reader of the output, and returns its position.
func (f *feed) join(as Reader, position int64) int64 {
	if f.reader == "" {
		f.reader = as.ID // the reader joined at an earlier server
	}
	if as.Intent == Join {
		// The new reader starts at the position of the previous one. Output that the previous one lost does not end the new
		// one.
		position, f.lost, f.reader = f.base, false, as.ID
		f.notify()
	}
	return position
}

// reply answers a reader. done is false if there is nothing to say yet.
func (f *feed) reply(as Reader, position int64, deadline time.Time) (r Reading, done bool, err error) {
	switch {
	case f.reader != as.ID:
		return Reading{}, true, errReplaced
	case position < f.base:
		return Reading{}, true, errOutputLost
	case as.Intent == Stay, as.Intent == Join:
		return Reading{Position: position}, true, nil
	case f.base < f.end:
		return f.next(), true, nil
	case f.left:
		return Reading{Position: position}, true, nil
	case f.closed && position > f.end:
		return Reading{}, true, errOutputLost
	case f.closed:
		return Reading{Position: position, Ended: true}, true, nil
	case time.Now().After(deadline):
		return Reading{Position: position}, true, nil
	}
	return Reading{}, false, nil
}

// advance records that the reader has everything before a position.
func (f *feed) advance(position int64) {
	n := position - f.base
	if n <= 0 {
		return
	}
	f.base, f.moved = position, time.Now()
	for len(f.pieces) > 0 && n > 0 {
		first := &f.pieces[0]
		if n < int64(len(first.Data)) {
			first.Data = first.Data[n:]
			break
		}
		n -= int64(len(first.Data))
		f.acked = max(f.acked, first.next)
		f.pieces = f.pieces[1:]
	}
	f.notify()
}

// next returns the first pieces.
func (f *feed) next() Reading {
	r := Reading{Position: f.base}
	for _, p := range f.pieces {
		data := p.Data[:min(len(p.Data), int(f.base+mostRead-r.Position))]
		if len(data) == 0 || len(r.Pieces) == mostPieces {
			break
		}
		r.Pieces = append(r.Pieces, Piece{p.Channel, data})
		r.Position += int64(len(data))
	}
	return r
}

// add adds a piece, merging it with the last one if that is small and of the same channel, because many small pieces
// would use up feedPieces. It copies data, which the caller reuses.
func (f *feed) add(channel Channel, data []byte, next int64) {
	f.end += int64(len(data))
	if n := len(f.pieces); n > 0 && f.pieces[n-1].Channel == channel && len(f.pieces[n-1].Data)+len(data) <= 64<<10 {
		last := &f.pieces[n-1]
		last.Data, last.next = append(last.Data, data...), next
		return
	}
	f.pieces = append(f.pieces, fedPiece{Piece{channel, bytes.Clone(data)}, next})
}

// wait releases f.mu and waits for a change until ctx ends, which is an error. If the reader is gone, unread output is
// dropped, because the command would otherwise wait forever.
func (f *feed) wait(ctx context.Context) error {
	limit := absentAfter
	if f.hurry || f.closed {
		limit = drainWithin
	}
	left := f.presence.absentIn(limit)
	if f.hurry {
		left = min(left, time.Until(f.moved.Add(drainWithin)))
	}
	if left <= 0 {
		f.lose()
		return nil
	}
	return f.sleep(ctx, left)
}

// lose drops unread output.
func (f *feed) lose() {
	f.lost = true
	if n := len(f.pieces); n > 0 {
		f.acked = max(f.acked, f.pieces[n-1].next)
	}
	f.pieces, f.base = nil, max(f.base, f.end)
	f.notify()
}

// over reports that this server no longer works on the command. left says whether another one continues it.
func (f *feed) over(left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.left = true, left
	f.notify()
}

// printed returns how many bytes were written.
func (f *feed) printed() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end
}

// released returns the position before which the record is no longer needed, and a channel that is closed when the
// position may change.
func (f *feed) released() (int64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acked, f.changed
}

// heldBack lists the writes that are partly held back, because they may contain a part of a secret.
type heldBack struct {
	mu     sync.Mutex
	writes [2][]heldWrite
	last   int64 // the position in the record after the last write
}

// heldWrite is a write that is partly held back: left bytes are not passed on yet. In the record it lies between after and next.
type heldWrite struct {
	ctx         context.Context
	left        int
	after, next int64
}

// add adds a write.
func (h *heldBack) add(ctx context.Context, channel Channel, n int, next int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes[channel] = append(h.writes[channel], heldWrite{ctx, n, h.last, next})
	h.last = max(h.last, next)
}

// passed reports that n bytes of a channel are passed on. It returns the position before which the record is not needed once
// they are read, 0 if that is not known, and the context of their write.
func (h *heldBack) passed(channel Channel, n int) (next int64, ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	writes := h.writes[channel]
	for n > 0 && len(writes) > 0 {
		first := &writes[0]
		ctx = first.ctx
		taken := min(n, first.left)
		n, first.left = n-taken, first.left-taken
		if first.left == 0 {
			next, writes = first.next, writes[1:]
		}
	}
	h.writes[channel] = writes
	if other := h.writes[1-channel]; len(other) > 0 {
		next = min(next, other[0].after)
	}
	return next, ctx
}
