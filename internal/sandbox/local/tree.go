//go:build linux

package local

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"syscall"

	"golang.org/x/sys/unix"
)

// process is one entry of the kernel's process table.
type process struct {
	name, state     string
	parent, session int
	started         uint64 // in ticks since the machine's start, like now
}

// killLimit is how long to wait until killed processes have ended.
const killLimit = 5 * time.Second

// ticksPerSecond is the unit in which the kernel shows process times, on every processor that pid1 supports.
const ticksPerSecond = 100

// now returns the present time in the unit of process.started.
func now() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails only for an unknown clock
	return uint64(t.Nano()) / uint64(time.Second/ticksPerSecond)
}

// readProcess reads the entry of one process.
func readProcess(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// "pid (name) state parent group session …". The name ends at the last parenthesis, because it may contain
	// parentheses itself.
	before, after := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if before < 0 || after < before {
		return process{}, fmt.Errorf("process %d: %q is not an entry", pid, text)
	}
	fields := strings.Fields(string(text[after+1:]))
	if len(fields) < 20 {
		return process{}, fmt.Errorf("process %d: %q is not an entry", pid, text)
	}
	p := process{name: string(text[before+1 : after]), state: fields[0]}
	p.parent, _ = strconv.Atoi(fields[1])
	p.session, _ = strconv.Atoi(fields[3])
	p.started, _ = strconv.ParseUint(fields[19], 10, 64)
	return p, nil
}

// killTree kills a process, its descendants and everything in its session, as far as list finds them. It returns the
// killed processes. It is used where there are no control groups.
func killTree(pid int, list func() map[int]process, signal func(pid int, s unix.Signal)) (killed []int) {
	return killAll(func() []int { return descendants(pid, list()) }, signal)
}

// killAll kills the processes that list finds. It stops all of them before it kills the first, so that none can create
// children unnoticed. It returns the killed processes, which may take a moment to end.
func killAll(list func() []int, signal func(pid int, s unix.Signal)) (killed []int) {
	stopped := map[int]bool{}
	for grown := true; grown; { // until a pass finds no new process
		grown = false
		for _, p := range list() {
			if !stopped[p] {
				signal(p, unix.SIGSTOP)
				stopped[p], grown = true, true
			}
		}
	}
	for p := range stopped {
		signal(p, unix.SIGKILL)
		killed = append(killed, p)
	}
	return killed
}

// awaitDeath waits until processes that were just killed have ended, for a few seconds at most: a process that survives
// is stuck in the kernel. On a busy machine, a killed process exists until it is scheduled once more.
func awaitDeath(killed []int) {
	began, limit := now(), time.Now().Add(killLimit)
	for _, pid := range killed {
		for {
			p, err := readProcess(pid)
			if err != nil || p.state == "Z" || p.state == "X" || p.started > began || time.Now().After(limit) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// processes returns the processes of this machine that have not ended.
func processes() map[int]process {
	table := map[int]process{}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // not a process
		}
		if p, err := readProcess(id); err == nil && p.state != "Z" {
			table[id] = p
		}
	}
	return table
}

func signalProcess(pid int, s unix.Signal) { _ = unix.Kill(pid, s) } // an error means that it has ended

// descendants returns a process, its descendants, and the processes in its session.
func descendants(pid int, table map[int]process) []int {
	belongs := map[int]bool{pid: true}
	for grown := true; grown; {
		grown = false
		for id, p := range table {
			if !belongs[id] && (belongs[p.parent] || p.session == pid) {
				belongs[id], grown = true, true
			}
		}
	}
	var list []int
	for id := range belongs {
		list = append(list, id)
	}
	return list
}

// exitCodeOf returns a wait status in a shell's form.
func exitCodeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
