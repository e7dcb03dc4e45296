//go:build linux

package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct sigaction.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

var (
	ignored   = sigaction{handler: 1}
	defaulted = sigaction{}
)

func setSignal(n uintptr, a *sigaction) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(a)), 0, unsafe.Sizeof(a.mask), 0, 0)
}

// ignoreSignals ignores all signals, because commands can signal process 1 if the server is not root. Signals that the
// kernel sends for an error in this program still end it.
func ignoreSignals() {
	for n := uintptr(1); n <= 64; n++ {
		switch syscall.Signal(n) {
		case unix.SIGKILL, unix.SIGSTOP: // cannot be ignored
		case unix.SIGCHLD: // if ignored, the kernel would reap what we wait for
		case unix.SIGURG: // used by the Go runtime
		default:
			setSignal(n, &ignored)
		}
	}
}
