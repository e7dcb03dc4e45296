//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A box's disk is a sparse file with an ext4 file system in it, mounted through a loop device: the only
// quota that every Linux file system offers, for bytes and for inodes alike. A full disk is an ordinary
// "No space left on device" inside and nobody's problem outside.

// makeDisk creates the disk image. What the box deletes is given back to the host, see mountDisk.
func makeDisk(ctx context.Context, image string, megabytes int) error {
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(f.Truncate(int64(megabytes)<<20), f.Close())
	if err != nil {
		return err
	}
	// No blocks are reserved for root, and nothing is zeroed ahead: the image is a fresh sparse file.
	mkfs := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4",
		"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", image)
	mkfs.Env = []string{"PATH=" + hostPath}
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// hostPath is where this package looks for the machine's own tools.
const hostPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// mountDisk mounts a disk image. The loop device frees itself with the last unmount.
func mountDisk(image, target string) error {
	var err error
	for range 20 {
		if err = tryMountDisk(image, target); !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO) {
			return err
		}
		time.Sleep(5 * time.Millisecond) // another process took the device between two calls
	}
	return err
}

func tryMountDisk(image, target string) error {
	device, err := attachLoop(image)
	if err != nil {
		return err
	}
	defer device.Close() // the mount keeps it
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	if err := unix.Mount(device.Name(), target, "ext4", flags, "discard"); err != nil {
		return fmt.Errorf("mount %s: %w", device.Name(), err)
	}
	return nil
}

// attachLoop opens a loop device that shows the image. A device that shows it already is used again:
// two devices over one image would be two file systems writing over each other.
func attachLoop(image string) (*os.File, error) {
	backing, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range backing {
		if shown, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(shown)) == image {
			return os.OpenFile("/dev/"+strings.Split(file, "/")[3], os.O_RDWR, 0)
		}
	}

	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("no free loop device: %w", err)
	}
	device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		device.Close()
		return nil, err
	}
	defer file.Close()
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	if err := unix.IoctlLoopConfigure(int(device.Fd()), &config); err != nil {
		device.Close()
		return nil, fmt.Errorf("attach %s: %w", image, err)
	}
	return device, nil
}

// unmount undoes a mount. It waits for the last user, so that a following mount or removal does not meet
// the file system alive; but one that is still in use after a while is detached, and goes with its user.
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
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // not a mount (any more)
		return nil
	}
	return fmt.Errorf("unmount %s: %w", target, err)
}

// unmountBelow unmounts everything under a directory, so that what is in it may be removed. It looks twice:
// removing a mounted disk's content would remove somebody's work.
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

// mountsBelow lists the mounts under a directory, the deepest first.
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
