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

// dieWithParent does nothing, because only Linux can do this. The next start ends what was left running.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// rootMayStepDown refuses, because without Linux's /proc another user cannot be given a directory of root's.
func rootMayStepDown() error {
	return fault.New(fault.Precondition, "PostgreSQL does not run as root", "start arbe as an ordinary user")
}

// postgresOn is the pid of the PostgreSQL that works on a cluster, if the one its pid file names does.
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
