//go:build linux

package local

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// place is where one driver's boxes run: what it holds of the machine, all under one name, so that
// whoever finds it abandoned can clear it away.
type place struct {
	run     string // the run directory
	runtime *ociRuntime
	cgroups cgroups
	group   string // the control group above all boxes; empty when the server may not make any
	lock    *os.File
	log     *slog.Logger
}

func newPlace(runs, name, runtimeCommand string, log *slog.Logger) place {
	run := filepath.Join(runs, name)
	p := place{
		run: run, cgroups: findCgroups(), log: log,
		runtime: &ociRuntime{command: runtimeCommand, state: filepath.Join(run, "runtime"), scratch: run},
	}
	if asRoot() && p.cgroups.limitsMemory() {
		p.group = "/arbe-" + name
	}
	return p
}

// takeOver makes the place this driver's, free of what an earlier driver left in it. On the way it
// clears every other place on the machine whose server was killed: one whose data directory is gone,
// or is never served again, would otherwise hold its mounts for ever.
func (p *place) takeOver(ctx context.Context) error {
	runs := filepath.Dir(p.run)
	if err := os.MkdirAll(runs, 0o711); err != nil {
		return err
	}
	all, err := lockFile(filepath.Join(runs, "lock"), true) // one at a time
	if err != nil {
		return err
	}
	defer all.Close()
	places, err := os.ReadDir(runs)
	if err != nil {
		return err
	}
	for _, entry := range places {
		if !entry.IsDir() || entry.Name() == filepath.Base(p.run) {
			continue
		}
		other := newPlace(runs, entry.Name(), p.runtime.command, p.log)
		held, err := lockFile(filepath.Join(other.run, "lock"), false)
		if err != nil {
			continue // its server lives, or it is not a place
		}
		if err := other.sweep(ctx); err != nil {
			p.log.Warn("what a killed server left of its sandboxes stays", "directory", other.run, "cause", err)
		}
		held.Close()
	}
	if err := p.sweep(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(p.run, 0o711); err != nil {
		return err
	}
	p.lock, err = lockFile(filepath.Join(p.run, "lock"), true)
	return err
}

// lockFile locks a file until it is closed, or its holder ends. With wait it makes the file and waits for
// the lock; without, the file must be there and be free.
func lockFile(name string, wait bool) (*os.File, error) {
	flags, how := os.O_CREATE|os.O_RDWR, unix.LOCK_EX
	if !wait {
		flags, how = os.O_RDWR, unix.LOCK_EX|unix.LOCK_NB
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep ends what runs in the place and removes it.
func (p *place) sweep(ctx context.Context) error {
	if p.group != "" {
		if err := p.cgroups.kill(p.group); err != nil {
			return err
		}
	}
	for _, id := range p.runtime.containers() {
		p.log.Info("ending a sandbox that an earlier server left", "sandbox", id)
		if err := p.runtime.kill(ctx, id); err != nil {
			return err
		}
		if err := p.runtime.delete(ctx, id); err != nil {
			return err
		}
	}
	return p.clear()
}

// clear removes the run directory and the control group. It looks twice that nothing is mounted there any
// more: removing a mounted disk's content would remove somebody's work.
func (p *place) clear() error {
	mounts, err := mountsBelow(p.run)
	if err != nil {
		return err
	}
	for _, target := range mounts {
		if err := unmount(target); err != nil {
			return err
		}
	}
	if mounts, err := mountsBelow(p.run); err != nil || len(mounts) > 0 {
		return errors.Join(errors.New("still mounted: "+strings.Join(mounts, " ")), err)
	}
	if p.group != "" {
		if err := p.cgroups.remove(p.group); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(p.run); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// kill kills a container's process 1, and with it all others, and waits until it is gone: until its
// parent, which may be this process, has reaped it.
func (r *ociRuntime) kill(ctx context.Context, id string) error {
	client := r.client()
	for range 250 {
		state, err := client.State(ctx, id)
		if err != nil || state.Status == "stopped" || state.Pid <= 0 {
			return nil // never came to be, or is gone
		}
		_ = unix.Kill(state.Pid, unix.SIGKILL)
		reapStrays()
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the container " + id + " does not end")
}
