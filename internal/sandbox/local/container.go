//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// container is a box that runs.
type container struct {
	bundle
	*child            // process 1
	lifeline *os.File // process 1 lives as long as somebody holds this, and only this process does
	root     *os.File // the box's /, as the box sees it

	foreground atomic.Int32 // commands that somebody waits for the end of
}

// use calls do with the running container, starting it when it does not run. When the container dies
// under do, it is started again and do gets one more chance.
func (b *box) use(ctx context.Context, do func(*container) error) error {
	for attempt := 1; ; attempt++ {
		c, err := b.lockRunning(ctx)
		if err != nil {
			return err
		}
		err = do(c)
		b.mu.RUnlock()
		if err == nil || c.alive() || attempt == 2 {
			return err
		}
	}
}

// relieve stops a container in which nothing more can be started, because what was left in the background
// has used up its memory or its processes; the next use starts it again over the same files. It does
// nothing while a command is being waited for.
func (b *box) relieve(ctx context.Context, c *container) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running != c || c.foreground.Load() > 0 {
		return nil
	}
	b.d.cfg.Log.Info("starting a sandbox anew that had no room left", "sandbox", b.ID)
	return b.stop(ctx)
}

// lockRunning returns the running container with b.mu held for reading.
func (b *box) lockRunning(ctx context.Context) (*container, error) {
	for {
		b.mu.RLock()
		if b.gone {
			b.mu.RUnlock()
			return nil, notFound(b.ID)
		}
		if b.running != nil && b.running.alive() {
			return b.running, nil
		}
		b.mu.RUnlock()
		if err := b.revive(ctx); err != nil {
			return nil, readable(ctx, err, "the sandbox could not be started")
		}
	}
}

// revive starts the container when it does not run.
func (b *box) revive(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || (b.running != nil && b.running.alive()) {
		return nil
	}
	if b.d.isClosed() { // Close must not be followed by a start
		return closing()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.stop(ctx); err != nil {
		return err
	}
	return b.start(ctx)
}

func (d *Driver) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// start is called with b.mu held, when nothing of the box runs.
func (b *box) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, b.stop(ctx))
		}
	}()
	who := ownIdentity()
	if asRoot() {
		who = blockIdentity(b.Block)
	}
	root := b.d.base
	if b.Image != "" {
		if root, err = b.d.images.root(b.Image); err != nil {
			return err
		}
	}
	if err := os.Mkdir(b.run, 0o700); err != nil {
		return err
	}
	if err := os.Chown(b.run, int(who.rootUID), -1); asRoot() && err != nil {
		return err
	}
	files, err := b.mountFiles(who)
	if err != nil {
		return err
	}
	spec := bundle{
		id: b.ID, root: root, who: who, limits: b.Limits, files: files, hosts: filepath.Join(b.run, "hosts"),
		caps: b.d.caps, noSwap: b.d.cgroups.limitsSwap(),
	}
	spec.caps.DiskLimit = b.Disk
	if b.d.group != "" {
		spec.cgroup = b.d.group + "/" + b.ID
	}
	if err := spec.write(b.run); err != nil {
		return err
	}
	b.running, err = b.d.launch(ctx, spec, b.run)
	return err
}

// mountFiles makes the box's files reachable and returns the directory they are in.
func (b *box) mountFiles(who identity) (string, error) {
	files := filepath.Join(b.dir, "files")
	if asRoot() {
		files = filepath.Join(b.run, "files")
		if err := os.Mkdir(files, 0o755); err != nil {
			return "", err
		}
	}
	switch {
	case b.Disk:
		if err := mountDisk(b.diskImage(), files); err != nil {
			return "", err
		}
	case asRoot():
		kept := filepath.Join(b.dir, "files")
		if err := os.MkdirAll(kept, 0o755); err != nil {
			return "", err
		}
		if err := unix.Mount(kept, files, "", unix.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("bind the files: %w", err)
		}
	}
	for _, dir := range []string{"workspace", "home"} {
		path := filepath.Join(files, dir)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", err
		}
		if err := os.Chown(path, int(who.hostUID), int(who.hostGID)); err != nil {
			return "", err
		}
	}
	return files, nil
}

// launch runs process 1 of a prepared bundle.
func (d *Driver) launch(ctx context.Context, spec bundle, dir string) (_ *container, err error) {
	stdin, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	defer func() {
		if err != nil {
			lifeline.Close()
		}
	}()
	init, err := d.runtime.run(ctx, spec.id, dir, stdin)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenFile(fmt.Sprintf("/proc/%d/root", init.process.Pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = init.process.Kill()
		return nil, err
	}
	return &container{bundle: spec, child: init, lifeline: lifeline, root: root}, nil
}

// wait waits for process 1 to be gone, which the kernel reports when all other processes are.
func (c *container) wait() {
	for {
		select {
		case <-c.done:
			return
		case <-time.After(100 * time.Millisecond):
			reapStrays()
		}
	}
}

// stop ends whatever runs in the box and undoes what start did; it is called with b.mu held. It works on
// a box in any state, half started or dead, and is not cut short by ctx: what is begun to be cleared
// away is cleared away.
func (b *box) stop(ctx context.Context) error {
	if c := b.running; c != nil {
		_ = c.process.Kill() // an error means that it is dead
		c.wait()
		c.lifeline.Close()
		c.root.Close()
		b.running = nil
	}
	if _, err := os.Stat(filepath.Join(b.d.runtime.state, b.ID)); err == nil {
		if err := b.d.runtime.delete(ctx, b.ID); err != nil {
			return fmt.Errorf("delete the container: %w", err)
		}
	}
	if b.d.group != "" {
		if err := b.d.cgroups.remove(b.d.group + "/" + b.ID); err != nil {
			return err
		}
	}
	if asRoot() {
		if err := unmount(filepath.Join(b.run, "files")); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(b.run, "files")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // not empty: still a mount, so nothing below may be removed
		}
	}
	return os.RemoveAll(b.run)
}
