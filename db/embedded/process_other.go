//go:build unix && !linux

package embedded

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/arbe-dev/arbe/internal/fault"
)

// inheritedDirectory exists only on Linux; see rootMayStepDown.
const inheritedDirectory = ""

// dieWithParent does nothing, because only Linux supports this. The next start ends leftover processes.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// rootMayStepDown returns an error, because without Linux's /proc, root cannot pass a directory to another user.
func rootMayStepDown() error {
	return fault.New(fault.Precondition, "PostgreSQL does not run as root", "start arbe as an ordinary user")
}

// postgresOn returns the pid in the cluster's pid file if it is a PostgreSQL that works on the cluster.
func postgresOn(cluster string, postmaster int) []int {
	if postmaster <= 0 {
		return nil
	}
	out, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(postmaster)).Output()
	if err != nil || !strings.Contains(string(out), cluster) {
		return nil
	}
	return []int{postmaster}
}
