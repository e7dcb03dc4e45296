package embedded

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// inheritedDirectory names the first of a command's extra files, whatever path leads there.
const inheritedDirectory = "/proc/self/fd/3"

func dieWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }

func rootMayStepDown() error { return nil }

// postgresOn is the pids of every PostgreSQL process that works on a cluster. It finds them by their current directory,
// because the pid file names none but the postmaster, which may be dead.
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
		// Skip the shell of an operator in that directory. A process that is ending has no "exe" any more, but may still
		// hold the cluster's shared memory; its name it has to the end.
		if name, err := os.ReadFile(filepath.Join(proc, "comm")); err == nil && strings.HasPrefix(string(name), "postgres") {
			pids = append(pids, pid)
		}
	}
	return pids
}
