package dispatch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// This file connects a command with the program that requested it. The log is not enough for a program: an entry holds
// only the beginning and the end of an output, and live output skips what comes too fast. An attached command
// ([entry.Command].Separate, [entry.Command].Input) has a reader, which gets every byte of both output streams, and a
// writer of its input. Both call repeatedly with a position, so a call that is repeated, after a broken connection or
// on the next server, loses and duplicates nothing.
//
// By asking for a position the reader confirms that it has everything before it. What the reader does not have yet is
// in a feed, as far as memory allows, and beyond that in the command's record. If the record is full too, the command
// waits, as on a pipe.

const (
	// feedSize is how many bytes of output wait for the reader in this server's memory. Further bytes wait in the
	// sandbox.
	feedSize = 4 << 20
	// feedPieces limits the pieces that wait, because a piece takes more memory than its bytes, and mostPieces those of
	// one answer.
	feedPieces, mostPieces = 16 << 10, 4096
	// mostRead limits the bytes of one answer.
	mostRead = 1 << 20
	// inputSize is how many bytes of input wait for the command in this server's memory.
	inputSize = 256 << 10
	// attachedWait is how long a call waits for output or for room. It is less than the time-outs of common proxies.
	attachedWait = 15 * time.Second
	// absentAfter is the time without a call after which a reader or writer counts as gone. A broken connection is
	// replaced well within it.
	absentAfter = time.Minute
	// drainWithin is how long the end of a command waits for a reader that does not call.
	drainWithin = 15 * time.Second
	// lookAgain is how often a call looks for a command that no server has started yet.
	lookAgain = time.Second
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

// ReadIntent says what a call of [Dispatcher.ReadOutput] is for.
type ReadIntent int

// A reader reads on, reports that it will do so later, or leaves.
const (
	ReadOn ReadIntent = iota
	Stay
	Leave
)

// Reading is the result of [Dispatcher.ReadOutput].
type Reading struct {
	Pieces []Piece
	// Position is the position after the pieces, from which to read next.
	Position int64
	// Ended reports that the command will write nothing more and that everything was read.
	Ended bool
}

// Writing is the result of [Dispatcher.WriteInput].
type Writing struct {
	// Position is the position up to which the input was accepted.
	Position int64
	// Closed reports that the command reads no more input.
	Closed bool
}

// errOutputLost is the error for output that is no longer available.
var errOutputLost = fault.New(fault.OutOfRange, "a part of the command's output is no longer available, because nobody read it",
	"see the command's result for the output that the log keeps")

// attachments holds the attached commands that this server works on.
type attachments struct {
	mu      sync.Mutex
	there   map[attachmentKey]*attachment
	changed chan struct{} // closed when an attachment is added
}

type attachmentKey struct{ house, thread, command string }

// attachment connects one command. A field is nil if the command does not have it.
type attachment struct {
	feed  *feed
	input *input
}

// add adds an attachment until remove is called. The key must be unused.
func (a *attachments) add(key attachmentKey, to *attachment) (remove func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.there == nil {
		a.there = map[attachmentKey]*attachment{}
	}
	a.there[key] = to
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.there, key)
	}
}

// get returns an attachment, or a channel that is closed when one is added.
func (a *attachments) get(key attachmentKey) (*attachment, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.there[key], a.changed
}

// presence tracks whether someone calls. Its owner's lock guards it.
type presence struct {
	calls int // calls in progress
	last  time.Time
}

func (p *presence) begin() { p.calls++ }
func (p *presence) end()   { p.calls--; p.last = time.Now() }

// absentIn returns the time until nobody has called for the limit; zero or less if that has happened.
func (p *presence) absentIn(limit time.Duration) time.Duration {
	if p.calls > 0 {
		return limit
	}
	return time.Until(p.last.Add(limit))
}

// condition is a lock with notification of changes.
type condition struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
}

func newCondition() condition { return condition{changed: make(chan struct{})} }

// notify reports a change. Callers hold mu.
func (c *condition) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// sleep releases mu and waits for a change, at most for the given time. If ctx ends, the error is its cause.
func (c *condition) sleep(ctx context.Context, most time.Duration) error {
	changed := c.changed
	c.mu.Unlock()
	defer c.mu.Lock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// feed is the output of a command that its reader does not have yet.
type feed struct {
	condition
	pieces   []fedPiece // starting at base
	base     int64      // the reader has everything before it
	end      int64      // the end of what was written; less than base while output is written again after a restart
	acked    int64      // the record is not needed before this position in it
	moved    time.Time  // when base moved or hurry was set
	closed   bool       // nothing more will be written
	hurry    bool       // the command was ended, so a reader that stops reading delays nobody
	lost     bool       // unread output was dropped, and later output is dropped too
	left     bool       // another server continues the command
	presence presence
}

type fedPiece struct {
	Piece
	next int64 // the position in the record after it; 0 in the middle of an entry of the record
}

func newFeed() *feed {
	return &feed{condition: newCondition(), presence: presence{last: time.Now()}}
}

// write adds output that ends at position next of the record. If there is no room, it waits for the reader until ctx
// ends, which is an error.
func (f *feed) write(ctx context.Context, channel Channel, data []byte, next int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(data) > 0 {
		room := feedSize - (f.end - f.base)
		switch known := min(f.base-f.end, int64(len(data))); {
		case known > 0: // the reader got it from an earlier server, as its call may have said during the wait
			f.end, data = f.end+known, data[known:]
		case f.lost:
			f.end += int64(len(data))
			f.base, f.acked, data = f.end, next, nil
		case room <= 0 || len(f.pieces) >= feedPieces:
			if err := f.wait(ctx); err != nil {
				return err
			}
		default:
			n := min(int64(len(data)), room)
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

// add adds a piece, merging it with the last one if that is small and of the same channel.
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
// dropped.
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

// gap reports that the next n bytes are unknown. They are lost unless the reader has them.
func (f *feed) gap(n int64) {
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

// close reports that nothing more will be written, and waits until the reader has everything or is gone. The error is
// that ctx has ended.
func (f *feed) close(ctx context.Context) error {
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

// over reports that this server no longer works on the command. left says that another one continues it.
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

// released returns the position before which the record is not needed, and a channel that is closed when it may change.
func (f *feed) released() (int64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acked, f.changed
}

// read returns the output after a position, which confirms that the reader has everything before it. It waits for
// output until the deadline. With Stay or Leave it only records the call.
func (f *feed) read(ctx context.Context, position int64, intent ReadIntent, deadline time.Time) (Reading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.presence.begin()
	defer f.presence.end()
	f.advance(position)
	if intent == Leave {
		f.lose()
		return Reading{Position: position}, nil
	}
	for {
		switch {
		case position < f.base:
			return Reading{}, errOutputLost
		case intent == Stay:
			return Reading{Position: position}, nil
		case f.base < f.end:
			return f.next(), nil
		case f.left:
			return Reading{Position: position}, nil
		case f.closed && position > f.end:
			return Reading{}, errOutputLost
		case f.closed:
			return Reading{Position: position, Ended: true}, nil
		case time.Now().After(deadline):
			return Reading{Position: position}, nil
		}
		if err := f.sleep(ctx, time.Until(deadline)); err != nil {
			return Reading{}, fault.From(err)
		}
	}
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

// errInputCut is the error for input that ended early.
var errInputCut = errors.New("the command's input was interrupted")

// input is the input of a command.
type input struct {
	condition
	pending  []byte // accepted but not read
	taken    int64  // the position up to which input was accepted
	ended    bool   // everything was accepted
	closed   bool   // the command reads no more
	left     bool   // this server no longer works on the command
	presence presence
}

func newInput() *input {
	return &input{condition: newCondition(), presence: presence{last: time.Now()}}
}

// write accepts input that begins at a position, as much as there is room for. It skips what was accepted before. It
// waits for room until the deadline. end reports that nothing follows. Without data it only records the call.
func (i *input) write(ctx context.Context, position int64, data []byte, end bool, deadline time.Time) (Writing, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.presence.begin()
	defer i.presence.end()
	if position > i.taken {
		return Writing{}, fault.Newf(fault.OutOfRange, "run the command again", "the command's input was accepted only up to byte %d", i.taken)
	}
	data = data[min(i.taken-position, int64(len(data))):]
	for {
		room := inputSize - len(i.pending)
		switch {
		case i.closed || i.ended:
			return Writing{Position: i.taken, Closed: i.closed}, nil
		case room > 0 || len(data) == 0:
			n := min(room, len(data))
			i.pending, i.taken = append(i.pending, data[:n]...), i.taken+int64(n)
			i.ended = end && n == len(data)
			i.notify()
			return Writing{Position: i.taken}, nil
		case i.left || time.Now().After(deadline):
			return Writing{Position: i.taken}, nil
		}
		if err := i.sleep(ctx, time.Until(deadline)); err != nil {
			return Writing{}, fault.From(err)
		}
	}
}

// Read reads accepted input and waits for it. It fails with errInputCut if the writer is gone, and with
// [io.ErrClosedPipe] after close.
func (i *input) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for {
		left := i.presence.absentIn(absentAfter)
		switch {
		case i.closed || i.left:
			return 0, io.ErrClosedPipe
		case len(i.pending) > 0:
			n := copy(p, i.pending)
			i.pending = i.pending[n:]
			i.notify()
			return n, nil
		case i.ended:
			return 0, io.EOF
		case left <= 0:
			return 0, errInputCut
		}
		_ = i.sleep(context.Background(), left) // this context never ends
	}
}

// close reports that the command reads no more.
func (i *input) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed, i.pending = true, nil
	i.notify()
}

// over reports that this server no longer works on the command. left says that another one continues it.
func (i *input) over(left bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.left = true; !left {
		i.closed = true
	}
	i.notify()
}

// attach creates a command's attachment for as long as this server works on it.
func (w *commandWorker) attach(args commandArgs, c entry.Command) (to *attachment, detach func(left bool)) {
	to = &attachment{}
	if c.Separate {
		to.feed = newFeed()
	}
	if c.Input {
		to.input = newInput()
	}
	if to.feed == nil && to.input == nil {
		return to, func(bool) {}
	}
	remove := w.attached.add(attachmentKey{args.House, args.Thread, args.Command}, to)
	return to, func(left bool) {
		remove()
		if to.feed != nil {
			to.feed.over(left)
		}
		if to.input != nil {
			to.input.over(left)
		}
	}
}

// feedWriter writes one output of a command to its feed.
type feedWriter struct {
	ctx     context.Context
	feed    *feed
	channel Channel
}

func (w feedWriter) Write(p []byte) (int, error) {
	if err := w.feed.write(w.ctx, w.channel, p, 0); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ReadOutput returns the output of a command with [entry.Command].Separate after a position, up to a limit. The first
// position is 0. It waits a while for output, and then returns an empty Reading. The position confirms that the caller
// has everything before it, which is then no longer kept. With Stay it only reports that the caller will continue to
// read, with Leave that it will not.
//
// A reader that leaves, or has not called for a minute, counts as gone: the command continues, and its output is not
// kept for the reader. Reading what is no longer kept is a [fault.OutOfRange].
func (d *Dispatcher) ReadOutput(ctx context.Context, scope db.Scope, threadID, commandID string, position int64, intent ReadIntent) (r Reading, err error) {
	err = d.attachedTo(ctx, scope, threadID, commandID, func(to *attachment, deadline time.Time) error {
		if to.feed == nil {
			return errNotSeparate
		}
		r, err = to.feed.read(ctx, position, intent, deadline)
		return err
	}, func(c entry.Command, ended *entry.CommandResult) error {
		switch r.Position = position; {
		case intent != ReadOn:
			return nil
		case !c.Separate:
			return errNotSeparate
		case ended == nil:
			return nil
		case position != ended.RawBytes:
			return errOutputLost
		}
		r.Ended = true
		return nil
	})
	return r, err
}

// WriteInput sends input to a command with [entry.Command].Input, from a position on. The first position is 0. It
// accepts as much as there is room for, and waits a while for room. end reports that nothing follows. Without data it
// only reports that the caller will continue to write.
//
// A writer that has not called for a minute before the end counts as gone: the command is then ended, because the end
// of its input would tell it that the input was complete.
func (d *Dispatcher) WriteInput(ctx context.Context, scope db.Scope, threadID, commandID string, position int64, data []byte, end bool) (w Writing, err error) {
	err = d.attachedTo(ctx, scope, threadID, commandID, func(to *attachment, deadline time.Time) error {
		if to.input == nil {
			return errNoInput
		}
		w, err = to.input.write(ctx, position, data, end, deadline)
		return err
	}, func(c entry.Command, ended *entry.CommandResult) error {
		if !c.Input {
			return errNoInput
		}
		if end && ended == nil {
			return fault.New(fault.Unavailable, "the command has not begun, so the end of its input was not accepted", "try again")
		}
		w = Writing{Position: position, Closed: ended != nil}
		return nil
	})
	return w, err
}

var (
	errNotSeparate = fault.New(fault.Precondition, "the output of this command cannot be read while it runs", "run it with separate outputs, or tail the thread")
	errNoInput     = fault.New(fault.Precondition, "this command has no input", "run it with an input")
)

// attachedTo calls one of two functions: here with the attachment of a command that this server works on; otherwise,
// after waiting for one for a while, the other with the command and its result, which is nil if it has not ended.
func (d *Dispatcher) attachedTo(ctx context.Context, scope db.Scope, threadID, commandID string,
	here func(to *attachment, deadline time.Time) error, otherwise func(entry.Command, *entry.CommandResult) error) error {
	key := attachmentKey{scope.House, threadID, commandID}
	for deadline := time.Now().Add(attachedWait); ; {
		to, added := d.attached.get(key)
		if to != nil {
			return here(to, deadline)
		}
		c, ended, elsewhere, err := d.lookFor(ctx, scope, threadID, commandID)
		switch {
		case err != nil:
			return err
		case elsewhere:
			return fault.New(fault.Precondition, "this command runs on another server, which alone passes on its input and output",
				"call that server, or read the command's result in the thread")
		case ended != nil || !c.Separate && !c.Input || time.Now().After(deadline):
			return otherwise(c, ended)
		}
		timer := time.NewTimer(lookAgain)
		select {
		case <-added:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fault.From(ctx.Err())
		}
		timer.Stop()
	}
}

// lookFor looks up a command that this server does not work on. ended is nil if it has not ended. elsewhere reports
// that another server works on it.
func (d *Dispatcher) lookFor(ctx context.Context, scope db.Scope, threadID, commandID string) (c entry.Command, ended *entry.CommandResult, elsewhere bool, err error) {
	var log stream.Ref
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.threads.GetTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		log = th.Stream()
		jobs, err := d.queue.JobListTx(ctx, tx, river.NewJobListParams().Kinds(commandArgs{}.Kind()).States(rivertype.JobStateRunning).
			Where("args->>'stream' = @stream and args->>'command' = @command", river.NamedArgs{"stream": th.StreamID, "command": commandID}).First(1))
		if err != nil || len(jobs.Jobs) == 0 || len(jobs.Jobs[0].AttemptedBy) == 0 {
			return err
		}
		by := jobs.Jobs[0].AttemptedBy[len(jobs.Jobs[0].AttemptedBy)-1]
		if by == d.liveness.name() {
			return nil
		}
		// If that server was killed, this one may continue the command soon.
		gone, err := isGone(ctx, tx, orphan{Server: by}.key())
		elsewhere = !gone
		return err
	})
	if err != nil {
		return c, nil, false, err
	}
	said, err := d.log.Get(ctx, log, commandID)
	if err != nil {
		return c, nil, false, err
	}
	c, ok := entry.As[entry.Command](said)
	if !ok {
		return c, nil, false, fault.New(fault.NotFound, "this entry is not a command", "give the id of a command entry")
	}
	said, err = d.log.Get(ctx, log, entry.ResultID(commandID))
	if fault.CodeOf(err) == fault.NotFound {
		return c, nil, elsewhere, nil
	}
	if err != nil {
		return c, nil, false, err
	}
	r, _ := entry.As[entry.CommandResult](said)
	return c, &r, false, nil
}
