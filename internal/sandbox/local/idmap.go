//go:build linux

package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// If a disk is a copy of another box's disk, its files belong to the ids of that box. The mount of the disk maps these
// ids to those of the box that has the copy. Nothing on the disk changes.

// mapIDs maps the files of a mounted disk from one block of ids to another. Files of the server keep their owner.
func mapIDs(target string, from, to uint32) error {
	ids, err := idNamespace(from, to)
	if err != nil {
		return fmt.Errorf("map the ids of a disk: %w", err)
	}
	defer ids.Close()
	mount, err := unix.OpenTree(unix.AT_FDCWD, target, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("open the mount %s: %w", target, err)
	}
	defer unix.Close(mount)
	attributes := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ids.Fd())}
	if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, attributes); err != nil {
		return fmt.Errorf("map the ids of %s: %w", target, err)
	}
	if err := unmount(target); err != nil { // the copy of the mount keeps the disk in use
		return err
	}
	return unix.MoveMount(mount, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// mapsIDs is set when the kernel has mapped the ids of a disk. It then can do so for every disk.
var mapsIDs atomic.Bool

// canMapIDs returns why the kernel cannot map the ids of a mounted disk. It tries it only until it succeeds, because it has
// to fork the whole server.
func canMapIDs(trial string) error {
	if mapsIDs.Load() {
		return nil
	}
	err := mapIDs(trial, firstBlock, firstBlock+1)
	if err == nil {
		mapsIDs.Store(true)
	}
	return err
}

// idNamespace returns a user namespace that maps one block of ids to another, and root to itself. Creating it requires
// a first process, which ends before idNamespace returns.
func idNamespace(from, to uint32) (*os.File, error) {
	hold, release, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer hold.Close()
	cat, err := exec.LookPath("cat")
	if err != nil {
		release.Close()
		return nil, err
	}
	cmd := exec.Command(cat)
	cmd.Env, cmd.Stdin = []string{}, hold
	ids := []syscall.SysProcIDMap{
		{ContainerID: 0, HostID: 0, Size: 1},
		{ContainerID: int(from * blockSize), HostID: int(to * blockSize), Size: blockSize},
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true}
	if err := cmd.Start(); err != nil {
		release.Close()
		return nil, err
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	release.Close()
	_ = cmd.Wait() // it was only needed to create the namespace
	if err != nil {
		return nil, errors.Join(errors.New("a process has no user namespace"), err)
	}
	return namespace, nil
}
