package command

import (
	"context"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

var (
	errNotSeparate = fault.New(fault.Precondition, "the output of this command cannot be read while it runs", "run it with separate outputs, or tail the thread")
	errNoInput     = fault.New(fault.Precondition, "this command has no input", "run it with an input")
)

// call is a call of a reader or a writer. A server that does not work on the command sends the same fields to the server that
// does.
type call struct {
	Thread, Command string
	// Keys are a writer's, except for the position.
	Keys
	// Writes means that a writer calls.
	Writes bool `json:",omitempty"`
	Reader      // a reader's
	// Peeks means that the caller neither reads nor writes: it asks for the output so far, from a position on.
	Peeks bool `json:",omitempty"`
	// Wait is how long the call may wait for output or for space.
	Wait time.Duration
}

// reply is the result of a call: a Reading, a Writing or a Seen.
type reply struct {
	Reading Reading `json:",omitzero"`
	Writing Writing `json:",omitzero"`
	Seen    Seen    `json:",omitzero"`
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

// unattached answers a call for a command that no server works on. ended is its result; nil if it has not begun. It accepts
// no input, because no server would keep it.
func (c call) unattached(said entry.Command, ended *entry.CommandResult) (r reply, err error) {
	if c.Peeks {
		if ended != nil {
			r.Seen = SeenIn(*ended, c.Position)
		}
		return r, nil
	}
	if c.Writes {
		return c.unattachedInput(said, ended)
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

// unattachedInput answers a call with input.
func (c call) unattachedInput(said entry.Command, ended *entry.CommandResult) (r reply, err error) {
	if !said.Written() {
		return r, errNoInput
	}
	if c.End && ended == nil {
		return r, errEndNotAccepted
	}
	r.Writing = Writing{Position: c.Position, Closed: ended != nil}
	return r, nil
}
