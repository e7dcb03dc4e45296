//go:build linux

package local

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// MachineTotal returns the default limits for all boxes of this machine together. They leave room for the server and
// its Postgres. Boxes get all memory but a quarter; the quarter is at least 1 GiB, at most 8 GiB and never more than
// half of the memory. They get seven eighths of the cores, and half of the processes that the kernel allows, but at
// most 65536.
func MachineTotal() sandbox.Limits {
	var info unix.Sysinfo_t
	memory := 4096
	if unix.Sysinfo(&info) == nil {
		all := int(info.Totalram * uint64(info.Unit) >> 20)
		memory = all - min(max(all/4, 1024), 8192, all/2)
	}
	return sandbox.Limits{
		MemoryMB: memory,
		CPUs:     float64(runtime.NumCPU()) * 7 / 8,
		PIDs:     min(kernelPIDs()/2, 65536),
	}
}

// kernelPIDs returns how many processes and threads the kernel allows.
func kernelPIDs() int {
	least := 32768
	for i, name := range []string{"pid_max", "threads-max"} {
		text, err := os.ReadFile("/proc/sys/kernel/" + name)
		n, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil && parseErr == nil && (i == 0 || n < least) {
			least = n
		}
	}
	return least
}
