//go:build linux

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// cpuPeriod is the period of the kernel's processor quotas, in microseconds.
const cpuPeriod = 100_000

// limit creates a group with limits on all groups below it together.
func (c cgroups) limit(group string, l sandbox.Limits) error {
	memory, pids, quota := int64(l.MemoryMB)<<20, int64(l.PIDs), int64(l.CPUs*cpuPeriod)
	if c.unified {
		// The runtime would do this too, but only when it creates the first group below.
		if err := errors.Join(c.delegate(""), makeGroup(c.dir("", group))); err != nil {
			return err
		}
		return errors.Join(
			c.set("", group, "memory.max", memory), c.set("", group, "pids.max", pids),
			c.set("", group, "cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod)), c.delegate(group),
		)
	}
	for _, controller := range []string{"memory", "pids", "cpu"} {
		if err := makeGroup(c.dir(controller, group)); err != nil {
			return err
		}
	}
	_ = c.set("memory", group, "memory.use_hierarchy", 1) // always on in newer kernels, which refuse to set it
	return errors.Join(
		c.set("memory", group, "memory.limit_in_bytes", memory), c.set("pids", group, "pids.max", pids),
		c.set("cpu", group, "cpu.cfs_period_us", cpuPeriod), c.set("cpu", group, "cpu.cfs_quota_us", quota),
	)
}

// delegate lets the groups below a group of version 2 have limits.
func (c cgroups) delegate(group string) error {
	return c.set("", group, "cgroup.subtree_control", "+memory +pids +cpu")
}

func makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// set writes one of a group's files.
func (c cgroups) set(controller, group, file string, value any) error {
	return os.WriteFile(filepath.Join(c.dir(controller, group), file), fmt.Append(nil, value), 0)
}
