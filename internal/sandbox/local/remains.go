//go:build linux

package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A killed container may not end at once. It remains while one of its processes is stuck in the kernel, or while the
// parent of one does not reap it. The parent may be any program on the machine. Nobody waits for that: every start of a
// box creates a new container with its own name, control group and directory, so a dead container is in nobody's way.
// Its directory stays until a later cleanup finds it and can remove it.

// containers returns the containers of a box, or all if box is empty: the directories of the installation with a dot in
// their name; see [box.start].
func (p *installation) containers(box string) (ids []string) {
	entries, _ := os.ReadDir(p.run)
	for _, e := range entries {
		if owner, _, ok := strings.Cut(e.Name(), "."); ok && (box == "" || box == owner) {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// end ends containers in any state. If one cannot be removed completely, end logs this and leaves the rest for the next
// time.
func (p *installation) end(ctx context.Context, ids []string) {
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			if err := p.endOne(ctx, id); err != nil {
				p.log.Warn("a sandbox has ended, but not all of it could be removed yet", "container", id, "cause", err)
			}
		})
	}
	wg.Wait()
}

func (p *installation) endOne(ctx context.Context, id string) error {
	dir := filepath.Join(p.run, id)
	dead := p.runtime.kill(ctx, id)
	_ = giveBack(filesIn(dir)) // only saves space; without a disk there is nothing to release
	// Whether or not it has ended, the files must be free for the next container.
	if err := unmountBelow(dir); err != nil {
		return err
	}
	if dead != nil {
		return dead
	}
	if err := p.runtime.delete(ctx, id); err != nil {
		return err
	}
	if p.group != "" {
		if err := p.cgroups.remove(p.group + "/" + id); err != nil {
			return err
		}
	}
	// Remove the directory last, so that a container that is not completely removed is found again.
	return os.RemoveAll(dir)
}

// survivors returns the containers whose process 1 answers.
func (p *installation) survivors() (ids []string) {
	for _, id := range p.containers("") {
		door, err := openDoor(filepath.Join(p.run, id))
		if err != nil {
			continue
		}
		if conn, _, err := door.connect(context.Background(), patience); err == nil {
			conn.Close()
			ids = append(ids, id)
		}
		door.close()
	}
	return ids
}

// filesIn returns where a container's directory shows the box's files, if the server is root.
func filesIn(dir string) string { return filepath.Join(dir, "files") }

// sweep ends all containers of the installation and cleans it up. With goOn, sandboxes of an earlier server that still
// run continue.
func (p *installation) sweep(ctx context.Context, goOn bool) error {
	if survivors := p.survivors(); goOn && len(survivors) > 0 {
		p.log.Info("continuing sandboxes that an earlier server left", "containers", survivors)
		p.end(ctx, slices.DeleteFunc(p.containers(""), func(id string) bool { return slices.Contains(survivors, id) }))
		return nil
	}
	if p.group != "" { // it may also have processes of containers without a directory
		if err := p.cgroups.kill(p.group, dying); err != nil {
			p.log.Warn("processes of an earlier server's sandboxes have not ended yet", "cause", err)
		}
	}
	ids := p.containers("")
	if len(ids) > 0 {
		p.log.Info("ending sandboxes that an earlier server left", "containers", ids)
	}
	p.end(ctx, ids)
	return p.clear()
}

// clear removes the run directory and the control group, except for the directories of dead containers.
func (p *installation) clear() error {
	// First, because removing the contents of a mounted disk would remove somebody's work.
	if err := unmountBelow(p.run); err != nil {
		return err
	}
	keep := p.containers("")
	if p.group != "" {
		if err := p.cgroups.remove(p.group); err != nil {
			p.log.Warn("cannot remove a control group", "group", p.group, "cause", err)
		}
	}
	if len(keep) == 0 {
		return os.RemoveAll(p.run)
	}
	keep = append(keep, filepath.Base(p.runtime.state), lockName)
	entries, err := os.ReadDir(p.run)
	for _, e := range entries {
		if !slices.Contains(keep, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(p.run, e.Name())))
		}
	}
	return err
}

// takeOver takes over the installation for this driver, and cleans up what an earlier driver left in it. It also cleans
// up every other installation on the machine whose server was killed. Otherwise an installation would keep its mounts
// forever if its data directory is gone or never used again.
//
// With a grace, boxes that an earlier server left running continue.
func (p *installation) takeOver(ctx context.Context, grace time.Duration) error {
	runs := filepath.Dir(p.run)
	// Everyone may pass, because the user ids of a box must reach their own files.
	if err := os.MkdirAll(runs, 0o711); err != nil {
		return err
	}
	// Only one driver at a time may clean up, so that two do not clean up the same installation.
	all, err := lockFile(filepath.Join(runs, lockName), true)
	if err != nil {
		return err
	}
	defer all.Close()
	places, err := os.ReadDir(runs)
	if err != nil {
		return err
	}
	var others sync.WaitGroup
	for _, entry := range places {
		if entry.IsDir() && entry.Name() != filepath.Base(p.run) {
			other := newInstallation(runs, entry.Name(), p.runtime.command, p.runtime.ownKernel, p.log)
			others.Go(func() { other.sweepAbandoned(ctx) })
		}
	}
	others.Wait()
	if err := p.sweep(ctx, grace > 0); err != nil {
		return err
	}
	if err := os.MkdirAll(p.run, 0o711); err != nil {
		return err
	}
	if grace > 0 {
		if err := os.WriteFile(filepath.Join(p.run, graceName), nil, 0o600); err != nil {
			return err
		}
	}
	p.lock, err = lockFile(filepath.Join(p.run, lockName), true)
	return err
}

// sweepAbandoned cleans up the installation of a server that no longer runs.
func (p *installation) sweepAbandoned(ctx context.Context) {
	held, err := lockFile(filepath.Join(p.run, lockName), false)
	if err != nil {
		return // its server runs, or it is not an installation
	}
	defer held.Close()
	_, err = os.Stat(filepath.Join(p.run, graceName))
	if len(p.survivors()) > 0 && err == nil {
		return // its boxes wait for the next server of their directory
	}
	if err := p.sweep(ctx, false); err != nil {
		p.log.Warn("cannot remove what a killed server left of its sandboxes", "directory", p.run, "cause", err)
	}
}
