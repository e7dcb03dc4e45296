//go:build linux

package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// record is the part of a box that is stored and outlives the server.
type record struct {
	ID      string
	Labels  sandbox.Labels
	Limits  sandbox.Limits
	Image   string        `json:",omitempty"` // the digest of its unpacked image
	Block   uint32        `json:",omitempty"` // its block of host ids, if the server is root
	Disk    bool          // whether its files are on a disk image
	Owner   uint32        `json:",omitempty"` // the block of ids that own the files on its disk, if that is a copy of a layer; see layers.go
	Egress  egress.Policy `json:",omitzero"`  // the hosts that it may reach
	Created time.Time
}

// box is a box over its whole life.
//
// mu is held for reading while something is started in the container. It is held for writing while the container is
// started or stopped, or the box is deleted. Running commands do not hold it, because a stop would then wait for them.
type box struct {
	d *Driver
	record
	dir string

	window view

	used atomic.Int64 // when it was last used, in nanoseconds since 1970

	claimed atomic.Int64 // the space that it will take up, while a layer is copied for it; see claim

	mu          sync.RWMutex
	running     *container // nil, or dead, if the box must be started first
	quarantined bool       // dir is in the quarantine; see quarantine.go
	gone        bool
}

var validID = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

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

func (d *Driver) newBox(r record) *box {
	return &box{d: d, record: r, dir: filepath.Join(d.cfg.Dir, "boxes", r.ID)}
}

func closing() error {
	return fault.New(fault.Unavailable, "the server is shutting down", "try again in a moment")
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

// readRecord reads the record in a box's directory.
func readRecord(dir string) (r record, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "box.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if !errors.Is(err, os.ErrNotExist) && (err != nil || r.ID != filepath.Base(dir)) {
		err = fault.New(fault.Precondition, "the sandbox record "+filepath.Join(dir, "box.json")+" cannot be read",
			"restore it from a backup, or remove "+dir+" to give the sandbox up").Because(err)
	}
	return r, err
}

// unfinished marks the directory of a box that is being created or deleted, so that the next server can remove it if
// this one is killed.
const unfinished = "unfinished"

// clearUnfinished removes a directory without a record if it is marked as unfinished or empty. Any other directory
// without a record is moved to the quarantine, because it may hold somebody's work.
func (d *Driver) clearUnfinished(dir string) error {
	if os.Remove(dir) == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, unfinished)); err == nil {
		err = removeTree(dir)
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

// limits returns the current limits of the box: the recorded ones, lowered to the current total for all boxes. The
// kernel refuses a group more cores than its parent has.
func (b *box) limits() sandbox.Limits {
	now, total := b.Limits, b.d.cfg.Total
	now.MemoryMB, now.PIDs, now.CPUs = min(now.MemoryMB, total.MemoryMB), min(now.PIDs, total.PIDs), min(now.CPUs, total.CPUs)
	return now
}

// diskImage returns the file with the box's disk.
func (b *box) diskImage() string {
	if b.Owner != 0 {
		return filepath.Join(b.dir, "layer.ext4")
	}
	return filepath.Join(b.dir, "disk.ext4")
}

// diskOwner returns the block of ids that own the files on the box's disk.
func (b *box) diskOwner() uint32 { return cmp.Or(b.Owner, b.Block) }

// save writes the record durably. From then on the box exists.
func (b *box) save() error {
	text, err := json.Marshal(b.record)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(b.dir, "box.json"), text)
}

// writeDurably writes a file atomically and durably.
func writeDurably(name string, text []byte) error {
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
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
	err = removeTree(b.dir)
	b.leave(err == nil)
	return err
}

// leave unregisters a box. Callers hold b.mu. If files of it remain, its user ids stay reserved, because another box
// with these ids would own the files.
func (b *box) leave(clean bool) {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	delete(b.d.boxes, b.ID)
	if clean {
		delete(b.d.blocks, b.Block)
	}
	if b.Image != "" {
		b.d.images.release(b.Image)
	}
}

// register registers the box of an earlier server.
func (d *Driver) register(b *box) {
	d.boxes[b.ID], d.blocks[b.Block] = b, true
	if b.Image != "" {
		d.images.use(b.Image)
	}
}

// halt stops the box. Its files stay.
func (b *box) halt(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop(ctx)
}

// Machine returns the identity of this driver's directory.
func (d *Driver) Machine() string { return d.instance }

// ref returns the ref of a box in this directory. The ref names the directory, because servers on several machines
// share a database, and a server must not take another machine's box for a deleted one.
func (d *Driver) ref(id string) string { return d.instance + "/" + id }

// locate parses a ref. here reports whether its box is, or was, in this directory.
func (d *Driver) locate(ref string) (id string, here bool, err error) {
	instance, id, ok := strings.Cut(ref, "/")
	if !ok || instance == "" || !validID.MatchString(id) {
		return "", false, malformed(ref)
	}
	return id, instance == d.instance, nil
}

// find returns the box of a ref.
func (d *Driver) find(ref string) (*box, error) {
	id, here, err := d.locate(ref)
	if err != nil {
		return nil, err
	}
	if !here {
		return nil, fault.New(fault.Unavailable, "the sandbox "+id+" is on another server's machine",
			"use a server of that machine, or wait until it is back")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, closing()
	}
	if b, ok := d.boxes[id]; ok {
		return b, nil
	}
	return nil, notFound(id)
}

func malformed(ref string) error {
	return fault.Newf(fault.Invalid, "use the reference that creating the sandbox returned", "%q is not a local sandbox's reference", ref)
}

func notFound(ref string) error {
	return fault.New(fault.NotFound, "the sandbox "+ref+" no longer exists", "run the command again: the thread gets a new sandbox")
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

// allBoxes returns the boxes, including those that are being created or deleted. Do not lock a box while holding d.mu,
// because the holder of a box's lock also locks d.mu.
func (d *Driver) allBoxes() []*box {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.boxes))
}

// List returns the boxes of this machine.
func (d *Driver) List(_ context.Context, want sandbox.Labels) ([]sandbox.Box, error) {
	var found []sandbox.Box
	for _, b := range d.allBoxes() {
		b.mu.RLock() // wait for a box that is being created or deleted
		there, quarantined := !b.gone, b.quarantined
		b.mu.RUnlock()
		if there && b.Labels.Match(want) {
			found = append(found, sandbox.Box{Ref: d.ref(b.ID), ID: b.ID, Labels: b.Labels, CreatedAt: b.Created, Quarantined: quarantined})
		}
	}
	return found, nil
}

// readable returns an error that a person may see: err itself if it is meant for people, otherwise message with err as
// the cause for the log.
func readable(ctx context.Context, err error, message string) error {
	if ctx.Err() != nil {
		return fault.From(ctx.Err())
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if full := diskFull(err); full != nil {
		return full
	}
	return fault.New(fault.Unavailable, message, "try again; the server's log has the cause").Because(err)
}
