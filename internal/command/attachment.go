package command

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
)

// This file connects a command with the program that requested it. The log is not enough for a program: an entry holds
// only the beginning and the end of an output, and live output skips what comes too fast. An attached command
// ([entry.Command].Separate, [entry.Command].Input) has a reader, which gets every byte of both output streams, and a
// writer of its input. Both call repeatedly with a position, so a call that is repeated, after a broken connection or
// on the next server, loses and duplicates nothing.
//
// The reader's side is in feed.go, the writer's in input.go.
//
// By asking for a position the reader confirms that it has everything before it. What the reader does not have yet is
// in a feed, as far as memory allows, and beyond that in the command's record. If the record is full too, the command
// waits, as on a pipe.

const (
	// attachedWait is how long a call waits for output or for room. Common proxies would cut a longer call off.
	attachedWait = 15 * time.Second
	// absentAfter is the time without a call after which a reader or writer counts as gone. It is long, because a client
	// whose connection broke needs time to connect again.
	absentAfter = time.Minute
	// lookAgain is how often a call checks for a command that no server has started yet. It checks repeatedly, because
	// another server that starts the command does not notify this one.
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

// ReadIntent says what a call of [Commands.Read] is for.
type ReadIntent int

// A reader reads on, reports that it will do so later, leaves, or begins to read a terminal where its output is now.
const (
	ReadOn ReadIntent = iota
	Stay
	Leave
	Join
)

// Reader says who calls [Commands.Read], and for what.
type Reader struct {
	Intent ReadIntent `json:",omitempty"`
	// ID is what a reader that joined has chosen, so that it notices when another one does. Otherwise it is empty.
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

// Writing is the result of [Commands.Write].
type Writing struct {
	// Position is the position up to which the input was accepted.
	Position int64
	// Closed reports that the command reads no more input.
	Closed bool
}

// Keys is what a call of [Commands.Write] brings.
type Keys struct {
	// Position is where in the input Data begins. End reports that nothing follows.
	Position int64
	Data     []byte `json:",omitempty"`
	End      bool   `json:",omitempty"`
	// Size is the size of the terminal from now on; nil if it has not changed.
	Size *sandbox.TerminalSize `json:",omitempty"`
	// Join asks for the position at which the input of a terminal stands, instead of writing at one.
	Join bool `json:",omitempty"`
	// Again reports that the call repeats one whose answer did not arrive.
	Again bool `json:",omitempty"`
}

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
	// out is what the command has printed.
	out *output
	// screen is the size of its terminal.
	screen *screen
}

// add adds an attachment until remove is called. The key must be unused, because remove removes whatever has it.
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

// condition is a lock with notification of changes. It is not a [sync.Cond], because a wait must also end after a time or
// with a context.
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

// attach creates the command's attachment for as long as this server works on it.
func (w *work) attach() (detach func(left bool)) {
	args := w.job.Args
	to := &attachment{out: w.out}
	if w.command.Read() {
		to.feed = newFeed()
	}
	if w.command.Written() {
		to.input = newInput()
	}
	if t := w.command.Terminal; t != nil {
		to.screen = &screen{size: sandbox.TerminalSize{Rows: t.Rows, Columns: t.Columns}}
		to.input.terminal, to.input.kept = true, t.Keep
		to.input.unknown = w.note.Begun != nil
	}
	remove := w.attached.add(attachmentKey{args.House, args.Thread, args.Command}, to)
	w.to, w.out.to = to, to
	return func(left bool) {
		remove()
		if to.feed != nil {
			to.feed.over(left)
		}
		if to.input != nil {
			to.input.over(left)
		}
	}
}

// Read returns the output of a command with [entry.Command].Separate after a position, up to a limit. The first
// position is 0. It waits a while for output, and then returns an empty Reading. The position confirms that the caller
// has everything before it, which is then no longer kept. With Stay it only reports that the caller will continue to
// read, with Leave that it will not. Any server may be called, whichever runs the command.
//
// A reader that leaves, or has not called for a minute, counts as gone: the command continues, and its output is not
// kept for the reader. Reading what is no longer kept is a [fault.OutOfRange].
func (d *Commands) Read(ctx context.Context, scope db.Scope, threadID, commandID string, position int64, as Reader) (Reading, error) {
	r, err := d.serveCall(ctx, scope, call{Thread: threadID, Command: commandID, Keys: Keys{Position: position}, Reader: as, Wait: attachedWait}, d.askServer)
	return r.Reading, err
}

// Write sends input to a command with [entry.Command].Input, from a position on. The first position is 0. It
// accepts as much as there is room for, and waits a while for room. Without data it only reports that the caller will
// continue to write. Any server may be called, whichever runs the command.
//
// A writer that has not called for a minute before the end counts as gone: the command is then ended, because the end
// of its input would tell it that the input was complete.
//
// The input of an [entry.Command].Terminal is its keyboard. Its writer may change: the next one joins where the input
// stands. What was typed while the server of the command was killed may be lost, and is never typed twice.
func (d *Commands) Write(ctx context.Context, scope db.Scope, threadID, commandID string, keys Keys) (Writing, error) {
	r, err := d.serveCall(ctx, scope, call{Thread: threadID, Command: commandID, Keys: keys, Writes: true, Wait: attachedWait}, d.askServer)
	return r.Writing, err
}

// Peek returns the output of a command so far, from a position on; if that is negative, the end of it. If the server that
// runs the command has just died, it returns nothing; the next one has the output again.
func (d *Commands) Peek(ctx context.Context, scope db.Scope, threadID, commandID string, from int64) (Seen, error) {
	r, err := d.serveCall(ctx, scope, call{Thread: threadID, Command: commandID, Peeks: true, Keys: Keys{Position: from}}, d.askServer)
	if errors.Is(err, errNoReply) {
		return Seen{}, nil
	}
	return r.Seen, err
}

// SeenIn returns the part of the output that a result holds from a position on.
func SeenIn(r entry.CommandResult, from int64) Seen {
	return partOf([]byte(r.Output), []byte(r.OutputTail), max(r.OutputBytes, int64(len(r.Output)+len(r.OutputTail))), from)
}

var (
	errNotSeparate = fault.New(fault.Precondition, "the output of this command cannot be read while it runs", "run it with separate outputs, or tail the thread")
	errNoInput     = fault.New(fault.Precondition, "this command has no input", "run it with an input")
)

// call is one call of a reader or of a writer. Its fields are also the question that one server asks another one.
type call struct {
	Thread, Command string
	// Keys are a writer's, but for the position.
	Keys
	// Writes: it is a writer's.
	Writes bool `json:",omitempty"`
	Reader      // a reader's
	// Peeks: it is neither's, but asks for the output so far, from a position on.
	Peeks bool `json:",omitempty"`
	// Wait is how long it may wait for output or for room.
	Wait time.Duration
}

// reply is the result of a call: a Reading, a Writing or what was seen.
type reply struct {
	Reading Reading `json:",omitzero"`
	Writing Writing `json:",omitzero"`
	Seen    Seen    `json:",omitzero"`
}

// serveCall answers a call if this server works on the command, or none does. If another one does, ask answers it.
func (d *Commands) serveCall(ctx context.Context, scope db.Scope, c call, ask func(_ context.Context, _ db.Scope, server jobs.Server, _ call) (reply, error)) (reply, error) {
	key := attachmentKey{scope.House, c.Thread, c.Command}
	for deadline := time.Now().Add(c.Wait); ; {
		to, added := d.attached.get(key)
		if to != nil {
			return c.attached(ctx, to, deadline)
		}
		said, ended, elsewhere, err := d.lookFor(ctx, scope, c.Thread, c.Command)
		switch {
		case err != nil:
			return reply{}, err
		case elsewhere != 0:
			c.Wait = max(time.Until(deadline), 0)
			return ask(ctx, scope, elsewhere, c)
		case c.Peeks || ended != nil || !said.Read() && !said.Written() || time.Now().After(deadline):
			return c.unattached(said, ended)
		}
		timer := time.NewTimer(lookAgain)
		select {
		case <-added:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return reply{}, fault.From(ctx.Err())
		}
		timer.Stop()
	}
}

// attached answers a call with the attachment of a command that this server works on.
func (c call) attached(ctx context.Context, to *attachment, deadline time.Time) (r reply, err error) {
	switch {
	case c.Peeks:
		r.Seen = to.out.seen(c.Position)
	case c.Writes && to.input == nil:
		return r, errNoInput
	case c.Writes:
		if c.Size != nil && to.screen != nil {
			to.screen.resize(ctx, *c.Size)
		}
		r.Writing, err = to.input.write(ctx, c.Keys, deadline)
	case to.feed == nil:
		return r, errNotSeparate
	default:
		r.Reading, err = to.feed.read(ctx, c.Reader, c.Position, deadline)
	}
	return r, err
}

// unattached answers a call for a command that no server works on. ended is its result; nil if it has not begun. It
// accepts no input, because there is no server that would keep it.
func (c call) unattached(said entry.Command, ended *entry.CommandResult) (r reply, err error) {
	if c.Peeks {
		if ended != nil {
			r.Seen = SeenIn(*ended, c.Position)
		}
		return r, nil
	}
	if c.Writes {
		if !said.Written() {
			return r, errNoInput
		}
		if c.End && ended == nil {
			return r, errEndNotAccepted
		}
		r.Writing = Writing{Position: c.Position, Closed: ended != nil}
		return r, nil
	}
	r.Reading.Position = c.Position
	switch {
	case c.Intent == Stay, c.Intent == Leave:
		return r, nil
	case !said.Read():
		return r, errNotSeparate
	case ended != nil && c.Intent == Join:
		r.Reading.Ended, r.Reading.Position = true, ended.RawBytes
		return r, nil
	case ended == nil:
		return r, nil
	case c.Position != ended.RawBytes:
		return r, errOutputLost
	}
	r.Reading.Ended = true
	return r, nil
}

// lookFor looks up a command that this server does not work on. ended is nil if it has not ended. elsewhere is the
// server that works on it, if another one does.
func (d *Commands) lookFor(ctx context.Context, scope db.Scope, threadID, commandID string) (c entry.Command, ended *entry.CommandResult, elsewhere jobs.Server, err error) {
	var log stream.Ref
	err = d.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.config.Threads.GetTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		log = th.Stream()
		found, err := d.config.Jobs.FindTx(ctx, tx, jobs.Filter{Kind: Kind, Args: map[string]string{"stream": th.StreamID, "command": commandID}, Running: true, Most: 1})
		if err != nil || len(found) == 0 {
			return err
		}
		by, taken := found[0].Server()
		if !taken || by == d.config.Jobs.Server() {
			return nil
		}
		// If that server was killed, this one may continue the command soon. A call to it would only fail.
		gone, err := by.GoneTx(ctx, tx)
		if !gone {
			elsewhere = by
		}
		return err
	})
	if err != nil {
		return c, nil, 0, err
	}
	said, err := d.config.Log.Get(ctx, log, commandID)
	if err != nil {
		return c, nil, 0, err
	}
	c, ok := entry.As[entry.Command](said)
	if !ok {
		return c, nil, 0, fault.New(fault.NotFound, "this entry is not a command", "give the id of a command entry")
	}
	said, err = d.config.Log.Get(ctx, log, entry.ResultID(commandID))
	if fault.CodeOf(err) == fault.NotFound {
		return c, nil, elsewhere, nil
	}
	if err != nil {
		return c, nil, 0, err
	}
	r, _ := entry.As[entry.CommandResult](said)
	return c, &r, 0, nil
}
