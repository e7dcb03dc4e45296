//go:build linux

package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// The Go runtime's preparations for a fork, which package syscall and programs like gVisor also use. They block
// signals, because no handler of Go may run in the child.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// plan is everything that a stub needs, laid out so that it allocates nothing.
type plan struct {
	stdin, stdout, stderr, control, ruleset uintptr

	groups  [supervisor.MaxGroups]uintptr // the first grouped of them are used
	grouped uintptr
	self    [1]byte // written by a thread to enter a group itself

	limits         []supervisor.Limit
	uid, gid       uintptr
	own, canary    bool
	terminal       bool
	dir            *byte
	argv, env      []*byte // each ends with nil
	paths          []*byte
	sleep          unix.Timespec
	ready, release [1]byte
	failure        [2]uint32
}

func newPlan(d supervisor.Decoded, stdin, stdout, stderr, control, ruleset int, groups []int) *plan {
	p := &plan{
		stdin: uintptr(stdin), stdout: uintptr(stdout), stderr: uintptr(stderr), control: uintptr(control), ruleset: uintptr(ruleset),
		limits: d.Limits, uid: uintptr(d.UID), gid: uintptr(d.GID), own: d.Own && ruleset >= 0, canary: d.Canary, terminal: d.Terminal,
		dir: &d.Dir[0], argv: pointers(d.Argv), env: pointers(d.Env), paths: pointers(d.Paths)[:len(d.Paths)],
		sleep: unix.NsecToTimespec(100_000_000), ready: [1]byte{supervisor.Ready}, self: [1]byte{'0'},
		grouped: uintptr(len(groups)),
	}
	for i, fd := range groups {
		p.groups[i] = uintptr(fd)
	}
	return p
}

func pointers(texts [][]byte) []*byte {
	list := make([]*byte, len(texts)+1)
	for i, text := range texts {
		list[i] = &text[0]
	}
	return list
}

// The file descriptors of a stub.
const (
	controlFile = 3
	rulesetFile = 4
	firstUnused = 5
)

// dropped are the capabilities of process 1. A stub removes them from its bounding set, so that no program that it
// starts can gain them.
var dropped = [...]uintptr{unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP}

// fork makes a stub and returns its process id.
//
// The stub is a copy of this thread alone. The Go scheduler and memory management do not work in it, so it only makes
// system calls.
//
//go:norace
//go:noinline
func fork(p *plan) (int, syscall.Errno) {
	beforeFork()
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		return int(pid), errno
	}
	afterForkInChild()

	var step uint32
	var n, r, index uintptr
	var seen, outside syscall.Errno
	for index = 0; index < p.grouped; index++ {
		for {
			_, _, errno = unix.RawSyscall(unix.SYS_WRITE, p.groups[index], uintptr(unsafe.Pointer(&p.self)), 1)
			if errno != unix.EINTR {
				break
			}
		}
		if errno != 0 {
			outside = errno
		}
	}
	// Close all files of process 1 except the needed ones, because the command must not get its sockets and records.
	_, _, errno = unix.RawSyscall(unix.SYS_DUP3, p.stdin, 0, 0)
	if errno != 0 {
		goto end
	}
	if _, _, errno = unix.RawSyscall(unix.SYS_DUP3, p.stdout, 1, 0); errno != 0 {
		goto end
	}
	if _, _, errno = unix.RawSyscall(unix.SYS_DUP3, p.stderr, 2, 0); errno != 0 {
		goto end
	}
	// Each of the two may have the number that the other needs, so the first is moved out of the way.
	r, _, errno = unix.RawSyscall(unix.SYS_FCNTL, p.control, unix.F_DUPFD_CLOEXEC, 64)
	if errno != 0 {
		goto end
	}
	if p.own {
		if _, _, errno = unix.RawSyscall(unix.SYS_DUP3, p.ruleset, rulesetFile, unix.O_CLOEXEC); errno != 0 {
			goto end
		}
	} else {
		_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, rulesetFile, 0, 0)
	}
	if _, _, errno = unix.RawSyscall(unix.SYS_DUP3, r, controlFile, unix.O_CLOEXEC); errno != 0 {
		goto end
	}
	if _, _, errno = unix.RawSyscall(unix.SYS_CLOSE_RANGE, firstUnused, ^uintptr(0)>>33, 0); errno != 0 {
		goto end
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0) // fails only for a leader of a group, which a new process is not

	for {
		n, _, errno = unix.RawSyscall(unix.SYS_READ, controlFile, uintptr(unsafe.Pointer(&p.release)), 1)
		if errno != unix.EINTR {
			break
		}
	}
	if errno != 0 || n != 1 {
		goto end
	}

	step = supervisor.StepGroups
	if errno = outside; errno != 0 {
		goto fail
	}
	step = supervisor.StepLimits
	for index = 0; index < uintptr(len(p.limits)); index++ {
		var limit [2]uint64
		limit[0], limit[1] = p.limits[index].Value, p.limits[index].Value
		_, _, errno = unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(p.limits[index].Resource), uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
		if errno != 0 {
			goto fail
		}
	}
	step = supervisor.StepUser
	if p.uid != 0 {
		for index = 0; index < uintptr(len(dropped)); index++ {
			if _, _, errno = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, dropped[index], 0); errno != 0 {
				goto fail
			}
		}
		if _, _, errno = unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			goto fail
		}
		if _, _, errno = unix.RawSyscall(unix.SYS_SETRESGID, p.gid, p.gid, p.gid); errno != 0 {
			goto fail
		}
		if _, _, errno = unix.RawSyscall(unix.SYS_SETRESUID, p.uid, p.uid, p.uid); errno != 0 {
			goto fail
		}
	}
	// Process 1 ignores signals, and the program would inherit that.
	for index = 1; index <= 64; index++ {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, index, uintptr(unsafe.Pointer(&defaulted)), 0, 8, 0, 0)
	}
	if p.canary {
		_, _, errno = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&p.sleep)), 0, 0)
		if errno == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		goto end
	}
	if p.terminal {
		step = supervisor.StepTerminal
		if _, _, errno = unix.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0); errno != 0 {
			goto fail
		}
	}
	if p.own {
		step = supervisor.StepLandlock
		if _, _, errno = unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rulesetFile, 0, 0); errno != 0 {
			goto fail
		}
	}
	step = supervisor.StepDirectory
	if _, _, errno = unix.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(p.dir)), 0, 0); errno != 0 {
		goto fail
	}
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, controlFile, uintptr(unsafe.Pointer(&p.ready)), 1)
	step = supervisor.StepProgram
	errno = unix.ENOENT
	for index = 0; index < uintptr(len(p.paths)); index++ {
		_, _, errno = unix.RawSyscall(unix.SYS_EXECVE,
			uintptr(unsafe.Pointer(p.paths[index])), uintptr(unsafe.Pointer(&p.argv[0])), uintptr(unsafe.Pointer(&p.env[0])))
		if errno == unix.EACCES {
			seen = errno // a later path may work
		} else if errno != unix.ENOENT && errno != unix.ENOTDIR {
			break
		}
	}
	if (errno == unix.ENOENT || errno == unix.ENOTDIR) && seen != 0 {
		errno = seen
	}
fail:
	p.failure[0], p.failure[1] = step, uint32(errno)
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, controlFile, uintptr(unsafe.Pointer(&p.failure)), supervisor.FailureSize)
end:
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 125, 0, 0)
	}
}
