package command

import (
	"sync"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
)

// This file connects a command with the program that requested it. The log is not enough for a program: an entry holds only
// the beginning and the end of an output, and live output has gaps if the command prints fast. An attached command
// ([entry.Command].Separate, [entry.Command].Input) has a reader, which gets every byte of both output streams, and a writer
// of its input. Every call states a position, so a call that is repeated, after a broken connection or on the next server,
// neither loses nor duplicates anything.
//
// The reader's side is in feed.go, the writer's in input.go.
//
// By asking for a position the reader confirms that it has everything before it. Output that the reader does not have yet is
// kept in a feed, as far as memory allows, and beyond that in the command's record. If the record is full too, the command
// waits, as on a pipe.
//
// A command with a terminal ([entry.Command].Terminal) is attached in the same way, with three differences: the terminal has a
// size (screen.go), the end of a server may lose keys but does not end the command, and a terminal is hung up when nobody is
// connected to it, unless it is kept.

// attachment connects one command. A field is nil if the command does not have it.
type attachment struct {
	feed  *feed
	input *input
	// out is the command's output.
	out *output
	// screen is the size of its terminal.
	screen *screen
}

// newAttachment returns the attachment of a command. continued reports that an earlier server began the command.
func newAttachment(c entry.Command, out *output, continued bool) *attachment {
	a := &attachment{out: out}
	if c.Read() {
		a.feed = newFeed()
	}
	if c.Unlogged {
		out.unlog()
	}
	if c.Written() {
		a.input = newInput()
	}
	if t := c.Terminal; t != nil {
		a.screen = &screen{size: sandbox.TerminalSize{Rows: t.Rows, Columns: t.Columns}}
		a.input.terminal, a.input.kept, a.input.unknown = true, t.Keep, continued
	}
	return a
}

// receives makes the attachment redact the secrets that the command receives. It must be called before the first
// output.
func (a *attachment) receives(r secret.Received) {
	a.out.redact(r.Redactor)
	if a.feed != nil {
		a.feed.redact(r.Redactor)
	}
}

// over reports that this server no longer works on the command. left reports whether another one continues it.
func (a *attachment) over(left bool) {
	if a.feed != nil {
		a.feed.over(left)
	}
	if a.input != nil {
		a.input.over(left)
	}
}

type attachmentKey struct{ house, thread, command string }

// attachments holds the attached commands that this server works on.
type attachments struct {
	mu      sync.Mutex
	there   map[attachmentKey]*attachment
	changed chan struct{} // closed when an attachment is added
}

// add adds an attachment until remove is called. The key must be unused, because remove removes any attachment with it.
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
