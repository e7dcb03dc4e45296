//go:build linux

package local

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Create creates a box. It pulls the image first if it is not unpacked yet. A retry with the same id returns the same
// box instead of a second one.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (string, error) {
	if !validID.MatchString(spec.ID) {
		return "", fault.Newf(fault.Invalid, "use a-z, 0-9 and -, at most 40 characters", "%q is not a sandbox id", spec.ID)
	}
	for {
		b, fresh, err := d.reserve(spec)
		if err != nil {
			return "", err
		}
		if !fresh {
			b.mu.RLock() // wait until the creating call is done
			gone := b.gone
			b.mu.RUnlock()
			if gone {
				continue
			}
			return d.ref(b.ID), nil
		}
		if err = errors.Join(d.houseRoom(spec.Labels.House, 0), d.room(0)); err == nil {
			if err = b.make(ctx, spec.Image); noSpace(err) {
				err = errors.Join(d.room(0), err) // the machine's disk is full, not the box's
			}
		}
		if err != nil {
			err = errors.Join(err, b.discard(ctx))
		}
		b.mu.Unlock()
		if err != nil {
			return "", readable(ctx, err, "the sandbox could not be created")
		}
		return d.ref(b.ID), nil
	}
}

// reserve finds the box with an id, or registers a new one with a block of ids. The new one is locked for writing, so
// that other calls wait until it is complete.
func (d *Driver) reserve(spec sandbox.Spec) (b *box, fresh bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, false, closing()
	}
	if b, ok := d.boxes[spec.ID]; ok {
		return b, false, nil
	}
	b = d.newBox(record{ID: spec.ID, Labels: spec.Labels, Limits: fill(spec.Limits, d.cfg.Limits), Egress: spec.Egress, Created: time.Now().UTC()})
	b.Disk = d.caps.DiskLimit
	if asRoot() {
		block, ok := freeBlock(d.cfg.Dir, func(n uint32) bool { return d.blocks[n] })
		if !ok {
			return nil, false, fault.New(fault.Exhausted, "this machine has no user ids left for another sandbox", "delete sandboxes that are not needed")
		}
		b.Block, d.blocks[block] = block, true
	}
	b.mu.Lock()
	d.boxes[spec.ID] = b
	return b, true, nil
}

// load finds the boxes of earlier servers, and removes those whose creation or deletion was interrupted.
func (d *Driver) load() error {
	dirs, err := os.ReadDir(filepath.Join(d.cfg.Dir, "boxes"))
	if err != nil {
		return err
	}
	for _, entry := range dirs {
		dir := filepath.Join(d.cfg.Dir, "boxes", entry.Name())
		r, err := readRecord(dir)
		if errors.Is(err, os.ErrNotExist) {
			err = d.clearUnfinished(dir)
		} else if err == nil {
			d.register(d.newBox(r))
		}
		if err != nil {
			return err
		}
	}
	return d.loadQuarantined()
}

// clearUnfinished removes a directory without a record if it is marked as unfinished or empty. Any other directory
// without a record is moved to the quarantine, because it may hold somebody's work.
func (d *Driver) clearUnfinished(dir string) error {
	if os.Remove(dir) == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, unfinished)); err == nil {
		err = removeMarked(dir)
		d.cfg.Log.Info("removed a sandbox whose creation or deletion was interrupted", "directory", dir, "error", err)
		return nil
	}
	kept := filepath.Join(d.quarantine(), filepath.Base(dir)+"."+rand.Text()[:8])
	d.cfg.Log.Warn("a sandbox's directory has no record: it is in quarantine. Nothing deletes it", "directory", kept)
	return os.Rename(dir, kept)
}

// make is called with b.mu held.
func (b *box) make(ctx context.Context, image string) error {
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, unfinished), nil, 0o600); err != nil {
		return err
	}
	if image != "" {
		digest, err := b.d.images.pull(ctx, image)
		if err != nil {
			return err
		}
		b.Image = digest
	}
	if b.Disk {
		if err := b.d.newDisk(ctx, b.diskImage(), b.Limits.DiskMB); err != nil {
			return err
		}
	} else if err := b.d.room(0); err != nil {
		return err
	}
	if err := b.start(ctx, true); err != nil {
		return err
	}
	return os.Remove(filepath.Join(b.dir, unfinished))
}

// discard removes the box completely. Callers hold b.mu. It first renames the record to the mark for unfinished boxes.
// A server that is killed midway then leaves garbage instead of half a box.
func (b *box) discard(ctx context.Context) error {
	err := os.Rename(filepath.Join(b.dir, "box.json"), filepath.Join(b.dir, unfinished))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	b.gone = true
	b.stop(ctx)
	err = removeMarked(b.dir)
	b.leave(err == nil)
	return err
}

// halt stops the box. Its files stay.
func (b *box) halt(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop(ctx)
}

// Probe reports whether the box's files exist, because everything else can be restored. A box on another machine is
// Unknown.
func (d *Driver) Probe(_ context.Context, ref string) (sandbox.Liveness, error) {
	id, here, err := d.locate(ref)
	if err != nil || !here {
		return sandbox.Unknown, err
	}
	for _, dir := range []string{filepath.Join(d.cfg.Dir, "boxes"), d.quarantine()} {
		switch _, err := os.Stat(filepath.Join(dir, id, "box.json")); {
		case err == nil:
			return sandbox.Live, nil
		case !errors.Is(err, os.ErrNotExist):
			return sandbox.Unknown, nil
		}
	}
	return sandbox.Gone, nil
}

// Destroy deletes a box.
func (d *Driver) Destroy(ctx context.Context, ref string) error {
	b, err := d.find(ref)
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	if err := b.discard(ctx); err != nil {
		return readable(ctx, err, "the sandbox could not be deleted completely")
	}
	return nil
}

// List returns the boxes of this machine.
func (d *Driver) List(_ context.Context, want sandbox.Labels) ([]sandbox.Box, error) {
	var found []sandbox.Box
	for _, b := range d.allBoxes() {
		b.mu.RLock() // wait for a box that is being created or deleted
		there, quarantined, meter := !b.gone, b.quarantined, b.meterLocked()
		b.mu.RUnlock()
		if there && b.Labels.Match(want) {
			found = append(found, sandbox.Box{Ref: d.ref(b.ID), ID: b.ID, Labels: b.Labels, CreatedAt: b.Created, Quarantined: quarantined, Meter: meter})
		}
	}
	return found, nil
}
