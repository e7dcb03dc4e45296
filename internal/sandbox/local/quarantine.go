//go:build linux

package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// The quarantine keeps boxes without a row in the database, because the database may be an older copy. A quarantined
// box is stopped and its directory is moved; its first use moves it back. Its block of user ids stays reserved. Only
// the operator or [Driver.Destroy] deletes it.

// loadQuarantined finds the quarantined boxes of earlier servers.
func (d *Driver) loadQuarantined() error {
	dirs, err := os.ReadDir(d.quarantine())
	if err != nil {
		return err
	}
	for _, entry := range dirs {
		dir := filepath.Join(d.quarantine(), entry.Name())
		r, err := readRecord(dir)
		if errors.Is(err, os.ErrNotExist) || d.boxes[r.ID] != nil {
			d.cfg.Log.Warn("this directory in the quarantine is not a sandbox that could be used again", "directory", dir)
			continue
		}
		if err != nil {
			return err
		}
		b := d.newBox(r)
		b.dir, b.quarantined = dir, true
		d.register(b)
	}
	return nil
}

// Quarantine stops a box and moves its files to the quarantine.
func (d *Driver) Quarantine(ctx context.Context, ref string) (place string, err error) {
	b, err := d.find(ref)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.gone:
		return "", notFound(b.ID)
	case b.quarantined:
		return b.dir, nil
	}
	b.stop(ctx)
	kept := filepath.Join(d.quarantine(), b.ID)
	if err := os.Rename(b.dir, kept); err != nil {
		return "", readable(ctx, err, "the sandbox could not be moved into the quarantine")
	}
	b.dir, b.quarantined = kept, true
	return kept, nil
}

// recall takes a box out of the quarantine. Callers hold b.mu. A box whose files the operator deleted is gone.
func (b *box) recall() error {
	if !b.quarantined {
		return nil
	}
	dir := filepath.Join(b.d.cfg.Dir, "boxes", b.ID)
	err := os.Rename(b.dir, dir)
	if errors.Is(err, os.ErrNotExist) {
		b.gone = true
		b.leave(true)
		return notFound(b.ID)
	}
	if err != nil {
		return err
	}
	b.dir, b.quarantined = dir, false
	b.d.cfg.Log.Info("a sandbox came back from the quarantine", "sandbox", b.ID)
	return nil
}
