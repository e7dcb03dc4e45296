//go:build linux

package local

import (
	"context"
	"crypto/rand"
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
func (b *box) relieve(ctx context.Context, c *container) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running != c || c.foreground.Load() > 0 {
		return
	}
	b.d.cfg.Log.Info("starting a sandbox anew that had no room left", "sandbox", b.ID)
	b.stop(ctx)
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
	b.stop(ctx)
	return b.start(ctx)
}

func (d *Driver) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// start is called with b.mu held, when nothing of the box runs. Each start makes another container,
// because the last one may be dead and not gone, see remains.go; boxes have no dot in their ids.
func (b *box) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			b.stop(ctx)
		}
	}()
	id := b.ID + "." + rand.Text()[:8]
	run := filepath.Join(b.d.run, id)
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
	if err := os.Mkdir(run, 0o700); err != nil {
		return err
	}
	if err := os.Chown(run, int(who.rootUID), -1); asRoot() && err != nil {
		return err
	}
	files, err := b.mountFiles(run, who)
	if err != nil {
		return err
	}
	spec := bundle{
		id: id, hostname: b.ID, root: root, who: who, limits: b.Limits, files: files, hosts: filepath.Join(run, "hosts"),
		caps: b.d.caps, apart: b.d.runtime.apart, noSwap: b.d.cgroups.limitsSwap(),
	}
	spec.caps.DiskLimit = b.Disk
	if b.d.group != "" {
		spec.cgroup = b.d.group + "/" + id
	}
	if err := spec.write(run); err != nil {
		return err
	}
	b.running, err = b.d.launch(ctx, spec, run)
	return err
}

// mountFiles makes the box's files reachable for the container with the directory run, and returns the
// directory they are in.
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
	case asRoot():
		kept := filepath.Join(b.dir, "files")
		if err := os.MkdirAll(kept, 0o755); err != nil {
			return "", err
		}
		if err := unix.Mount(kept, files, "", unix.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("bind the files: %w", err)
		}
	}
	if b.d.runtime.apart { // what is temporary does not outlive the container
		tmp := filepath.Join(files, "tmp")
		if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700), os.Chmod(tmp, 0o777|os.ModeSticky)); err != nil {
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
	view := fmt.Sprintf("/proc/%d/root", init.process.Pid)
	if spec.apart {
		view = filepath.Join(dir, "view")
		if err = errors.Join(os.Mkdir(view, 0o755), spec.assemble(view)); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenFile(view, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = init.process.Kill()
		return nil, err
	}
	return &container{bundle: spec, child: init, lifeline: lifeline, root: root}, nil
}

// stop ends whatever runs in the box and undoes what start did; it is called with b.mu held. It works on
// a box in any state, half started or dead, and the next start is independent of how far it came.
func (b *box) stop(ctx context.Context) {
	if c := b.running; c != nil {
		_ = c.process.Kill() // an error means that it is dead
		select {
		case <-c.done:
		case <-time.After(dying):
		}
		c.lifeline.Close()
		c.root.Close()
		b.running = nil
	}
	b.d.end(ctx, b.d.containers(b.ID))
}
