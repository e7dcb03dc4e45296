//go:build linux

package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
)

// The window of a running box is the free space of its disk. The host holds this space: it is allocated in the disk
// image. A file of the server on the box's disk, the ballast, takes up all other free space, and the host holds nothing
// for it. As the box writes, the server widens the window ahead of it: it makes the host hold the space of the
// ballast's end, and then truncates the ballast.
//
// A box can therefore always write as much as its file system reports as free, even if the host's disk fills up. A
// large disk costs only its contents and its window. When the host has no more space to hold, the box's disk is full.
//
// When a box stops, the host releases the space that was held but never written.

const (
	// windowLook is the interval between two checks of the free space of running boxes.
	windowLook = 25 * time.Millisecond
	// windowWide is the maximum free space of a box that has deleted files. If it has more, a part becomes ballast
	// again.
	windowWide = 4 * window
	// ballastName is the name of the ballast, which is next to the directories that boxes see.
	ballastName = "ballast"
)

// disk is the mounted disk of a box.
type disk struct {
	image *os.File
	// ballast is nil if the disk is too small for one.
	ballast *os.File
	files   string
	size    int64
}

// openDisk opens a mounted disk, with its ballast.
func openDisk(image, files string) (d *disk, err error) {
	d = &disk{files: files}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.image, err = os.OpenFile(image, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	info, err := d.image.Stat()
	if err != nil {
		return nil, err
	}
	if d.size = info.Size(); d.size <= 2*window {
		return d, nil
	}
	d.ballast, err = os.OpenFile(filepath.Join(files, ballastName), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	return d, err
}

func (d *disk) close() {
	for _, f := range []*os.File{d.image, d.ballast} {
		if f != nil {
			f.Close()
		}
	}
}

// free returns the number of bytes that the box can still write.
func (d *disk) free() (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(d.files, &st)
	return int64(st.Bfree) * st.Bsize, err
}

// ballasted returns the size of the ballast.
func (d *disk) ballasted() (int64, error) {
	if d.ballast == nil {
		return 0, nil
	}
	info, err := d.ballast.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// grow adds free space to the ballast and returns its new extents. It adds nothing if the ballast would have too many
// extents.
func (d *disk) grow(by int64) ([]extent, error) {
	size, err := d.ballasted()
	if err != nil {
		return nil, err
	}
	const block = 4096
	if err := allocate(d.ballast, size, by/block*block); err != nil {
		return nil, err
	}
	if _, err = extents(d.ballast, 0); errors.Is(err, errTorn) {
		return nil, d.ballast.Truncate(size)
	}
	return extents(d.ballast, size)
}

// holdRest makes the host hold the whole disk except the ballast. It first calls room with the maximum number of bytes
// that this needs.
func (d *disk) holdRest(room func(int64) error) error {
	var taken []extent
	if d.ballast != nil {
		var err error
		if taken, err = extents(d.ballast, 0); err != nil {
			return err
		}
	}
	sort.Slice(taken, func(i, j int) bool { return taken[i].physical < taken[j].physical })
	var rest []extent
	at, sum := int64(0), int64(0)
	for _, x := range append(taken, extent{physical: d.size}) {
		if x.physical > at {
			rest = append(rest, extent{physical: at, size: x.physical - at})
			sum += x.physical - at
		}
		at = max(at, x.physical+x.size)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(d.image.Fd()), &st); err != nil {
		return err
	}
	return d.hold(rest, max(0, sum-st.Blocks*512), room)
}

// hold makes the host hold extents, by their physical places on the disk. It first calls room with size.
func (d *disk) hold(list []extent, size int64, room func(int64) error) error {
	if err := room(size); err != nil {
		return err
	}
	for _, x := range list {
		if err := allocate(d.image, x.physical, x.size); err != nil {
			return err
		}
	}
	return nil
}

// openWindow gives a mounted disk that nothing uses yet its window. If the host lacks the space, the error is a
// [fault.Exhausted].
func (d *Driver) openWindow(image, files string) error {
	disk, err := openDisk(image, files)
	if err != nil {
		return err
	}
	defer disk.close()
	if disk.ballast != nil {
		free, err := disk.free()
		if err != nil {
			return err
		}
		size, err := disk.ballasted()
		switch {
		case err != nil:
		case free > window:
			_, err = disk.grow(free - window)
		case free < window && size > 0:
			err = disk.ballast.Truncate(max(0, size-(window-free)))
		}
		if err != nil {
			return err
		}
	}
	return d.held(disk.holdRest)
}

// held calls hold, which makes the host hold space, and passes it the function that checks for room. If the host has
// too little space, the error is a [fault.Exhausted].
func (d *Driver) held(hold func(room func(int64) error) error) error {
	d.reserving.Lock() // two callers must not both count on the same free space
	defer d.reserving.Unlock()
	err := hold(d.room)
	if errors.Is(err, unix.EOPNOTSUPP) {
		d.warnOverbooked.Do(func() {
			d.cfg.Log.Warn("the data directory's file system cannot reserve space: a full disk can break the disks of sandboxes", "directory", d.cfg.Dir)
		})
		return nil
	}
	if errors.Is(err, unix.ENOSPC) {
		return d.noRoom(window, 0)
	}
	return err
}

// widen makes the host hold the space of the ballast's end, and gives that space to the box. whole reports that no
// ballast is left.
func (d *Driver) widen(disk *disk, by int64) (whole bool, err error) {
	size, err := disk.ballasted()
	if err != nil || size == 0 {
		return err == nil, err
	}
	left := max(0, size-by)
	end, err := extents(disk.ballast, left)
	if err != nil {
		return false, err
	}
	if err := d.held(func(room func(int64) error) error { return disk.hold(end, size-left, room) }); err != nil {
		return false, err
	}
	return left == 0, disk.ballast.Truncate(left)
}

// narrow turns space that a box has freed into ballast, and releases it on the host. It also makes the host hold the
// rest again, because the kernel releases space when it zeroes a few blocks.
func (d *Driver) narrow(disk *disk) error {
	free, err := disk.free()
	if err == nil && disk.ballast != nil && free > windowWide {
		var fresh []extent
		fresh, err = disk.grow(free - window)
		for _, x := range fresh {
			err = errors.Join(err, punch(disk.image, x.physical, x.size))
		}
	}
	return errors.Join(err, d.held(disk.holdRest))
}

// watchWindows widens the windows of running boxes until ctx ends.
func (d *Driver) watchWindows(ctx context.Context) {
	tick := time.NewTicker(windowLook)
	defer tick.Stop()
	var widening sync.WaitGroup
	defer widening.Wait()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, b := range d.running() {
			if b.window.low() && b.window.begin() {
				widening.Go(func() {
					defer b.window.end()
					d.widenBox(ctx, b)
				})
			}
		}
	}
}

// widenBox widens a box's window if it runs. To make room on the host, it stops other boxes that are idle.
func (d *Driver) widenBox(ctx context.Context, b *box) {
	err := b.withDisk(func(disk *disk) error {
		var whole bool
		// This is not part of makeRoom, because stopping the boxes of others makes no room for this house.
		step := b.window.step()
		if err := d.houseRoom(b.Labels.House, step); err != nil {
			return err
		}
		err := d.makeRoom(ctx, func() (err error) {
			whole, err = d.widen(disk, step)
			return err
		})
		if whole {
			b.window.watch("") // the box has all of its disk
		}
		return err
	})
	if err == nil {
		return
	}
	b.window.rest() // otherwise a box that fills its disk on a full machine would keep this busy
	if fault.CodeOf(err) != fault.Exhausted {
		d.cfg.Log.Warn("the disk of a sandbox cannot be widened; it is full for its commands", "sandbox", b.ID, "error", err)
	}
}

// widenAhead widens the window of a box that may outlive this server, because nobody widens it until the next server
// starts.
func (d *Driver) widenAhead(b *box) {
	_ = b.withDisk(func(disk *disk) error { // if this fails, the box continues with its present window
		_, err := d.widen(disk, maxStep)
		return err
	})
}

// narrowBox narrows the window of a running box.
func (d *Driver) narrowBox(b *box) {
	if err := b.withDisk(d.narrow); err != nil && fault.CodeOf(err) != fault.Exhausted {
		d.cfg.Log.Warn("the unused space of a sandbox's disk cannot be released", "sandbox", b.ID, "error", err)
	}
}

// withDisk calls do with the disk of a box, unless the box does not run or is being started or stopped.
func (b *box) withDisk(do func(*disk) error) error {
	if !b.Disk || !b.mu.TryRLock() {
		return nil
	}
	defer b.mu.RUnlock()
	if b.gone || b.running == nil {
		return nil
	}
	disk, err := openDisk(b.diskImage(), b.running.files)
	if err != nil {
		return err
	}
	defer disk.close()
	return do(disk)
}
