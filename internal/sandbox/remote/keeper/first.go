//go:build linux

package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// first is process 1 of a box. It reaps what nobody else does. No command can kill it: the kernel keeps a process 1 from
// SIGKILL, and what it receives besides has no effect.
func first() {
	runtime.GOMAXPROCS(1)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals)
	for {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
		<-signals // one that is dropped, because this waits for another, is no loss
	}
}
