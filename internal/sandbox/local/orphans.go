//go:build linux

package local

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphans are the processes that become ours because this process is a subreaper: what the runtime
// started and then left by ending, and what servers below this process leave that are killed. Being a
// subreaper is a property of the whole process, hence so is this.
var orphans = struct {
	exits chan os.Signal // a child has ended, or one may be looked at that could not be before

	mu       sync.Mutex
	adopted  map[int]bool
	suspects map[int]bool     // ended at the last look, and perhaps nobody's
	starting map[*call]uint64 // calls that start something, and since when (see process.started)
}{exits: make(chan os.Signal, 1), adopted: map[int]bool{}, starting: map[*call]uint64{}}

// child is a process that the runtime started and that became ours.
type child struct {
	process *os.Process
	done    chan struct{} // closed when it was reaped
	code    int           // as a shell gives it; valid after done
	inside  int           // of a command in a box that is apart: its id there
}

// adoptOrphans makes this process the parent of what the runtime leaves behind, and begins to reap it.
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

// beginStart is called before the runtime starts something: until endStart, no process that is younger
// is taken for a stray.
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

// adopt begins to wait for an orphan, between beginStart and endStart of the call that started it.
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
// it was starting a command (by the box's memory limit for one), of one that leaves helpers behind, and
// of another server that was our child. Left alone they count against their box, and keep its process 1
// from ending.
func reapStrays() {
	orphans.mu.Lock()
	defer orphans.mu.Unlock()
	suspects := map[int]bool{}
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range lists {
		list, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(list)) {
			pid, err := strconv.Atoi(field)
			if err != nil || orphans.adopted[pid] || !mayBeStray(pid) {
				continue
			}
			// From a pid namespace below ours it is no child of anybody here. Of the others, what somebody
			// waits for is reaped at once: only one that is still there at the next look is asked about.
			if belowOurNamespace(pid) || (orphans.suspects[pid] && !waitedFor(pid)) {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // an error means that it is gone already
			} else {
				suspects[pid] = true
			}
		}
	}
	if orphans.suspects = suspects; len(suspects) > 0 {
		time.AfterFunc(time.Second, lookAgain)
	}
}

// lookAgain makes the next look at our children happen now.
func lookAgain() {
	select {
	case orphans.exits <- unix.SIGCHLD:
	default: // it is due already
	}
}

// mayBeStray says whether a child has ended and is not what a call of the runtime, under way, has started
// and not adopted yet.
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

// waitedFor says whether this program has a descriptor of a process, as it has of every child that was
// started through package os and not waited for yet.
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
	// Where the machine has no such descriptors, nothing tells.
	own, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		unix.Close(own)
	}
	return err != nil
}

// belowOurNamespace says whether a process has ids in more pid namespaces than this one.
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
