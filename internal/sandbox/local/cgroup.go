//go:build linux

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroups is the machine's control group tree. A group is named by its path below the root ("/arbe-1a2b/box1/exec-3"),
// which is the same for every controller. In version 1 (which includes hybrid machines) each controller has its own
// tree; in version 2 there is one.
type cgroups struct{ unified bool }

func findCgroups() cgroups {
	var st unix.Statfs_t
	err := unix.Statfs(cgroupRoot, &st)
	return cgroups{unified: err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC}
}

// dir returns the directory of a group for a controller.
func (c cgroups) dir(controller, group string) string {
	if c.unified {
		return filepath.Join(cgroupRoot, group)
	}
	return filepath.Join(cgroupRoot, controller, group)
}

// killer is the controller through which the processes of a group are found and killed: the freezer, because in version
// 1 kill must freeze a group.
const killer = "freezer"

// add creates a group for a command, below its box's group.
func (c cgroups) add(group string) error { return os.Mkdir(c.dir(killer, group), 0o755) }

// limiting are the controllers that enforce a box's limits.
var limiting = []string{"memory", "pids", "cpu"}

// separate moves process 1 of a box to a group of its own, beside the group with the box's limits, so that neither the
// process limit nor the memory limit can stop it. It gets its own share of cores, because its work for a command
// (writing its output) is not part of the box's share.
func (c cgroups) separate(pid int, group string, cores float64) error {
	for _, controller := range limiting {
		dir := c.dir(controller, group)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := enterGroup(dir, pid); err != nil {
			return err
		}
		if c.unified {
			break // version 2 has one tree for all controllers
		}
	}
	quota := int64(cores * cpuPeriod)
	if c.unified {
		return c.set("", group, "cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod))
	}
	return c.set("cpu", group, "cpu.cfs_quota_us", quota)
}

// limitSockets limits the memory of a box's sockets. In version 1, this memory is not part of the box's memory, and is
// counted only if it has a limit.
func (c cgroups) limitSockets(group string, bytes int64) error {
	if c.unified {
		return nil
	}
	err := c.set("memory", group, "memory.kmem.tcp.limit_in_bytes", bytes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // a kernel without this feature
		return nil
	}
	return err
}

// entrances opens the files through which a stub enters its box's limits and its command's group, which is below the
// box's. In version 2 there are none, because a process cannot move itself there; enter moves it.
func (c cgroups) entrances(box, command string) (files []*os.File, err error) {
	if c.unified {
		return nil, nil
	}
	dirs := []string{c.dir(killer, command)}
	for _, controller := range limiting {
		dirs = append(dirs, c.dir(controller, box))
	}
	for _, dir := range dirs {
		f, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// enter moves a stub to its command's group if it cannot do that itself.
func (c cgroups) enter(pid int, command string) error {
	if !c.unified {
		return nil
	}
	return enterGroup(c.dir(killer, command), pid)
}

func enterGroup(dir string, pid int) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// count returns the number of processes and threads in a group.
func (c cgroups) count(group string) int {
	text, _ := os.ReadFile(filepath.Join(c.dir("pids", group), "pids.current"))
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// drop removes a command's group. It fails while a process is in it.
func (c cgroups) drop(group string) error { return os.Remove(c.dir(killer, group)) }

// kill kills every process of a group and returns when none is left. It returns an error if some are left after the
// time limit, because they are stuck in the kernel.
//
// In version 1 it freezes the group while it kills, because a fork bomb would otherwise be faster than the list.
func (c cgroups) kill(group string, limit time.Duration) error {
	dir := c.dir(killer, group)
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		pids, err := members(dir)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && len(pids) == 0) {
			return nil
		}
		if err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("some processes of " + group + " cannot be killed")
		}
		if c.unified && os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
			continue
		}
		c.freeze(dir, true)
		pids, _ = members(dir)
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		c.freeze(dir, false)
	}
}

// freeze freezes or thaws a group, and waits a moment for the freeze. It ignores errors, because the caller kills in
// any case.
func (c cgroups) freeze(dir string, on bool) {
	file, value, frozen := "freezer.state", "THAWED", "FROZEN"
	if on {
		value = frozen
	}
	if c.unified {
		file, value = "cgroup.freeze", "0"
		if on {
			value = "1"
		}
	}
	_ = os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
	for range 50 {
		state, err := os.ReadFile(filepath.Join(dir, file))
		if !on || c.unified || err != nil || strings.TrimSpace(string(state)) == frozen {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// members returns the processes of a group and of the groups below it.
func members(dir string) (pids []int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		list, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(list)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}

// oomKills returns how often the kernel killed a process of a group because its memory was used up.
func (c cgroups) oomKills(group string) int {
	file := "memory.oom_control"
	if c.unified {
		file = "memory.events"
	}
	text, _ := os.ReadFile(filepath.Join(c.dir("memory", group), file))
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(count))
			return n
		}
	}
	return 0
}

// remove kills the processes of a group, and removes the group and everything below it from every tree.
func (c cgroups) remove(group string) error {
	err := c.kill(group, dying)
	trees := []string{cgroupRoot}
	if !c.unified {
		trees, _ = filepath.Glob(cgroupRoot + "/*")
	}
	for _, tree := range trees {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(tree, group), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- { // children first
			if e := os.Remove(dirs[i]); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

// limitsSwap reports whether the machine can limit a group's swap.
func (c cgroups) limitsSwap() bool {
	if c.unified {
		return true
	}
	_, err := os.Stat(filepath.Join(cgroupRoot, "memory", "memory.memsw.limit_in_bytes"))
	return err == nil
}

// limitsMemory reports whether the machine has the controllers that a box's limits need.
func (c cgroups) limitsMemory() bool {
	if !c.unified {
		_, err := os.Stat(filepath.Join(cgroupRoot, "memory", "memory.limit_in_bytes"))
		return err == nil
	}
	controllers, _ := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return strings.Contains(string(controllers), "memory")
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
