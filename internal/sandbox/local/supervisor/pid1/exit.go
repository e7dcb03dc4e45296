//go:build linux

package main

import "golang.org/x/sys/unix"

func exit(code int) {
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(code), 0, 0)
	}
}
