//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A box's disk is a file with an ext4 file system, mounted through a loop device. This is the only quota, for bytes and
// inodes alike, that works on every Linux file system. A full disk is an ordinary "No space left on device" in the box
// and no problem outside.
//
// The image is sparse, but the host's disk holds all space that a running box can write before the box writes it
// (window.go). Otherwise a host without space would fail the writes of every box, and their file systems would break.
// Watching the free space alone would be too late, because the kernel still has gigabytes to write when the limit is
// reached.

// makeDisk creates a sparse disk image.
func makeDisk(ctx context.Context, image string, megabytes int) error {
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(f.Truncate(int64(megabytes)<<20), f.Close())
	if err != nil {
		return err
	}
	// Reserve no blocks for root or for growing, and zero nothing ahead, because the image is a new sparse file, which
	// reads as zeros.
	args := []string{"-q", "-F", "-m", "0", "-O", "^resize_inode", "-J", "size=4", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"}
	if megabytes >= 4096 {
		args = append(args, "-i", "32768") // one file for each 32 KiB; the tables for twice as many would take 160 MiB of 10 GiB
	}
	mkfs := exec.CommandContext(ctx, "mkfs.ext4", append(args, image)...)
	mkfs.Env = []string{"PATH=" + hostPath}
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// newDisk creates the disk image of a new box without holding space for it. Creating a file system takes a tenth of the
// time of creating a box. A disk of the default size is therefore created once, and all others are copies of it that
// share its UUID.
func (d *Driver) newDisk(ctx context.Context, image string, megabytes int) error {
	if megabytes != d.cfg.Limits.DiskMB {
		return makeDisk(ctx, image, megabytes)
	}
	blocks, err := d.emptyDisk()
	if err != nil { // the cause may have been temporary
		return makeDisk(ctx, image, megabytes)
	}
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(megabytes) << 20)
	for _, b := range blocks {
		if err == nil {
			_, err = f.WriteAt(b.data, b.at)
		}
	}
	return errors.Join(err, f.Close())
}

// makeEmptyDisk creates a disk of the default size, and returns its non-zero parts, about 200 KiB.
func (d *Driver) makeEmptyDisk() ([]block, error) {
	image := filepath.Join(d.run, "empty-disk-"+d.start)
	defer os.Remove(image)
	ctx, cancel := context.WithTimeout(context.Background(), patience) // not the context of one box, because others wait for it too
	defer cancel()
	if err := makeDisk(ctx, image, d.cfg.Limits.DiskMB); err != nil {
		return nil, err
	}
	return nonzero(image)
}

// nonzero returns the non-zero pages of a file. It does not read holes.
func nonzero(name string) (blocks []block, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var page, zero [4096]byte
	for at := int64(0); ; at += int64(len(page)) {
		if at, err = f.Seek(at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			return blocks, nil // only a hole is left
		}
		if err != nil {
			return nil, err
		}
		n, err := f.ReadAt(page[:], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if !bytes.Equal(page[:n], zero[:n]) {
			blocks = append(blocks, block{at, bytes.Clone(page[:n])})
		}
	}
}

// loopMajor is the kernel's number for loop devices.
const loopMajor = 7

// giveBack releases a mounted disk's unused space to the host. It only saves space, so an error can be ignored.
func giveBack(target string) error {
	f, err := os.Open(target)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	// If nothing is mounted at target, this would otherwise trim the host's own disk.
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || unix.Major(st.Dev) != loopMajor {
		return errors.Join(err, errors.New(target+" is not a disk of a box"))
	}
	if err := unix.Syncfs(int(f.Fd())); err != nil { // space that was freed a moment ago is not free before this
		return err
	}
	// The kernel's struct fstrim_range: the whole disk, in pieces of any length.
	all := struct{ start, length, least uint64 }{0, math.MaxUint64, 0}
	const fitrim = 0xc0185879
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fitrim, uintptr(unsafe.Pointer(&all))); errno != 0 {
		return errno
	}
	return nil
}

// mountDisk mounts a disk image. The loop device is freed with the last unmount.
func mountDisk(image, target string) error {
	var err error
	for range 20 {
		if err = tryMountDisk(image, target); !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO) {
			return err
		}
		time.Sleep(5 * time.Millisecond) // another process took the device in between
	}
	return err
}

func tryMountDisk(image, target string) error {
	device, err := attachLoop(image)
	if err != nil {
		return err
	}
	defer device.Close() // the mount keeps it open
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	// Space must stay held while the disk is mounted. Therefore do not discard freed space, and do not zero ahead
	// (init_itable), which makes holes in the file.
	if err := unix.Mount(device.Name(), target, "ext4", flags, "nodiscard,noinit_itable"); err != nil {
		return fmt.Errorf("mount %s: %w", device.Name(), err)
	}
	return nil
}

// attachLoop returns a loop device that shows the image. It reuses a device that already does, because two devices over
// one image would be two file systems that overwrite each other.
func attachLoop(image string) (*os.File, error) {
	if device := loopOf(image); device != "" {
		return os.OpenFile(device, os.O_RDWR, 0)
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
	// The kernel frees the device with the last unmount, so nothing needs to free it after a crash.
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	if err := unix.IoctlLoopConfigure(int(device.Fd()), &config); err != nil {
		device.Close()
		return nil, fmt.Errorf("attach %s: %w", image, err)
	}
	return device, nil
}

// loopOf returns the loop device that shows an image; empty if none does.
func loopOf(image string) string {
	backing, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range backing {
		if shown, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(shown)) == image {
			return "/dev/" + strings.Split(file, "/")[3]
		}
	}
	return ""
}

// releaseHeld releases the space of a disk that the host holds but that was never written. The disk must not be in use.
func releaseHeld(image string) error {
	if loopOf(image) != "" {
		return errors.New("the disk is in use")
	}
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return eachExtent(f, 0, func(x extent) error {
		if !x.unwritten {
			return nil
		}
		return punch(f, x.logical, x.size)
	})
}

// holding reports whether the host holds more than 8 MiB of a disk that were never written.
func holding(image string) bool {
	f, err := os.Open(image)
	if err != nil {
		return false
	}
	defer f.Close()
	var sum int64
	err = eachExtent(f, 0, func(x extent) error {
		if x.unwritten {
			sum += x.size
		}
		if sum > 8<<20 {
			return errEnough
		}
		return nil
	})
	return errors.Is(err, errEnough) // also false where the host cannot tell
}
