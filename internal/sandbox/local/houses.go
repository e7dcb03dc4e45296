//go:build linux

package local

import (
	"context"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Config.HouseMB limits the space of a house on the machine's disk. It includes the files of the house's boxes, the
// space held for boxes that run, and the layers. A house that exceeds the limit loses its layers first. If it still
// exceeds the limit, it gets no further box, and its boxes can write only to the space that is already held for them.

// Occupied returns the space that each house uses on the machine's disk.
func (d *Driver) Occupied(ctx context.Context) (map[string]sandbox.Occupied, error) {
	houses := map[string]sandbox.Occupied{}
	of := func(house string) sandbox.Occupied {
		o, ok := houses[house]
		if !ok {
			o = sandbox.Occupied{Boxes: map[string]int64{}, Most: int64(d.cfg.HouseMB) << 20}
		}
		return o
	}
	for _, b := range d.allBoxes() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		o := of(b.Labels.House)
		o.Boxes[b.ID] = d.occupied(b)
		houses[b.Labels.House] = o
	}
	layers, err := d.layers.sizes()
	for house, size := range layers {
		o := of(house)
		o.Layers = size
		houses[house] = o
	}
	return houses, err
}

// occupied returns the space that a box uses on the machine's disk. It checks all places where the box may be, because
// the box may move in the meantime.
func (d *Driver) occupied(b *box) (size int64) {
	for _, dir := range []string{filepath.Join(d.cfg.Dir, "boxes", b.ID), filepath.Join(d.quarantine(), b.ID)} {
		_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // files come and go
			}
			if info, err := e.Info(); err == nil {
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					size += st.Blocks * 512 // not the size, because disks are sparse
				}
			}
			return nil
		})
	}
	return size
}

// houseRoom fails if a house has no room for size more bytes. It removes layers of the house to make room.
func (d *Driver) houseRoom(house string, size int64) error {
	most := int64(d.cfg.HouseMB) << 20
	if house == "" || !d.caps.DiskLimit { // without disks, measuring takes too long
		return nil
	}
	var boxes int64
	for _, b := range d.allBoxes() {
		if b.Labels.House == house {
			boxes += max(d.occupied(b), b.claimed.Load())
		}
	}
	for {
		layers, err := d.layers.sizes()
		if err != nil || boxes+layers[house]+size < most {
			return err
		}
		if !d.layers.yield(house) {
			return fault.Newf(fault.Exhausted, "delete sandboxes that are not needed (arbe sandbox list shows what each takes up), or ask the operator to raise house_disk_mb",
				"the sandboxes of this house take up %d MiB of this machine's disk, and it may take up %d MiB", boxes>>20, most>>20)
		}
	}
}

// claim makes room in a box's house for size more bytes of the box. Until release is called, they count as the box's.
// If the house has no room, the error is a [fault.Exhausted].
func (d *Driver) claim(b *box, size int64) (release func(), err error) {
	d.claiming.Lock() // two boxes must not both count on the same space
	defer d.claiming.Unlock()
	if err := d.houseRoom(b.Labels.House, size); err != nil {
		return nil, err
	}
	b.claimed.Store(d.occupied(b) + size)
	return func() { b.claimed.Store(0) }, nil
}
