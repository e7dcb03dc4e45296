//go:build linux

package local

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

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

// lockName is the file that whoever uses a place holds.
const lockName = "lock"

func newPlace(runs, name, runtimeCommand string, apart bool, log *slog.Logger) place {
	run := filepath.Join(runs, name)
	p := place{
		run: run, cgroups: findCgroups(), log: log,
		runtime: newRuntime(runtimeCommand, apart, run),
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
	all, err := lockFile(filepath.Join(runs, lockName), true) // one at a time
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
			other := newPlace(runs, entry.Name(), p.runtime.command, p.runtime.apart, p.log)
			others.Go(func() { other.sweepAbandoned(ctx) })
		}
	}
	others.Wait()
	if err := p.sweep(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(p.run, 0o711); err != nil {
		return err
	}
	p.lock, err = lockFile(filepath.Join(p.run, lockName), true)
	return err
}

// sweepAbandoned sweeps the place of a server that does not live any more.
func (p *place) sweepAbandoned(ctx context.Context) {
	held, err := lockFile(filepath.Join(p.run, lockName), false)
	if err != nil {
		return // its server lives, or it is not a place
	}
	defer held.Close()
	if err := p.sweep(ctx); err != nil {
		p.log.Warn("what a killed server left of its sandboxes stays", "directory", p.run, "cause", err)
	}
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
