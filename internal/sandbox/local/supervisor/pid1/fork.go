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

// The file descriptors of a stub.
const (
	controlFile = 3
	rulesetFile = 4
	firstUnused = 5
)

// stub is a process that becomes a command: the system calls that it makes, one after the other. The last ones become the
// program, so a stub that gets past them has failed.
type stub struct {
	calls   []call
	failure [2]uint32 // of the step that failed
	kept    []unsafe.Pointer
}

// call is a system call of a stub.
type call struct {
	number uintptr
	args   [5]uintptr
	rule   rule
	step   uint32 // written to the control socket if the call fails; a stub that fails in step 0 ends in silence
}

// rule says what a stub does with the result of a call.
type rule byte

const (
	must    rule = iota // an error ends the stub
	may                 // an error does not matter
	enter               // an error ends the stub once it is released, because its control socket is not in place yet
	release             // anything other than one byte ends the stub
	become              // an error ends the stub, unless another path may have the program
)

// add appends a call.
func (s *stub) add(step uint32, rule rule, number uintptr, args ...uintptr) {
	c := call{number: number, rule: rule, step: step}
	copy(c.args[:], args)
	s.calls = append(s.calls, c)
}

// keep returns the address of memory for a call, and keeps the memory until the stub has its copy.
func (s *stub) keep(p unsafe.Pointer) uintptr {
	s.kept = append(s.kept, p)
	return uintptr(p)
}

// fork makes a process that runs a stub, and returns its id.
//
// The process is a copy of this thread alone. The Go scheduler and memory management do not work in it, so it allocates
// nothing and calls no function except for system calls.
//
//go:norace
//go:noinline
func fork(s *stub) (int, syscall.Errno) {
	beforeFork()
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		return int(pid), errno
	}
	afterForkInChild()
	var n uintptr
	var entering syscall.Errno
	missing := unix.ENOENT
	for i := range s.calls {
		c := &s.calls[i]
		for {
			n, _, errno = unix.RawSyscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], 0)
			if errno != unix.EINTR {
				break
			}
		}
		s.failure[0] = c.step
		switch c.rule {
		case must:
			if errno != 0 {
				goto fail
			}
		case enter:
			if errno != 0 {
				entering = errno
			}
		case release:
			if n != 1 {
				goto end
			}
			if errno = entering; errno != 0 {
				goto fail
			}
		case become:
			if errno != unix.ENOENT && errno != unix.ENOTDIR && errno != unix.EACCES {
				goto fail
			}
			if missing != unix.EACCES {
				missing = errno
			}
		case may:
		}
	}
	errno = missing
fail:
	if s.failure[1] = uint32(errno); s.failure[0] != 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, controlFile, uintptr(unsafe.Pointer(&s.failure)), supervisor.FailureSize)
	}
end:
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 125, 0, 0)
	}
}
