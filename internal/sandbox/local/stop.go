//go:build linux

package local

import (
	"context"
	"io"
	"os"
	"time"
)

// stop ends everything that runs in the box and undoes what start did. Callers hold b.mu. It works on a box in any
// state, such as half started or dead, and the next start does not depend on how far it got.
func (b *box) stop(ctx context.Context) {
	if b.running != nil {
		b.running.end()
		b.running = nil
	}
	b.window.watch("")
	b.d.end(ctx, b.d.containers(b.ID))
	if b.Disk && !b.gone {
		_ = releaseHeld(b.diskImage()) // only saves space
	}
	b.d.vacate(b)
}

// release releases a box's container without ending it, if something in it outlives the server. It returns the
// container's id.
func (b *box) release(leave bool) (id string, released bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.running
	if !leave || c == nil || c.ownKernel || !c.alive() || !c.commands.outlive() && len(c.leftovers()) == 0 {
		return "", false
	}
	b.running = nil
	c.keepSecrets()
	c.commands.abandon()
	c.let()
	return c.id, true
}

// end kills process 1 and releases the server's resources of the container.
func (c *container) end() {
	if c.child != nil {
		_ = c.process.Kill() // an error means that it is dead
		select {
		case <-c.done:
		case <-time.After(dying):
		}
	}
	c.let()
}

// let releases the server's resources of the container.
func (c *container) let() {
	if c.lifeline != nil {
		c.lifeline.Close()
	}
	if c.root != nil {
		c.secrets.mu.Lock() // a command that has just ended may be removing its files
		c.root.Close()
		c.secrets.mu.Unlock()
	}
	if c.door != nil {
		c.door.close()
	}
	if c.gate != nil {
		c.gate.Close()
	}
}

// lifeline returns a pipe. Process 1 of a box with its own kernel reads from one end, and the server holds the other.
func lifeline() (stdin *os.File, ours io.Closer, err error) {
	r, w, err := os.Pipe()
	return r, w, err
}
