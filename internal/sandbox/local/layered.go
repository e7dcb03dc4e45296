//go:build linux

package local

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/wait"
)

// detachTime limits how long KeepLayer waits for the disk of a stopped box to become free.
const detachTime = 10 * time.Second

// KeepLayer keeps the disk of a box as a layer.
func (d *Driver) KeepLayer(ctx context.Context, ref, key string, note []byte) error {
	b, err := d.find(ref)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.layerable(); err != nil {
		return err
	}
	// Check this before the stop, because starting the box again also needs space.
	size, err := b.written()
	if err == nil {
		err = d.layers.makeSpace(b.Labels.House, size)
	}
	if err != nil {
		return readable(ctx, err, "the prepared files could not be kept")
	}
	b.stop(ctx)
	// The kernel detaches the disk when its last user is gone, which takes a busy machine a moment.
	for until := time.Now().Add(detachTime); loopOf(b.diskImage()) != "" && time.Now().Before(until) && wait.For(ctx, 20*time.Millisecond); {
	}
	if loopOf(b.diskImage()) != "" {
		return fault.New(fault.Unavailable, "something still uses the sandbox's disk", "try again in a moment")
	}
	l := layer{Layer: sandbox.Layer{Labels: b.Labels, Note: note, MadeAt: time.Now().UTC()}, Block: b.diskOwner()}
	l.Labels.Thread = ""
	if err := d.layers.add(ctx, layerName(b.record, key), l, b.diskImage()); err != nil {
		return readable(ctx, err, "the prepared files could not be kept")
	}
	return nil
}

// written returns approximately the space that the box's disk would use on the machine's disk if the box did not run.
// Callers hold b.mu.
func (b *box) written() (int64, error) {
	size, err := allocated(b.diskImage())
	if err != nil || b.running == nil {
		return size, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(b.running.files, &st); err != nil {
		return size, err
	}
	return max(1, size-int64(st.Bfree)*st.Bsize), nil
}

// TakeLayer replaces the disk of a box with a copy of a layer's disk.
func (d *Driver) TakeLayer(ctx context.Context, ref, key string) (sandbox.Layer, error) {
	b, err := d.find(ref)
	if err != nil {
		return sandbox.Layer{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.layerable(); err != nil {
		return sandbox.Layer{}, err
	}
	if b.Owner != 0 {
		return sandbox.Layer{}, fault.New(fault.Precondition, "the sandbox already began with a cached environment", "use another sandbox")
	}
	name := layerName(b.record, key)
	l, disk, err := d.layers.open(name)
	if err != nil {
		return sandbox.Layer{}, readable(ctx, err, "the cached environment cannot be read")
	}
	defer disk.Close()
	if err := b.take(ctx, l, disk); err != nil {
		if code := fault.CodeOf(err); code != fault.Exhausted && ctx.Err() == nil && !noSpace(err) {
			d.cfg.Log.Warn("a cached environment cannot be used, and is removed", "house", l.Labels.House, "environment", l.Labels.Environment, "error", fault.From(err).Detail())
			err = errors.Join(err, d.layers.drop(name))
		}
		return sandbox.Layer{}, readable(ctx, err, "the cached environment cannot be used")
	}
	return l.Layer, nil
}

// layerable returns an error if the box can neither become a layer nor start from one. Callers hold b.mu.
func (b *box) layerable() error {
	switch {
	case b.gone:
		return notFound(b.ID)
	case b.d.isClosed():
		return closing()
	case !b.d.caps.Layers || !b.Disk || b.quarantined:
		return fault.New(fault.Precondition, "environments are not cached for this sandbox", "build it from the beginning")
	case b.running != nil && b.running.busy():
		return fault.New(fault.Precondition, "commands run in the sandbox", "wait until they have ended")
	}
	return nil
}

// take replaces the box's disk with a copy of another one, and starts the box to verify that it works. If this fails,
// the box gets its own disk back. Callers hold b.mu.
func (b *box) take(ctx context.Context, l layer, disk *os.File) (err error) {
	// This is not part of makeRoom, because stopping the boxes of others makes no room for this house. It may remove the
	// layer itself, whose disk stays open.
	release, err := b.d.claim(b, l.Size)
	if err != nil {
		return err
	}
	defer release() // when the copy takes up the space, or is gone
	if err := b.d.makeRoom(ctx, func() error { return b.d.room(l.Size) }); err != nil {
		return err
	}
	b.stop(ctx)
	own := b.diskImage()
	b.Owner = l.Block
	defer func() {
		if err != nil {
			b.stop(ctx)
			os.Remove(b.diskImage())
			b.Owner = 0
		}
	}()
	if err := copyOpen(ctx, b.diskImage(), disk, false, b.d.room); err != nil {
		return err
	}
	if err := b.start(ctx, false); err != nil {
		return err
	}
	if err := b.save(); err != nil { // from then on the copy is its disk
		return err
	}
	_ = os.Remove(own) // if this fails, it is deleted with the box
	return nil
}

// Layers returns the layers of this machine.
func (d *Driver) Layers(_ context.Context, want sandbox.Labels) (found []sandbox.Layer, err error) {
	d.layers.mu.Lock()
	defer d.layers.mu.Unlock()
	list, err := d.layers.list()
	for _, l := range list {
		if l.Labels.Match(want) {
			l.Old = d.layers.old(l.layer)
			found = append(found, l.Layer)
		}
	}
	return found, err
}

// DropLayer removes a layer.
func (d *Driver) DropLayer(_ context.Context, id string) error {
	if len(id) != 2*sha256.Size || strings.Trim(id, "0123456789abcdef") != "" {
		return fault.Newf(fault.Invalid, "use one that Layers returned", "%q is not the id of a layer", id)
	}
	return d.layers.drop(id)
}
