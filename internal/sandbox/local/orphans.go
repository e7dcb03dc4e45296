//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// orphans are the processes that become ours because this process is a subreaper: what the runtime
// started and then left by ending. Being one is a property of the whole process, hence so is this.
var orphans struct {
	// starting is held for reading while the runtime starts something, until it is adopted, and for
	// writing while strays are reaped: so that what was just started is not taken for a stray.
	starting sync.RWMutex

	mu      sync.Mutex
	adopted map[int]bool
}

// child is a process that the runtime started and that became ours.
type child struct {
	process *os.Process
	done    chan struct{} // closed when it was reaped
	code    int           // as a shell gives it; valid after done
}

// adoptOrphans makes this process the parent of what the runtime leaves behind.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// adopt begins to wait for an orphan; orphans.starting is held for reading since before it was started.
func adopt(pid int) (*child, error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	orphans.mu.Lock()
	if orphans.adopted == nil {
		orphans.adopted = map[int]bool{}
	}
	orphans.adopted[pid] = true
	orphans.mu.Unlock()
	c := &child{process: p, done: make(chan struct{})}
	go func() {
		state, err := p.Wait()
		orphans.mu.Lock()
		delete(orphans.adopted, pid)
		orphans.mu.Unlock()
		c.code = 255 // of a process that is not our child, which a runtime of another kind may give us
		if err == nil {
			c.code = state.ExitCode()
			if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
				c.code = 128 + int(status.Signal())
			}
		}
		close(c.done)
	}()
	return c, nil
}

func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// reapStrays reaps orphans that nobody waits for: the remains of a runtime that was itself killed while
// it was starting a command (by the box's memory limit for one), and of another server that was our
// child. Left alone they count against their box, and keep its end from being complete.
//
// A stray is told from the children that other parts of this program wait for by living in a pid
// namespace below ours, or by the name that runc gives its helpers.
func reapStrays() {
	orphans.starting.Lock()
	defer orphans.starting.Unlock()
	orphans.mu.Lock()
	defer orphans.mu.Unlock()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range lists {
		list, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(list)) {
			pid, err := strconv.Atoi(field)
			if err != nil || orphans.adopted[pid] || !stray(field) {
				continue
			}
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // an error means that it is gone already
		}
	}
}

func stray(pid string) bool {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return false
	}
	helper, zombie, below := false, false, false
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "Name":
			helper = strings.HasPrefix(value, "runc:[")
		case "State":
			zombie = strings.HasPrefix(value, "Z")
		case "NSpid":
			below = len(strings.Fields(value)) > 1
		}
	}
	return zombie && (below || helper)
}
