//go:build linux

package local

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mountMemory creates a directory and, if the server is root, mounts a file system in memory there. A root file system for
// boxes has about a thousand small files and links, which each start of a server creates and each end removes. Where /run is
// on a disk, as in many containers, that took longer than everything else of a start. If the mount fails, the directory
// serves as it is.
func mountMemory(target string) error {
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	if asRoot() {
		_ = unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
	}
	return nil
}

// unmount unmounts a target. It waits for the last user, so that a following mount or removal does not meet a live file
// system. A mount that stays in use is detached after a while, and ends with its user.
func unmount(target string) error {
	var err error
	for deadline := time.Now().Add(dying); ; time.Sleep(10 * time.Millisecond) {
		err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		if time.Now().After(deadline) {
			err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
			break
		}
	}
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // not a mount, or no longer
		return nil
	}
	return fmt.Errorf("unmount %s: %w", target, err)
}

// unmountBelow unmounts everything under a directory, so that its contents can be removed. It checks twice, because
// removing the contents of a mounted disk would remove somebody's work.
func unmountBelow(dir string) error {
	mounts, err := mountsBelow(dir)
	for _, target := range mounts {
		err = errors.Join(err, unmount(target))
	}
	if err != nil {
		return err
	}
	if mounts, err := mountsBelow(dir); err != nil || len(mounts) > 0 {
		return errors.Join(errors.New("still mounted: "+strings.Join(mounts, " ")), err)
	}
	return nil
}

// mountsBelow returns the mounts under a directory, deepest first, because a mount cannot be unmounted before those on
// it.
func mountsBelow(dir string) ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append([]string{fields[4]}, found...)
		}
	}
	return found, nil
}
