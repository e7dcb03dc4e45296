//go:build linux

package local

import (
	"path/filepath"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// findLaunch returns the box and the record of a launched command.
func (d *Driver) findLaunch(ref, id string) (*box, string, error) {
	b, err := d.find(ref)
	if err == nil && !validLaunch.MatchString(id) {
		err = fault.Newf(fault.Invalid, "use a-z, 0-9 and -, at most 64 characters", "%q is not a command's id", id)
	}
	if err != nil {
		return nil, "", err
	}
	b.mu.RLock() // a quarantine moves the box
	defer b.mu.RUnlock()
	return b, filepath.Join(b.dir, "records", id), nil
}

// launchedCommand returns a launched command by its process, if the command or a process that it left runs. It returns
// nil if the command is unknown.
func (b *box) launchedCommand(l launched) *supervised {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.running == nil {
		return nil
	}
	c := &b.running.commands
	c.mu.Lock()
	defer c.mu.Unlock()
	for run := range c.waited {
		if s, ok := run.(*supervised); ok && s.recorded && s.pid == l.pid && s.started == l.started {
			return s
		}
	}
	for s := range c.leaving {
		if s.recorded && s.pid == l.pid && s.started == l.started {
			return s
		}
	}
	return nil
}

// validLaunch is the form of a command's id. It is also a file name, so it must not be able to leave its directory.
var validLaunch = lazyregexp.New(`^[a-z0-9-]{1,64}$`)
