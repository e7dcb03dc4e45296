package embedded

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// inheritedDirectory is the path of a command's first extra file, whatever its original path.
const inheritedDirectory = "/proc/self/fd/3"

func dieWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }

func rootMayStepDown() error { return nil }

// postgresOn returns the pids of all PostgreSQL processes that work on a cluster. It finds them by their current
// directory, because the pid file names only the postmaster, which may be dead.
func postgresOn(cluster string, _ int) []int {
	want, err := os.Stat(cluster)
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		proc := filepath.Join("/proc", entry.Name())
		// A process of another user does not show its directory, and is not ours.
		in, err := os.Stat(filepath.Join(proc, "cwd"))
		if err != nil || !os.SameFile(in, want) {
			continue
		}
		// Skip an operator's shell in that directory. A process that is ending has no "exe" any more, but may still
		// hold the cluster's shared memory. It keeps its name to the end.
		if name, err := os.ReadFile(filepath.Join(proc, "comm")); err == nil && strings.HasPrefix(string(name), "postgres") {
			pids = append(pids, pid)
		}
	}
	return pids
}
