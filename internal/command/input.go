package command

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Keys is the content of a call of [Commands.Write].
type Keys struct {
	// Position is the offset of Data in the input. Data must not change later. End reports that nothing follows.
	Position int64
	Data     []byte `json:",omitempty"`
	End      bool   `json:",omitempty"`
	// Size is the size of the terminal from now on; nil if it has not changed.
	Size *sandbox.TerminalSize `json:",omitempty"`
	// Join asks for the current position of a terminal's input, instead of writing at one.
	Join bool `json:",omitempty"`
	// Again reports that the call repeats one whose answer did not arrive.
	Again bool `json:",omitempty"`
}

// Writing is the result of [Commands.Write].
type Writing struct {
	// Position is the position up to which the input was accepted.
	Position int64
	// Closed reports that the command reads no more input.
	Closed bool
}

// inputSize limits the input that waits for the command in this server's memory, in bytes, besides that of one call.
const inputSize = 512 << 10

// shortInput is the length below which pieces of input are joined.
const shortInput = 4 << 10

var (
	// errInputCut is the error for input that ended early. It is not [io.EOF], because the command must not mistake a part
	// of the input for all of it.
	errInputCut = errors.New("the command's input was interrupted")
	// errEndNotAccepted is the error for the end of an input while no server accepts it. Without this error, a writer that
	// has nothing else to send would think that the end was accepted.
	errEndNotAccepted = fault.New(fault.Unavailable, "the command has not begun, so the end of its input was not accepted", "try again")
)

// input is the input of a command.
type input struct {
	condition
	pending  [][]byte // accepted but not read, as the calls brought it, because a copy of large input costs more than all else
	waiting  int      // the bytes of pending
	taken    int64    // the position up to which input was accepted
	given    int64    // the position up to which it was read
	begun    bool     // a command reads it; before that nothing is accepted, because another server may run the command
	ended    bool     // everything was accepted
	closed   bool     // the command reads no more
	left     bool     // this server no longer works on the command
	presence presence

	// terminal means that it is the keyboard of a terminal, which loses keys if its server is killed. kept means that it
	// waits indefinitely for a writer. unknown means that this server does not know up to which position an earlier one
	// accepted input.
	terminal, kept, unknown bool
}

func newInput() *input {
	return &input{condition: newCondition(), presence: presence{last: time.Now()}}
}

// write accepts as much input as there is space for. It skips input that was accepted before, because a writer repeats a
// call whose reply it did not get. It waits for space until the deadline. Without data it only records the call.
func (i *input) write(ctx context.Context, k Keys, deadline time.Time) (Writing, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.presence.begin()
	defer i.presence.end()
	if i.terminal {
		k = i.typed(k)
	}
	if k.Position > i.taken {
		return Writing{}, fault.Newf(fault.OutOfRange, "run the command again", "the command's input was accepted only up to byte %d", i.taken)
	}
	data := k.Data[min(i.taken-k.Position, int64(len(k.Data))):]
	for {
		late := i.left || time.Now().After(deadline)
		switch {
		case i.closed || i.ended:
			return Writing{Position: i.taken, Closed: i.closed}, nil
		case late && k.End && len(data) == 0:
			return Writing{}, errEndNotAccepted
		case late || len(data) == 0 && !k.End:
			return Writing{Position: i.taken}, nil
		case i.begun && (i.waiting < inputSize || len(data) == 0):
			i.add(data)
			i.ended = k.End
			i.notify()
			return Writing{Position: i.taken}, nil
		}
		if err := i.sleep(ctx, time.Until(deadline)); err != nil {
			return Writing{}, fault.From(err)
		}
	}
}

// add accepts input. Short pieces are joined, because many would take more memory than their bytes. Callers hold i.mu.
func (i *input) add(data []byte) {
	i.taken, i.waiting = i.taken+int64(len(data)), i.waiting+len(data)
	if last := len(i.pending) - 1; last >= 0 && len(data) < shortInput && len(i.pending[last]) < shortInput {
		i.pending[last] = append(i.pending[last], data...)
	} else if len(data) > 0 {
		i.pending = append(i.pending, data)
	}
}

// typed returns keys with their position as this server counts it. Callers hold i.mu.
func (i *input) typed(k Keys) Keys {
	k.End = false // a terminal has no end
	switch {
	case k.Join:
		k.Position, i.unknown = i.taken, false
	case i.unknown:
		// The earlier server may have passed on the data of a repeated call.
		i.unknown, i.taken = false, k.Position
		if k.Again {
			i.taken += int64(len(k.Data))
		}
	}
	return k
}

// reader returns a reader of the input that waits for more, until ctx ends. It fails with errInputCut if the writer is
// gone, with the cause of the end of ctx, and with [io.ErrClosedPipe] after close.
func (i *input) reader(ctx context.Context) io.Reader {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.begun = true
	i.notify()
	return inputReader{i, ctx}
}

type inputReader struct {
	*input
	ctx context.Context
}

func (r inputReader) Read(p []byte) (int, error) {
	piece, err := r.next(len(p))
	return copy(p, piece), err
}

// WriteTo writes pieces as they came, so that a large input is not copied.
func (r inputReader) WriteTo(w io.Writer) (n int64, err error) {
	for {
		piece, err := r.next(math.MaxInt)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		written, err := w.Write(piece)
		if n += int64(written); err != nil {
			return n, err
		}
	}
}

// next waits for input and takes the first of it, at most so many bytes.
func (r inputReader) next(most int) ([]byte, error) {
	i := r.input
	i.mu.Lock()
	defer i.mu.Unlock()
	for {
		left := i.presence.absentIn(absentAfter)
		if i.kept {
			left = absentAfter
		}
		switch {
		case r.ctx.Err() != nil: // even if there is input, because it may be for another reader
			return nil, context.Cause(r.ctx)
		case i.closed || i.left:
			return nil, io.ErrClosedPipe
		case len(i.pending) > 0:
			return i.give(most), nil
		case i.ended:
			return nil, io.EOF
		case left <= 0:
			return nil, errInputCut
		}
		if err := i.sleep(r.ctx, left); err != nil {
			return nil, err
		}
	}
}

// give takes the first of the pending input, at most so many bytes.
func (i *input) give(most int) []byte {
	piece := i.pending[0]
	if len(piece) > most {
		piece, i.pending[0] = piece[:most], piece[most:]
	} else {
		i.pending = i.pending[1:]
	}
	i.given, i.waiting = i.given+int64(len(piece)), i.waiting-len(piece)
	i.notify()
	return piece
}

// untouched reports whether nobody has read from the input, so that another command can still get all of it.
func (i *input) untouched() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.given == 0
}

// close reports that the command reads no more.
func (i *input) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed, i.pending, i.waiting = true, nil, 0
	i.notify()
}

// over reports that this server no longer works on the command. left says whether another one continues it.
func (i *input) over(left bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.left = true; !left {
		i.closed = true
	}
	i.notify()
}
