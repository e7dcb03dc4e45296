//go:build linux

package local

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// extent is a contiguous part of a file.
type extent struct {
	logical, physical, size int64
	unwritten               bool // the file system holds it, and it reads as zeros
}

// maxExtents is the maximum number of extents of the ballast. A box can fragment its free space without limit. In this
// case, the host holds all of it, and none of it becomes ballast.
const maxExtents = 8192

var errTorn = errors.New("the free space of the disk is torn into too many pieces")

// extents returns the extents of a file from an offset on, in order. If there are more than maxExtents, the error is
// errTorn.
func extents(f *os.File, from int64) (list []extent, err error) {
	err = eachExtent(f, from, func(x extent) error {
		if list = append(list, x); len(list) > maxExtents {
			return errTorn
		}
		return nil
	})
	return list, err
}

// eachExtent calls do with the extents of a file from an offset on, in order, until do fails. It first writes the
// cached data of the file to disk.
func eachExtent(f *os.File, from int64, do func(extent) error) error {
	const (
		fiemap      = 0xc020660b
		syncFirst   = 1
		last        = 1
		isUnwritten = 0x800
	)
	type entry struct {
		logical, physical, length uint64
		_                         [2]uint64
		flags                     uint32
		_                         [3]uint32
	}
	for {
		var request struct {
			start, length        uint64
			flags, mapped, count uint32
			_                    uint32
			extents              [128]entry
		}
		request.start, request.length, request.flags, request.count = uint64(from), uint64(1<<62), syncFirst, uint32(len(request.extents))
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemap, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return errno
		}
		for _, e := range request.extents[:request.mapped] {
			x := extent{int64(e.logical), int64(e.physical), int64(e.length), e.flags&isUnwritten != 0}
			if before := from - x.logical; before > 0 {
				x.logical, x.physical, x.size = from, x.physical+before, x.size-before
			}
			if err := do(x); err != nil {
				return err
			}
			from = x.logical + x.size
			if e.flags&last != 0 {
				return nil
			}
		}
		if request.mapped == 0 {
			return nil
		}
	}
}

var errEnough = errors.New("that is enough")

// allocate makes the file system allocate a part of a file.
func allocate(f *os.File, at, size int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), 0, at, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// punch releases a part of a file, which then reads as zeros.
func punch(f *os.File, at, size int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, size)
}
