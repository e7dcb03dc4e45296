//go:build linux

package main

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedForks is the thread in the shared domain. It must not run anything else, because a thread cannot leave its
// domain.
type sharedForks struct {
	stubs chan *stub
	made  chan made
}

type made struct {
	pid   int
	errno syscall.Errno
}

func (f *sharedForks) run(ruleset uintptr, entered chan struct{}) {
	runtime.LockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		exit(1)
	}
	close(entered)
	for s := range f.stubs {
		pid, errno := fork(s)
		f.made <- made{pid, errno}
	}
}
