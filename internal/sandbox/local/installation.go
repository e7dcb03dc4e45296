//go:build linux

package local

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// installation is the place where one driver's boxes run. It holds all of the driver's resources on the machine under
// one name, so that another driver that finds it abandoned can clean it up.
type installation struct {
	run     string // the run directory
	runtime *ociRuntime
	cgroups cgroups
	group   string // the control group of all boxes; empty if the server cannot create any
	lock    *os.File
	log     *slog.Logger
}

// graceName is a file that marks an installation whose boxes may outlive their server, so that the servers of other
// directories leave them alone.
const graceName = "grace"

// lockName is the file that the user of an installation locks.
const lockName = "lock"

func newInstallation(runs, name, runtimeCommand string, ownKernel bool, log *slog.Logger) installation {
	run := filepath.Join(runs, name)
	p := installation{
		run: run, cgroups: findCgroups(), log: log,
		runtime: newRuntime(runtimeCommand, ownKernel, run),
	}
	if asRoot() && p.cgroups.limitsMemory() {
		p.group = "/arbe-" + name
	}
	return p
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

// lockFile locks a file until it is closed or its holder ends. With wait it creates the file and waits for the lock;
// otherwise the file must exist and be unlocked.
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
