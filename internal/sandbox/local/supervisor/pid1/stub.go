//go:build linux

package main

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// dropped are the capabilities of process 1. A stub removes them from its bounding set, so that no program that it
// starts can gain them.
var dropped = [...]uintptr{unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP}

// stubFiles are open files of process 1 for a stub; ruleset is negative for a stub that enters no domain.
type stubFiles struct {
	stdin, stdout, stderr, control, ruleset int
	groups                                  []int // each enters a control group
}

// newStub returns the stub of a command. The stub waits for its release after it has its files, so that the server can
// prepare for the command, or give up.
func newStub(d supervisor.Decoded, f stubFiles) *stub {
	s := &stub{calls: make([]call, 0, 96+len(f.groups)+len(d.Limits)+len(d.Paths))}
	s.enterGroups(f.groups)
	s.replaceFiles(f)
	s.add(0, may, unix.SYS_SETSID) // fails only for a leader of a group, which a new process is not
	s.add(supervisor.StepGroups, release, unix.SYS_READ, controlFile, s.keep(unsafe.Pointer(new([1]byte))), 1)
	s.setLimits(d.Limits)
	if d.UID != 0 {
		s.becomeUser(uintptr(d.UID), uintptr(d.GID))
	}
	// Process 1 ignores signals, and the program would inherit that.
	for signal := range uintptr(64) {
		s.add(0, may, unix.SYS_RT_SIGACTION, signal+1, s.keep(unsafe.Pointer(&defaulted)), 0, unsafe.Sizeof(defaulted.mask))
	}
	if d.Canary {
		sleep := unix.NsecToTimespec(100_000_000)
		s.add(0, must, unix.SYS_NANOSLEEP, s.keep(unsafe.Pointer(&sleep)), 0)
		s.add(0, must, unix.SYS_EXIT_GROUP, 0)
		return s
	}
	if d.Terminal {
		s.add(supervisor.StepTerminal, must, unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0)
	}
	if f.ruleset >= 0 {
		s.add(supervisor.StepLandlock, must, unix.SYS_LANDLOCK_RESTRICT_SELF, rulesetFile, 0)
	}
	s.add(supervisor.StepDirectory, must, unix.SYS_CHDIR, s.keep(unsafe.Pointer(&d.Dir[0])))
	s.becomeProgram(d)
	return s
}

func (s *stub) enterGroups(groups []int) {
	self := s.keep(unsafe.Pointer(&[1]byte{'0'})) // a thread that writes it enters the group itself
	for _, file := range groups {
		s.add(supervisor.StepGroups, enter, unix.SYS_WRITE, uintptr(file), self, 1)
	}
}

// replaceFiles closes all files of process 1 except the needed ones, because the command must not get its sockets and
// records.
func (s *stub) replaceFiles(f stubFiles) {
	for number, file := range []int{f.stdin, f.stdout, f.stderr} {
		s.add(0, must, unix.SYS_DUP3, uintptr(file), uintptr(number), 0)
	}
	// Each of the two may have the number that the other needs, so the first is moved out of the way.
	away := firstUnused
	for away == f.control || away == f.ruleset {
		away++
	}
	s.add(0, must, unix.SYS_DUP3, uintptr(f.control), uintptr(away), unix.O_CLOEXEC)
	if f.ruleset >= 0 {
		s.add(0, must, unix.SYS_DUP3, uintptr(f.ruleset), rulesetFile, unix.O_CLOEXEC)
	} else {
		s.add(0, may, unix.SYS_CLOSE, rulesetFile)
	}
	s.add(0, must, unix.SYS_DUP3, uintptr(away), controlFile, unix.O_CLOEXEC)
	s.add(0, must, unix.SYS_CLOSE_RANGE, firstUnused, ^uintptr(0)>>33, 0)
}

func (s *stub) setLimits(limits []supervisor.Limit) {
	for _, l := range limits {
		both := &[2]uint64{l.Value, l.Value}
		s.add(supervisor.StepLimits, must, unix.SYS_PRLIMIT64, 0, uintptr(l.Resource), s.keep(unsafe.Pointer(both)), 0)
	}
}

func (s *stub) becomeUser(uid, gid uintptr) {
	for _, capability := range dropped {
		s.add(supervisor.StepUser, must, unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, capability, 0)
	}
	s.add(supervisor.StepUser, must, unix.SYS_SETGROUPS, 0, 0)
	s.add(supervisor.StepUser, must, unix.SYS_SETRESGID, gid, gid, gid)
	s.add(supervisor.StepUser, must, unix.SYS_SETRESUID, uid, uid, uid)
}

// becomeProgram reports that the stub is ready, and tries each path of the program.
func (s *stub) becomeProgram(d supervisor.Decoded) {
	s.add(supervisor.StepProgram, may, unix.SYS_WRITE, controlFile, s.keep(unsafe.Pointer(&[1]byte{supervisor.Ready})), 1)
	argv, env := s.keep(pointers(d.Argv)), s.keep(pointers(d.Env))
	for _, path := range d.Paths {
		s.add(supervisor.StepProgram, become, unix.SYS_EXECVE, s.keep(unsafe.Pointer(&path[0])), argv, env)
	}
}

// pointers returns an array of pointers to texts that ends with nil.
func pointers(texts [][]byte) unsafe.Pointer {
	list := make([]*byte, len(texts)+1)
	for i, text := range texts {
		list[i] = &text[0]
	}
	return unsafe.Pointer(&list[0])
}
