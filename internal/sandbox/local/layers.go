//go:build linux

package local

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// maxLayersOfHouse limits the number of layers of a house, because list reads all of them.
const maxLayersOfHouse = 64

// layer is the stored description of a layer.
type layer struct {
	sandbox.Layer
	Block uint32 // the block of host ids that own its files
}

// layerName returns the name of a layer. It depends on everything that distinguishes layers, so that no box finds a
// layer of another house.
func layerName(of record, key string) string {
	text, err := json.Marshal([]any{"1", of.Labels.Installation, of.Labels.House, of.Labels.Environment, of.Image, of.Limits.DiskMB, key})
	if err != nil {
		panic(err) // it consists of strings and a number
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// clearUnfinished removes incomplete layers. They remain when a server is killed while it makes or removes a layer.
func (s *layers) clearUnfinished() error {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if strings.Contains(e.Name(), "-") {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	return err
}

// add makes a layer from a disk that nothing uses. It keeps an existing layer with the same name, unless that is too
// old.
func (s *layers) add(ctx context.Context, name string, l layer, image string) error {
	if there, err := s.keeps(name); there || err != nil {
		return err
	}
	size, err := allocated(image)
	if err != nil {
		return err
	}
	if err := s.makeSpace(l.Labels.House, size); err != nil {
		return err
	}
	// The layer gets its name when it is complete and durable, so that a crash leaves no partial layer under a name.
	fresh, err := os.MkdirTemp(s.dir, "making-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) // nothing is left there on success
	if err := copyDisk(ctx, filepath.Join(fresh, diskName), image, true, s.enough); err != nil {
		return err
	}
	l.ID, l.Size = name, size
	text, err := json.Marshal(l)
	if err == nil {
		err = writeDurably(filepath.Join(fresh, layerFile), text)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	err = os.Rename(fresh, filepath.Join(s.dir, name))
	s.mu.Unlock()
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return nil // another box of the environment was faster
	}
	if err == nil {
		err = s.makeSpace(l.Labels.House, 0) // other layers may have been made at the same time
	}
	return err
}

// keeps reports whether there is a layer that can be used. If it cannot be used, keeps removes it.
func (s *layers) keeps(name string) (there bool, err error) {
	s.mu.Lock()
	l, err := s.read(name)
	if err == nil && !s.old(l) {
		s.mu.Unlock()
		return true, nil
	}
	away := s.unname(name)
	s.mu.Unlock()
	return false, remove([]string{away})
}

// The names of a layer's files.
const diskName, layerFile = "disk.ext4", "layer.json"

// open opens a layer's disk and records that it is used. If the layer does not exist or is too old, the error is a
// [fault.NotFound].
func (s *layers) open(name string) (l layer, disk *os.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err = s.read(name)
	if err == nil {
		disk, err = os.Open(filepath.Join(s.dir, name, diskName))
	}
	if errors.Is(err, os.ErrNotExist) || err == nil && s.old(l) {
		if disk != nil {
			disk.Close()
		}
		return l, nil, fault.New(fault.NotFound, "there is no cached environment", "build the sandbox from the beginning")
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Join(s.dir, name, layerFile), now, now) // only the order of removal depends on it
	return l, disk, err
}

// old reports whether a layer is too old to be used.
func (s *layers) old(l layer) bool { return time.Since(l.MadeAt) > s.limits.Age }

func (s *layers) read(name string) (l layer, err error) {
	text, err := os.ReadFile(filepath.Join(s.dir, name, layerFile))
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	return l, err
}

// usedLayer is a layer with the time of its last use.
type usedLayer struct {
	layer
	used time.Time
}

// list returns the layers, least recently used first. Callers hold s.mu.
func (s *layers) list() (list []usedLayer, err error) {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if strings.Contains(e.Name(), "-") {
			continue
		}
		l, err := s.read(e.Name())
		l.ID = e.Name() // a layer that cannot be read is the first to be removed
		used := usedLayer{layer: l}
		if info, statErr := os.Stat(filepath.Join(s.dir, e.Name(), layerFile)); err == nil && statErr == nil {
			used.used = info.ModTime()
		}
		list = append(list, used)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].used.Before(list[j].used) })
	return list, err
}

// makeSpace removes layers until a further layer of a house with size bytes is within the limits. If the layer itself
// exceeds the limits, makeSpace removes nothing and returns a [fault.Exhausted].
func (s *layers) makeSpace(house string, size int64) error {
	space, ofHouse := int64(s.limits.SpaceMB)<<20, int64(s.limits.HouseMB)<<20
	if size > min(space, ofHouse) {
		return fault.Newf(fault.Exhausted, "make the environment smaller, or ask the operator to raise environment_cache_mb and environment_cache_house_mb",
			"the prepared files take up %d MiB, and a cached environment may have %d", size>>20, min(space, ofHouse)>>20)
	}
	s.mu.Lock()
	list, err := s.list()
	var count int
	var total, houseTotal int64
	for _, l := range list {
		total += l.Size
		if l.Labels.House == house {
			count, houseTotal = count+1, houseTotal+l.Size
		}
	}
	extra := min(1, int(size)) // 0 if no layer is added
	var gone []string
	for _, l := range list {
		tooMany := count+extra > maxLayersOfHouse || houseTotal+size > ofHouse
		if !s.old(l.layer) && !(tooMany && l.Labels.House == house) && total+size <= space && s.room(size) {
			continue
		}
		gone = append(gone, s.unname(l.ID))
		total -= l.Size
		if l.Labels.House == house {
			count, houseTotal = count-1, houseTotal-l.Size
		}
		if !s.room(size) { // only the removal makes room
			err = errors.Join(err, remove(gone))
			gone = nil
		}
	}
	s.mu.Unlock()
	err = errors.Join(err, remove(gone))
	if err == nil && size > 0 {
		err = s.enough(size)
	}
	return err
}

// enough fails if the machine's disk has no room for size bytes.
func (s *layers) enough(size int64) error {
	if s.room(size) {
		return nil
	}
	return fault.New(fault.Exhausted, "free space on the machine's disk", "the machine's disk is too full to keep the prepared files")
}

// yield removes the least recently used layer of a house, or of all houses if house is empty. It reports whether it
// removed one.
func (s *layers) yield(house string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, _ := s.list()
	for _, l := range list {
		if house == "" || l.Labels.House == house {
			s.log.Info("a cached environment gives way to sandboxes", "house", l.Labels.House, "environment", l.Labels.Environment)
			return remove([]string{s.unname(l.ID)}) == nil
		}
	}
	return false
}

// sizes returns the total size of the layers of each house.
func (s *layers) sizes() (of map[string]int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.list()
	of = map[string]int64{}
	for _, l := range list {
		of[l.Labels.House] += l.Size
	}
	return of, err
}

// drop removes a layer. It succeeds if the layer does not exist.
func (s *layers) drop(name string) error {
	s.mu.Lock()
	away := s.unname(name)
	s.mu.Unlock()
	return remove([]string{away})
}

// unname renames a layer, so that nobody finds it, and returns the directory to remove. Callers hold s.mu.
func (s *layers) unname(name string) (away string) {
	away = filepath.Join(s.dir, "removing-"+rand.Text())
	_ = os.Rename(filepath.Join(s.dir, name), away) // fails if another call was faster
	return away
}

func remove(dirs []string) (err error) {
	for _, dir := range dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// allocated returns the space that a file uses on the machine's disk, in bytes.
func allocated(name string) (int64, error) {
	var st unix.Stat_t
	err := unix.Stat(name, &st)
	return st.Blocks * 512, err
}

// copyPiece is the number of bytes that are copied between two checks of the free space.
const copyPiece = 64 << 20

// copyDisk copies a sparse file without its holes. Both files share their blocks if the file system supports that. room
// fails if there is no space for that many bytes.
func copyDisk(ctx context.Context, target, source string, durable bool, room func(int64) error) (err error) {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	return copyOpen(ctx, target, from, durable, room)
}

// copyOpen is like copyDisk, but copies from an open file.
func copyOpen(ctx context.Context, target string, from *os.File, durable bool, room func(int64) error) (err error) {
	to, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && durable {
			err = to.Sync()
		}
		if err = errors.Join(err, to.Close()); err != nil {
			os.Remove(target)
		}
	}()
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	info, err := from.Stat()
	if err == nil {
		err = to.Truncate(info.Size())
	}
	for at := int64(0); err == nil; {
		if at, err = from.Seek(at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		var end int64
		if err == nil {
			end, err = from.Seek(at, unix.SEEK_HOLE)
		}
		for ; err == nil && at < end; at += min(copyPiece, end-at) {
			piece := min(copyPiece, end-at)
			if err = errors.Join(ctx.Err(), room(piece)); err == nil {
				err = copyRange(to, from, at, piece)
			}
		}
	}
	return err
}

// copyRange copies a part of a file to the same place in another one.
func copyRange(to, from *os.File, at, size int64) error {
	for size > 0 {
		read, write := at, at
		n, err := unix.CopyFileRange(int(from.Fd()), &read, int(to.Fd()), &write, int(min(size, math.MaxInt32)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
			_, err = io.Copy(io.NewOffsetWriter(to, at), io.NewSectionReader(from, at, size))
			return err
		case err != nil:
			return fmt.Errorf("copy a disk: %w", err)
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		at, size = at+int64(n), size-int64(n)
	}
	return nil
}
