package dispatch

import (
	"bytes"
	"io"
	"sync"
	"testing"
)

// kept is what a spool has.
func (s *spool) kept(t *testing.T) []byte {
	t.Helper()
	content, err := s.content()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSpoolsShareTheRoomOfTheirServer(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	room := &spoolRoom{left: size}
	piece := bytes.Repeat([]byte("0123456789abcdef"), 2<<10) // 32 KiB
	var all sync.WaitGroup
	spools := make([]*spool, 16)
	for i := range spools {
		spools[i] = newSpool(t.TempDir(), size, room)
		all.Go(func() {
			for range 16 {
				spools[i].write(piece)
			}
		})
	}
	all.Wait()
	onDisk := int64(0)
	for _, s := range spools {
		text := s.kept(t)
		if s.printed != 16*int64(len(piece)) || !bytes.Equal(text, bytes.Repeat(piece, 16)[:len(text)]) {
			t.Errorf("of %d bytes %d are kept, which are not the first ones", s.printed, len(text))
		}
		if s.full != (int64(len(text)) < s.printed) {
			t.Errorf("of %d bytes %d are kept, and full is %t", s.printed, len(text), s.full)
		}
		if s.file != nil {
			info, err := s.file.Stat()
			if err != nil {
				t.Fatal(err)
			}
			onDisk += info.Size()
		} else if len(text) > keepHead+keepTail {
			t.Errorf("%d bytes are in memory", len(text))
		}
	}
	if onDisk > size || onDisk == 0 {
		t.Errorf("the files have %d bytes, want at most %d", onDisk, size)
	}
	for _, s := range spools {
		s.close()
		s.close() // gives nothing twice
	}
	if room.left != size {
		t.Errorf("of the room %d bytes are left, want all", room.left)
	}
	// What was cut off stays so when there is room again: there is no hole in it.
	s := newSpool(t.TempDir(), size, &spoolRoom{left: 200 << 10})
	defer s.close()
	for range 8 {
		s.write(piece)
	}
	before := s.kept(t)
	s.room.give(size)
	s.write(piece)
	if after := s.kept(t); !bytes.Equal(before, after) || len(before) != 192<<10 {
		t.Errorf("it had %d bytes, and has %d", len(before), len(after))
	}
}
