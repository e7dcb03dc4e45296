//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// record is what is remembered of a box across servers.
type record struct {
	ID      string
	Labels  sandbox.Labels
	Limits  sandbox.Limits
	Image   string `json:",omitempty"` // the digest of its unpacked image
	Block   uint32 `json:",omitempty"` // its block of host ids, as root
	Disk    bool   // whether its files are on a disk of their own
	Created time.Time
}

// box is one box over its whole life.
//
// mu is held for reading while the container is being used to start something, and for writing while
// the container is started or stopped or the box is deleted. Running commands hold nothing.
type box struct {
	d *Driver
	record
	dir string

	mu      sync.RWMutex
	running *container // nil, or dead, when the box must be started first
	gone    bool
}

var validID = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// Create makes a box. An image that is not unpacked yet is pulled first.
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
			b.mu.RLock() // until whoever makes it is done
			gone := b.gone
			b.mu.RUnlock()
			if gone {
				continue
			}
			return d.ref(b.ID), nil
		}
		err = b.make(ctx, spec.Image)
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

// reserve finds the box of an id, or enters a fresh one, locked for writing, with a block of ids.
func (d *Driver) reserve(spec sandbox.Spec) (b *box, fresh bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, false, closing()
	}
	if b, ok := d.boxes[spec.ID]; ok {
		return b, false, nil
	}
	b = d.newBox(record{ID: spec.ID, Labels: spec.Labels, Limits: fill(spec.Limits, d.cfg.Limits), Created: time.Now().UTC()})
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

// load finds the boxes of earlier servers, and removes what one began to make and could not finish.
func (d *Driver) load() error {
	dirs, err := os.ReadDir(filepath.Join(d.cfg.Dir, "boxes"))
	if err != nil {
		return err
	}
	for _, entry := range dirs {
		b := d.newBox(record{})
		dir := filepath.Join(d.cfg.Dir, "boxes", entry.Name())
		text, err := os.ReadFile(filepath.Join(dir, "box.json"))
		if err == nil {
			err = json.Unmarshal(text, &b.record)
		}
		if errors.Is(err, os.ErrNotExist) {
			err = os.RemoveAll(dir)
			d.cfg.Log.Info("removed a sandbox that was never finished", "sandbox", entry.Name(), "error", err)
			continue
		}
		if err != nil || b.ID != entry.Name() {
			return fault.New(fault.Precondition, "the sandbox record "+filepath.Join(dir, "box.json")+" cannot be read",
				"restore it from a backup, or remove "+dir+" to give the sandbox up").Because(err)
		}
		b = d.newBox(b.record)
		d.boxes[b.ID], d.blocks[b.Block] = b, true
	}
	return nil
}

// make is called with b.mu held.
func (b *box) make(ctx context.Context, image string) error {
	if err := os.Mkdir(b.dir, 0o700); err != nil {
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
		if err := makeDisk(ctx, b.diskImage(), b.Limits.DiskMB); err != nil {
			return err
		}
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	return b.save()
}

func (b *box) diskImage() string { return filepath.Join(b.dir, "disk.ext4") }

// save writes the record, whole and durably: from then on the box exists.
func (b *box) save() error {
	text, err := json.Marshal(b.record)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(b.dir, "box.json"), text)
}

// writeDurably writes a file that is there whole or not at all, whatever crashes.
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

// discard removes everything of the box; it is called with b.mu held. The record goes first: a server
// that is killed midway leaves garbage, not half a box.
func (b *box) discard(ctx context.Context) error {
	if err := os.Remove(filepath.Join(b.dir, "box.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	b.gone = true
	b.stop(ctx)
	err := os.RemoveAll(b.dir)
	b.d.mu.Lock()
	delete(b.d.boxes, b.ID)
	if err == nil {
		delete(b.d.blocks, b.Block)
	}
	b.d.mu.Unlock()
	return err
}

// halt stops what runs in the box; its files stay.
func (b *box) halt(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop(ctx)
}

// ref names a box of this directory. It names the directory too: servers on several machines share one
// database, and none may take another one's box for one that is gone.
func (d *Driver) ref(id string) string { return d.instance + "/" + id }

// locate takes a ref apart; here says whether its box is, or was, in this directory.
func (d *Driver) locate(ref string) (id string, here bool, err error) {
	instance, id, ok := strings.Cut(ref, "/")
	if !ok || instance == "" || !validID.MatchString(id) {
		return "", false, malformed(ref)
	}
	return id, instance == d.instance, nil
}

// find is the box of a ref.
func (d *Driver) find(ref string) (*box, error) {
	id, here, err := d.locate(ref)
	if err != nil {
		return nil, err
	}
	if !here {
		return nil, fault.New(fault.Unavailable, "the sandbox "+id+" is on another server's machine",
			"use that server, or destroy the sandbox to go on in a new one")
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
	return fault.New(fault.NotFound, "the sandbox "+ref+" does not exist any more", "run the command again: the thread gets a new sandbox")
}

// Probe says whether the box's files are there: everything else heals. What is on another machine cannot be
// told from here.
func (d *Driver) Probe(_ context.Context, ref string) (sandbox.Liveness, error) {
	id, here, err := d.locate(ref)
	if err != nil || !here {
		return sandbox.Unknown, err
	}
	switch _, err := os.Stat(filepath.Join(d.cfg.Dir, "boxes", id, "box.json")); {
	case err == nil:
		return sandbox.Live, nil
	case errors.Is(err, os.ErrNotExist):
		return sandbox.Gone, nil
	default:
		return sandbox.Unknown, nil
	}
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
	d.mu.Lock()
	var all []*box
	for _, b := range d.boxes {
		all = append(all, b)
	}
	d.mu.Unlock()
	matches := func(want, have string) bool { return want == "" || want == have }
	var found []sandbox.Box
	for _, b := range all {
		b.mu.RLock() // one that is being made is not there yet, one that is being deleted not any more
		there := !b.gone
		b.mu.RUnlock()
		if there && matches(want.House, b.Labels.House) && matches(want.Thread, b.Labels.Thread) && matches(want.Environment, b.Labels.Environment) {
			found = append(found, sandbox.Box{Ref: d.ref(b.ID), ID: b.ID, Labels: b.Labels, CreatedAt: b.Created})
		}
	}
	return found, nil
}

// readable makes an error one that a person may see: as it is when it is meant for them, else message
// with the error as its cause, for the log.
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
