//go:build linux

package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock keeps commands out of each other's memory. A process may inspect another only if the other is in its domain
// or in a nested one. A domain must deny something. These domains deny creating block devices, which nobody in a box
// can do anyway. A domain also denies moving files between directories unless a rule allows it, so these domains have
// such a rule.
//
// Commands without secrets share a domain, so that tools such as lsof work among them. One thread enters it once and
// makes all their stubs, which inherit it. The main thread is in no domain and makes the other stubs, each of which
// enters its own domain. So no domain is nested in another.

var ruleAttribute = [1]uint64{unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_REFER}

// prepareDomains creates the ruleset and the thread of the shared domain, if the kernel supports Landlock. A failure
// ends the box, because a command outside all domains could read all others.
func (s *server) prepareDomains() {
	s.ruleset = -1
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < 2 { // without REFER, added in version 2, no file could be moved between directories
		return
	}
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&ruleAttribute)), 8, 0)
	if errno != 0 {
		exit(1)
	}
	// Move it above the numbers that a stub uses, because a stub replaces those before it uses the ruleset.
	high, err := unix.FcntlInt(ruleset, unix.F_DUPFD_CLOEXEC, 2*firstUnused)
	if err != nil {
		exit(1)
	}
	unix.Close(int(ruleset))
	ruleset = uintptr(high)
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		exit(1)
	}
	defer unix.Close(root)
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: unix.LANDLOCK_ACCESS_FS_REFER, Parent_fd: int32(root)}
	_, _, errno = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if errno != 0 {
		exit(1)
	}
	s.ruleset = int(ruleset)
	s.shared = &sharedForks{stubs: make(chan *stub), made: make(chan made)}
	entered := make(chan struct{})
	go s.shared.run(ruleset, entered)
	<-entered
}

// fork makes a stub in the right domain.
func (s *server) fork(st *stub, own bool) (int, syscall.Errno) {
	if own || s.shared == nil {
		return fork(st)
	}
	s.shared.stubs <- st
	m := <-s.shared.made
	return m.pid, m.errno
}
