package remote

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"sync"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// Input opens the standard input of a command.
func (d *Driver) Input(ctx context.Context, ref, id string) (io.WriteCloser, error) {
	d.mu.Lock()
	ours := d.inputs[launchKey{ref, id}]
	d.mu.Unlock()
	in := &input{d: d, ref: ref, id: id}
	if err := checkLaunch(id); err != nil {
		return nil, err
	}
	if !ours { // then only a terminal can be opened
		in.writer = strings.ToLower(rand.Text())
	}
	// Sending an empty piece finds out whether it reads input.
	return in, in.send(ctx, nil, false)
}

// input is the standard input of a launched command.
type input struct {
	d       *Driver
	ref, id string
	// writer identifies this writer of a terminal; empty for a command without one.
	writer string

	mu sync.Mutex
	at int64
}

// Write waits until the command has taken everything.
func (i *input) Write(p []byte) (n int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(p) > 0 {
		piece := p[:min(len(p), MaxInput)]
		before := i.at
		err := i.send(i.d.closed, piece, false)
		n += int(i.at - before)
		p = p[i.at-before:]
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close ends the input. A terminal stays open.
func (i *input) Close() error {
	if i.writer != "" {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	ctx, cancel := context.WithTimeout(i.d.closed, MaxRun)
	defer cancel()
	err := i.send(ctx, nil, true)
	i.d.dropInput(i.ref, i.id)
	if fault.CodeOf(err) == fault.Precondition {
		return nil // the command has ended
	}
	return err
}

// send sends a piece and advances the position by what was accepted.
func (i *input) send(ctx context.Context, piece []byte, last bool) error {
	r := protocol.Request{Op: protocol.Input, ID: i.id, Writer: i.writer, Position: i.at, Data: piece, Last: last, Wait: longestWait}
	reply, err := i.d.call(ctx, i.ref, r)
	if err != nil {
		return err
	}
	i.at = min(max(i.at, reply.Accepted), i.at+int64(len(piece))) // do not trust the box's number
	if reply.Reason == "" && i.writer != "" && !reply.Terminal {
		return inputGone() // its keeper is from before there were terminals
	}
	return explain(reply, r)
}
