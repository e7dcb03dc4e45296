package command

import (
	"bytes"
	"io"
	"sync"
	"testing"
)

// kept returns the contents of a spool.
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
	space := newSpoolSpace(size)
	piece := bytes.Repeat([]byte("0123456789abcdef"), 2<<10) // 32 KiB
	var all sync.WaitGroup
	spools := make([]*spool, 16)
	for i := range spools {
		spools[i] = newSpool(t.TempDir(), size, "a house", space)
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
		s.close() // must not free the space twice
	}
	if space.left != size {
		t.Errorf("of the space %d bytes are left, want all", space.left)
	}
	// A truncated output stays truncated when there is space again: it never has a hole.
	s := newSpool(t.TempDir(), size, "a house", newSpoolSpace(400<<10))
	defer s.close()
	for range 8 {
		s.write(piece)
	}
	before := s.kept(t)
	s.space.give("another", size)
	s.write(piece)
	if after := s.kept(t); !bytes.Equal(before, after) || len(before) != 192<<10 {
		t.Errorf("it had %d bytes, and has %d", len(before), len(after))
	}
}

func TestNoHouseTakesTheRoomForSpoolsOfOthers(t *testing.T) {
	t.Parallel()
	space := newSpoolSpace(1 << 20)
	const step = 1 << 10
	fill := func(house string) (n int64) {
		for space.take(house, step) {
			n += step
		}
		return n
	}
	if a, b, c := fill("a"), fill("b"), fill("c"); a != 512<<10 || b != 256<<10 || c != 128<<10 {
		t.Errorf("the houses get %d, %d and %d bytes, one after the other", a, b, c)
	}
	if more := fill("a"); more != 0 {
		t.Errorf("the first gets %d more", more)
	}
	space.give("a", 512<<10)
	if more := fill("c"); more != 256<<10 {
		t.Errorf("once the first gave back its space, another gets %d more", more)
	}
}
