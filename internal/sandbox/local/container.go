//go:build linux

package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
)

// use calls do with the running container, and starts it if necessary. If the container dies during do, it is started
// again and do is called once more.
func (b *box) use(ctx context.Context, do func(*container) error) error {
	for attempt := 1; ; attempt++ {
		c, err := b.lockRunning(ctx)
		if err != nil {
			return err
		}
		b.touch()
		err = do(c)
		b.mu.RUnlock()
		if err == nil || c.alive() || attempt == 2 {
			return err
		}
	}
}

// relieve stops a container in which nothing more can be started because background processes have used up its memory
// or processes. The next use starts it again over the same files. It does nothing while someone waits for a command,
// because it would end that command.
func (b *box) relieve(ctx context.Context, c *container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running != c || c.commands.foreground() > 0 {
		return
	}
	b.d.cfg.Log.Info("restarting a sandbox that had no room left", "sandbox", b.ID)
	b.stop(ctx)
}

// lockRunning returns the running container with b.mu held for reading. If ctx ends during a start, the start continues
// without the caller, in a goroutine of its own, because the wait for b.mu cannot be cancelled.
func (b *box) lockRunning(ctx context.Context) (*container, error) {
	if b.mu.TryRLock() {
		if !b.gone && b.running != nil && b.running.alive() {
			return b.running, nil
		}
		b.mu.RUnlock()
	}
	type answer struct {
		c   *container
		err error
	}
	answers := make(chan answer)
	go func() {
		c, err := b.waitRunning(ctx)
		select {
		case answers <- answer{c, err}:
		case <-ctx.Done():
			if err == nil {
				b.mu.RUnlock()
			}
		}
	}()
	select {
	case a := <-answers:
		return a.c, a.err
	case <-ctx.Done():
		return nil, fault.From(ctx.Err())
	}
}

func (b *box) waitRunning(ctx context.Context) (*container, error) {
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

// revive starts the container if it does not run.
func (b *box) revive(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || (b.running != nil && b.running.alive()) {
		return nil
	}
	if b.d.isClosed() { // nothing may be started after Close
		return closing()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b.stop(ctx)
	if err := b.recall(); err != nil {
		return err
	}
	return b.start(ctx, false)
}

func (d *Driver) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// start starts a container. Callers hold b.mu, and nothing of the box is running. Each start creates a new container,
// because the last one may be dead but not gone; see remains.go. Box ids contain no dot.
//
// For a new box, start opens the window of its disk and saves the record while the runtime works.
func (b *box) start(ctx context.Context, fresh bool) (err error) {
	defer func() {
		if err != nil {
			b.stop(ctx)
		}
	}()
	if err := b.d.admit(ctx, b); err != nil {
		return err
	}
	id := b.ID + "." + rand.Text()[:8]
	run := filepath.Join(b.d.run, id)
	spec, err := b.bundle(id)
	if err != nil {
		return err
	}
	if err := os.Mkdir(run, 0o700); err != nil {
		return err
	}
	if err := os.Chown(run, int(spec.who.rootUID), -1); asRoot() && err != nil {
		return err
	}
	if b.Disk && !fresh {
		// Check this before the mount, because replaying the journal on a full machine could break the disk.
		if err := b.d.makeRoom(ctx, func() error { return b.d.room(min(window, int64(b.Limits.DiskMB)<<20)) }); err != nil {
			return err
		}
	}
	if spec.files, err = b.mountFiles(run, spec.who); err != nil {
		return err
	}
	if b.Disk && !fresh {
		if err := b.openWindow(ctx, spec.files); err != nil {
			return err
		}
	}
	if err := spec.write(run); err != nil {
		return err
	}
	saved := make(chan error, 1)
	go func() {
		if fresh {
			saved <- b.holdAndSave(ctx, spec.files)
		}
		close(saved)
	}()
	b.running, err = b.d.launch(ctx, spec, run)
	if failed := <-saved; failed != nil {
		return failed
	}
	if err == nil {
		err = b.connectNetwork(ctx, b.running)
	}
	return err
}

// bundle returns the bundle of the box's container without its files.
func (b *box) bundle(id string) (_ bundle, err error) {
	spec := bundle{
		id: id, hostname: b.ID, root: b.d.base, who: ownIdentity(), limits: b.limits(), hosts: filepath.Join(b.d.run, id, "hosts"),
		caps: b.d.caps, networked: b.d.caps.Network, ownKernel: b.d.runtime.ownKernel, noSwap: b.d.cgroups.limitsSwap(),
	}
	if asRoot() {
		spec.who = blockIdentity(b.Block)
	}
	if b.Image != "" {
		if spec.root, err = b.d.images.root(b.Image); err != nil {
			return spec, err
		}
	}
	spec.caps.DiskLimit = b.Disk
	if b.d.group != "" {
		spec.cgroup = b.d.group + "/" + id
		if !spec.ownKernel {
			spec.cgroup += "/box" // process 1 is beside it
		}
	}
	return spec, nil
}

// holdAndSave opens the window of a new box's disk and saves its record.
func (b *box) holdAndSave(ctx context.Context, files string) error {
	if b.Disk {
		if err := b.openWindow(ctx, files); err != nil {
			return err
		}
	}
	return b.save()
}

// openWindow opens the window of the box's mounted disk, and makes room for it on the host if necessary.
func (b *box) openWindow(ctx context.Context, files string) error {
	err := b.d.makeRoom(ctx, func() error { return b.d.openWindow(b.diskImage(), files) })
	if err == nil {
		b.window.watch(files)
	}
	return err
}

// mountFiles makes the box's files accessible to the container with the directory run, and returns their directory.
func (b *box) mountFiles(run string, who identity) (string, error) {
	files := filepath.Join(b.dir, "files")
	if asRoot() {
		files = filesIn(run)
		if err := os.Mkdir(files, 0o755); err != nil {
			return "", err
		}
	}
	switch {
	case b.Disk:
		if err := mountDisk(b.diskImage(), files); err != nil {
			return "", err
		}
		if from := b.diskOwner(); from != b.Block {
			if err := mapIDs(files, from, b.Block); err != nil {
				return "", err
			}
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
	// With its own kernel, a box has /tmp as a directory on the disk instead of a file system in memory. It must not
	// outlive the container.
	if b.d.runtime.ownKernel {
		tmp := filepath.Join(files, "tmp")
		if err := errors.Join(removeTree(tmp), os.Mkdir(tmp, 0o700), os.Chmod(tmp, 0o777|os.ModeSticky)); err != nil {
			return "", err
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
	c := &container{bundle: spec}
	defer func() {
		if err != nil {
			c.end()
		}
	}()
	var stdin *os.File
	if spec.ownKernel {
		stdin, c.lifeline, err = lifeline()
	} else if c.door, err = openDoor(dir); err == nil {
		stdin, err = c.door.listen()
	}
	if err != nil {
		return nil, err
	}
	c.child, err = d.runtime.run(ctx, spec.id, dir, stdin)
	// Only process 1 may hold the socket. Otherwise connecting to a dead box would not be refused.
	stdin.Close()
	if err != nil {
		return nil, err
	}
	view := fmt.Sprintf("/proc/%d/root", c.process.Pid)
	if spec.ownKernel {
		view = filepath.Join(dir, "view")
		if err = errors.Join(os.Mkdir(view, 0o755), spec.assemble(view)); err != nil {
			return nil, err
		}
	} else if spec.cgroup != "" {
		err := errors.Join(d.cgroups.separate(c.process.Pid, filepath.Dir(spec.cgroup)+"/init", min(0.5, d.cfg.Total.CPUs)),
			d.cgroups.limitSockets(spec.cgroup, spec.memoryShare(1)))
		if err != nil {
			return nil, err
		}
	}
	if !spec.ownKernel {
		c.limited = make(chan struct{})
		// Do not use ctx, because the container outlives this call.
		go d.limitInotify(context.WithoutCancel(ctx), c)
	}
	return c, d.enter(ctx, c, view)
}

// limitInotify limits a new container's inotify instances, or logs once that this is impossible.
func (d *Driver) limitInotify(ctx context.Context, c *container) {
	defer close(c.limited)
	if err := limitInotify(ctx, c.process.Pid); err != nil && c.alive() {
		d.warnInotify.Do(func() {
			d.cfg.Log.Warn("sandboxes have no inotify limits of their own: one sandbox can keep all others from watching files", "error", err)
		})
	}
}

// enter prepares the use of a container whose process 1 runs.
func (d *Driver) enter(ctx context.Context, c *container, view string) (err error) {
	if !c.ownKernel {
		hello, err := c.door.greet(context.WithoutCancel(ctx), d.cfg.Grace)
		if err != nil {
			return err
		}
		c.lifeline = hello
	}
	c.root, err = os.OpenFile(view, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}
