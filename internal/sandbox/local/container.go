//go:build linux

package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
)

// container is a running box.
type container struct {
	bundle
	*child                 // process 1
	lifeline io.Closer     // process 1 lives while the server holds this, and for a configurable time after
	root     *os.File      // the box's /, as the box sees it
	gate     *egress.Gate  // connects it to the network; nil if it has none
	door     *door         // the socket of process 1; nil if the box has its own kernel
	refusals perSecond     // counts the refused connections that were reported
	limited  chan struct{} // closed when the inotify limit is set, for which the first command waits; nil if the container was adopted

	commands commands
	dropping dropping
}

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

// follow waits for the end of a process that may not be our child. Its exit code is unknown, because only the parent
// gets it.
func follow(pid int) (*child, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "process")
	process, err := os.FindProcess(pid)
	if err != nil {
		f.Close()
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	c := &child{process: process, done: make(chan struct{})}
	go func() {
		defer f.Close()
		defer close(c.done)
		_ = raw.Read(func(fd uintptr) bool { // if it cannot be waited for, treat it as dead
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0
		})
	}()
	return c, nil
}

// release releases a box's container without ending it, if something in it outlives the server. It returns the
// container's id.
func (b *box) release(leave bool) (id string, released bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.running
	if !leave || c == nil || c.ownKernel || !c.alive() || !c.commands.outlive() && len(c.leftovers()) == 0 {
		return "", false
	}
	b.running = nil
	c.commands.abandon()
	c.let()
	return c.id, true
}

// lifeline returns a pipe. Process 1 of a box with its own kernel reads from one end, and the server holds the other.
func lifeline() (stdin *os.File, ours io.Closer, err error) {
	r, w, err := os.Pipe()
	return r, w, err
}

// end kills process 1 and releases the server's resources of the container.
func (c *container) end() {
	if c.child != nil {
		_ = c.process.Kill() // an error means that it is dead
		select {
		case <-c.done:
		case <-time.After(dying):
		}
	}
	c.let()
}

// let releases the server's resources of the container.
func (c *container) let() {
	if c.lifeline != nil {
		c.lifeline.Close()
	}
	if c.root != nil {
		c.root.Close()
	}
	if c.door != nil {
		c.door.close()
	}
	if c.gate != nil {
		c.gate.Close()
	}
}

// stop ends everything that runs in the box and undoes what start did. Callers hold b.mu. It works on a box in any
// state, such as half started or dead, and the next start does not depend on how far it got.
func (b *box) stop(ctx context.Context) {
	if b.running != nil {
		b.running.end()
		b.running = nil
	}
	b.window.watch("")
	b.d.end(ctx, b.d.containers(b.ID))
	if b.Disk && !b.gone {
		_ = releaseHeld(b.diskImage()) // only saves space
	}
	b.d.vacate(b)
}
