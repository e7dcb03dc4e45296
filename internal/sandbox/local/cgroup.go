//go:build linux

package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroups is the machine's control group tree. A group is named by its path below the root
// ("/arbe-1a2b/box1/exec-3"), the same in every controller. On version 1 (and on a hybrid machine, which
// counts as version 1) each controller has a tree of its own; on version 2 there is one.
type cgroups struct{ unified bool }

func findCgroups() cgroups {
	var st unix.Statfs_t
	err := unix.Statfs(cgroupRoot, &st)
	return cgroups{unified: err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC}
}

// dir is where a group's files of one controller are.
func (c cgroups) dir(controller, group string) string {
	if c.unified {
		return filepath.Join(cgroupRoot, group)
	}
	return filepath.Join(cgroupRoot, controller, group)
}

// killer is the controller through which a group's processes are found and killed.
const killer = "freezer"

// execArg is what the runtime's exec --cgroup takes for a group below the box's own.
func (c cgroups) execArg(name string) string {
	if c.unified {
		return "/" + name
	}
	return killer + ":/" + name
}

// add makes a group for one command, below its box's.
func (c cgroups) add(group string) error { return os.Mkdir(c.dir(killer, group), 0o755) }

// drop removes a command's group; it fails while something lives in it.
func (c cgroups) drop(group string) error { return os.Remove(c.dir(killer, group)) }

// kill kills every process of a group and returns when none is left, or an error when some still are
// after a time limit (a process stuck in the kernel).
//
// On version 1 the group is frozen while it is killed: otherwise a fork bomb outruns the list.
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
			return errors.New("some processes of " + group + " do not die")
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

// freeze stops or thaws a group, and waits a moment for a stop to be complete. Errors are left to the
// caller's loop: killing goes on either way.
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

// members lists the processes of a group and of the groups below it.
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

// oomKills counts how often the kernel killed something of a group because its memory was used up.
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

// remove kills what is in a group and removes it, and everything below it, from every tree.
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

// limitsSwap says whether the machine lets a group's swap be limited.
func (c cgroups) limitsSwap() bool {
	if c.unified {
		return true
	}
	_, err := os.Stat(filepath.Join(cgroupRoot, "memory", "memory.memsw.limit_in_bytes"))
	return err == nil
}

// limitsMemory says whether the machine has the controllers that a box's limits need.
func (c cgroups) limitsMemory() bool {
	if !c.unified {
		_, err := os.Stat(filepath.Join(cgroupRoot, "memory", "memory.limit_in_bytes"))
		return err == nil
	}
	controllers, _ := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return strings.Contains(string(controllers), "memory")
}
