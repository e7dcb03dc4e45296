//go:build linux

package local

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// A box runs only while it is needed. It is stopped when it has been idle for a while, or earlier if another box needs
// its slot or the space that is held for it. Its files stay, and its next use starts it again. A box is not idle while
// someone waits for a command.

// background reports whether a container may have background processes.
func (d *Driver) background(c *container) bool {
	switch {
	case c.ownKernel:
		return true // its processes are not visible from here
	case c.cgroup != "":
		pids, err := members(d.cgroups.dir(killer, c.cgroup))
		// With version 2, process 1 is in a group of its own.
		return err != nil || slices.ContainsFunc(pids, func(pid int) bool { return pid != c.process.Pid })
	default:
		return len(descendants(c.process.Pid, processes())) > 1
	}
}

// stopIdlest stops the box that has been idle longest. Boxes with background processes come last, because stopping a
// box ends them. It reports whether it stopped one.
func (d *Driver) stopIdlest(ctx context.Context) bool {
	boxes := d.running()
	slices.SortFunc(boxes, func(a, b *box) int { return int(min(max(a.used.Load()-b.used.Load(), -1), 1)) })
	for _, sparing := range []bool{true, false} {
		for _, b := range boxes {
			if b.stopIf(ctx, func(c *container) bool { return !c.busy() && !(sparing && d.background(c)) }) {
				return true
			}
		}
	}
	return false
}

// stopIf stops a running box if may allows it, and reports whether it did. It skips a box that is being started, used
// or deleted without waiting, because its holder may be waiting for a slot itself.
func (b *box) stopIf(ctx context.Context, may func(*container) bool) bool {
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	if b.running == nil || b.gone || b.running.alive() && !may(b.running) {
		return false
	}
	b.d.cfg.Log.Debug("stopping an idle sandbox", "sandbox", b.ID, "idle", b.idle().Round(time.Second))
	b.stop(ctx)
	return true
}

// admit gives a slot to a box that is about to run, and stops an idle box if necessary. Callers hold b.mu.
func (d *Driver) admit(ctx context.Context, b *box) error {
	b.touch()
	return d.makeRoom(ctx, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.slots[b] && len(d.slots) >= d.cfg.Running {
			return fault.Newf(fault.Exhausted, "try again when a command has ended, or ask the operator to raise the setting sandboxes_running",
				"all %d sandboxes that may run on this machine at once are running commands", d.cfg.Running)
		}
		d.slots[b] = true
		return nil
	})
}

// makeRoom calls do until it no longer fails with [fault.Exhausted]. After each failure it makes room: first it
// releases space that is held for stopped boxes, because that disturbs nobody, then it stops idle boxes one by one.
func (d *Driver) makeRoom(ctx context.Context, do func() error) error {
	for reclaimed := false; ; reclaimed = true {
		err := do()
		if fault.CodeOf(err) != fault.Exhausted || ctx.Err() != nil {
			return err
		}
		if (reclaimed || !d.reclaim()) && !d.stopIdlest(ctx) {
			return err
		}
	}
}

// reclaim releases the space that is held for boxes that do not run. They hold space if the machine was turned off
// while they ran. It reports whether it released any.
func (d *Driver) reclaim() (found bool) {
	for _, b := range d.allBoxes() {
		// A box that is in use is skipped, because its holder may be waiting for space itself.
		if !b.Disk || !b.mu.TryLock() {
			continue
		}
		if b.running == nil && !b.gone && holding(b.diskImage()) {
			found = d.giveBackStopped(b) == nil || found
		}
		b.mu.Unlock()
	}
	return found
}

// giveBackStopped releases the unused space of a stopped box's disk. Callers hold b.mu.
func (d *Driver) giveBackStopped(b *box) error {
	target := filepath.Join(d.run, "reclaim")
	if err := os.Mkdir(target, 0o700); err != nil {
		return err // another call is doing it
	}
	defer os.Remove(target)
	if err := mountDisk(b.diskImage(), target); err != nil {
		return err
	}
	err := giveBack(target)
	if unmountErr := unmount(target); err == nil {
		err = unmountErr
	}
	if err == nil {
		err = releaseHeld(b.diskImage())
	}
	return err
}
