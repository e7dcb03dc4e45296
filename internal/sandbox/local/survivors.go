//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// adoptSurvivors adopts the containers that an earlier driver left running, and ends those that cannot be adopted.
func (d *Driver) adoptSurvivors(ctx context.Context) {
	for _, id := range d.containers("") {
		owner, _, _ := strings.Cut(id, ".")
		b, ok := d.boxes[owner]
		err := errors.New("its sandbox no longer exists")
		if ok && b.running == nil {
			b.running, err = d.adopt(ctx, b, id)
			if err == nil {
				b.touch()
				d.slots[b] = true
			}
		}
		if err != nil {
			d.cfg.Log.Warn("ending what an earlier server left of a sandbox", "container", id, "cause", err)
			d.end(ctx, []string{id})
		}
	}
}

// adopt prepares the use of a container of an earlier driver.
func (d *Driver) adopt(ctx context.Context, b *box, id string) (_ *container, err error) {
	spec, err := b.bundle(id)
	if err != nil {
		return nil, err
	}
	spec.files = filesIn(filepath.Join(d.run, id))
	if !asRoot() {
		spec.files = filepath.Join(b.dir, "files")
	}
	c := &container{bundle: spec}
	defer func() {
		if err != nil {
			c.end()
		}
	}()
	if c.door, err = openDoor(filepath.Join(d.run, id)); err != nil {
		return nil, err
	}
	pid, err := d.runtime.pid(ctx, id)
	if err != nil {
		return nil, err
	}
	// Use follow instead of adopt, because the process may not be our child.
	if c.child, err = follow(pid); err != nil {
		return nil, err
	}
	if err := d.enter(ctx, c, fmt.Sprintf("/proc/%d/root", pid)); err != nil {
		return nil, err
	}
	if c.cgroup != "" {
		groups, err := filepath.Glob(d.cgroups.dir(killer, c.cgroup) + "/exec-*")
		if err != nil {
			return nil, err
		}
		for _, dir := range groups {
			c.commands.inherit(&supervised{c: c, cgroups: d.cgroups, group: c.cgroup + "/" + filepath.Base(dir)})
		}
	}
	if err := b.connectNetwork(ctx, c); err != nil {
		d.cfg.Log.Warn("a sandbox of an earlier server has no network until it is restarted", "sandbox", b.ID, "error", err)
	}
	if b.Disk {
		b.window.watch(c.files)
	}
	return c, b.inheritLaunched(c)
}
