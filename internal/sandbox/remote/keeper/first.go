//go:build linux

package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// first is process 1 of a box. It reaps orphans. No command can kill it: the kernel protects process 1 from SIGKILL, and
// other signals have no effect on it.
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
		sweepSecrets()
		<-signals // a signal dropped during the wait for another is no loss
	}
}
