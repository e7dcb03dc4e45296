//go:build linux

package local

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"context"

	"golang.org/x/sys/unix"
)

// orphans are the processes that become our children because this process is a subreaper. They are processes that the
// runtime started before it ended, and processes that servers below this process leave when they are killed. Being a
// subreaper is a property of the whole process, so this is a global variable.
var orphans = struct {
	exits chan os.Signal // a child has ended, or a child that could not be checked before can be checked now

	mu       sync.Mutex
	adopted  map[int]bool
	suspects map[int]bool     // had ended at the last check; perhaps nobody waits for them
	starting map[*call]uint64 // calls that start something, and since when (see process.started)
}{exits: make(chan os.Signal, 1), adopted: map[int]bool{}, starting: map[*call]uint64{}}

// child is a process that the runtime started and that became our child.
type child struct {
	process *os.Process
	done    chan struct{} // closed when it was reaped
	code    int           // in a shell's form; valid after done
	inside  int           // for a command in a box with its own kernel, its id there
}

// adoptOrphans makes this process the parent of the processes that the runtime leaves behind, and starts to reap them.
var adoptOrphans = sync.OnceValue(func() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	signal.Notify(orphans.exits, unix.SIGCHLD)
	go func() {
		for range orphans.exits {
			reapStrays()
		}
	}()
	return nil
})

// beginStart must be called before the runtime starts something. Until endStart, no younger process counts as a stray,
// because the call may be about to adopt it.
func beginStart(c *call) {
	orphans.mu.Lock()
	defer orphans.mu.Unlock()
	orphans.starting[c] = now()
}

func endStart(c *call) {
	orphans.mu.Lock()
	delete(orphans.starting, c)
	orphans.mu.Unlock()
	lookAgain()
}

// adopt starts to wait for an orphan. Call it between beginStart and endStart of the call that started it. Otherwise it
// could be reaped as a stray first.
func adopt(pid int) (*child, error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	orphans.mu.Lock()
	orphans.adopted[pid] = true
	orphans.mu.Unlock()
	c := &child{process: p, done: make(chan struct{})}
	go func() {
		state, err := p.Wait()
		orphans.mu.Lock()
		delete(orphans.adopted, pid)
		orphans.mu.Unlock()
		c.code = 255 // for a process that is not our child, which another kind of runtime may return
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

// reapStrays reaps orphans that nobody waits for. They are left by a runtime that was killed while it was starting a
// command (for example by the box's memory limit), by a runtime that leaves helpers behind, or by another server that
// was our child. Otherwise they would count against their box and keep its process 1 from ending.
func reapStrays() {
	orphans.mu.Lock()
	defer orphans.mu.Unlock()
	if !anyEnded() { // as after most ends of children, because someone waits for them
		orphans.suspects = nil
		return
	}
	suspects := map[int]bool{}
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range lists {
		list, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(list)) {
			pid, err := strconv.Atoi(field)
			if err != nil || orphans.adopted[pid] || !mayBeStray(pid) {
				continue
			}
			// Nobody here waits for a process in a pid namespace below ours. Any other process is reaped only if it is
			// still there at the next check: if someone waits for a process, it is reaped at once.
			if belowOurNamespace(pid) || (orphans.suspects[pid] && !waitedFor(pid)) {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // an error means that it is already gone
			} else {
				suspects[pid] = true
			}
		}
	}
	if orphans.suspects = suspects; len(suspects) > 0 {
		time.AfterFunc(time.Second, lookAgain)
	}
}

// anyEnded reports whether a child has ended and was not reaped. It is one system call, where the search for strays reads
// the files of every child.
func anyEnded() bool {
	var found unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &found, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	return err == nil && found.Signo != 0 || err != nil && !errors.Is(err, unix.ECHILD)
}

// lookAgain triggers a check of our children now.
func lookAgain() {
	select {
	case orphans.exits <- unix.SIGCHLD:
	default: // a check is already due
	}
}

// mayBeStray reports whether a child has ended, and no call of the runtime in progress may still adopt it.
func mayBeStray(pid int) bool {
	p, err := readProcess(pid)
	if err != nil || p.state != "Z" {
		return false
	}
	for _, since := range orphans.starting {
		if p.started >= since {
			return false
		}
	}
	return true
}

// waitedFor reports whether this program has a pidfd of a process, as it has for every child that package os started
// and has not waited for yet.
func waitedFor(pid int) bool {
	fds, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		return true
	}
	for _, fd := range fds {
		info, _ := os.ReadFile("/proc/self/fdinfo/" + fd.Name())
		if strings.Contains(string(info), fmt.Sprintf("\nPid:\t%d\n", pid)) {
			return true
		}
	}
	// Without support for pidfds on the machine, this is unknown, and the process must not be reaped.
	own, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		unix.Close(own)
	}
	return err != nil
}

// belowOurNamespace reports whether a process has ids in more pid namespaces than this one.
func belowOurNamespace(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(ids)) > 1
		}
	}
	return false
}

// call is one call of the runtime that starts a process.
type call struct {
	ctx           context.Context // not the caller's, because a call is not interrupted; see patience
	cancel        func()
	dir, pid, log string // files through which the runtime answers
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
