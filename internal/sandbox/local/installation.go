//go:build linux

package local

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

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
