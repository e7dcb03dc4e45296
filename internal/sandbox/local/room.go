//go:build linux

package local

import (
	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
)

// room fails if the data directory's disk would have too little free space after size more bytes. It removes cached
// environments to make room.
func (d *Driver) room(size int64) error {
	for {
		free, err := d.free()
		if err != nil || free-size >= d.floor() {
			return err
		}
		if !d.layers.yield("") {
			return d.noRoom(size, free)
		}
	}
}

// free returns the free space of the data directory's disk, and floor how much of it must stay free.
func (d *Driver) free() (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(d.cfg.Dir, &st)
	return int64(st.Bavail) * st.Bsize, err
}

func (d *Driver) floor() int64 { return int64(d.cfg.FreeMB) << 20 }

// Short returns why no box can be created at the moment, or nil if no reason is known.
func (d *Driver) Short() error { return d.room(0) }

func (d *Driver) noRoom(size, free int64) error {
	return fault.Newf(fault.Exhausted, "try again when other commands have ended, use smaller disks and images, or ask the operator to free space on the disk",
		"this machine's disk has %d MiB of free space, of which %d MiB must stay free; %d MiB are needed", free>>20, d.cfg.FreeMB, size>>20)
}
