package command

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/entry"
)

// printed returns the output of a stream printed in pieces: live, and in the result.
func printed(t testing.TB, pieces ...[]byte) (live []byte, r entry.CommandResult) {
	t.Helper()
	var mu sync.Mutex
	o := startOutput(func(offset int64, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		if offset != int64(len(live)) {
			t.Errorf("a piece at %d follows %d bytes", offset, len(live))
		}
		live = append(live, data...)
	})
	for _, p := range pieces {
		if n, err := o.stdout.Write(p); n != len(p) || err != nil {
			t.Errorf("%d of %d bytes are taken: %v", n, len(p), err)
		}
	}
	return live, o.close()
}

func TestOutputIsTheSameTextWhereverItIsCut(t *testing.T) {
	t.Parallel()
	all := []byte("a€b\x00")
	for b := range 256 {
		all = append(all, byte(b))
	}
	all = append(all, "\xe2\x82x\xf0\x9f\x98\x80\xf0\x9f\x98\xed\xa0\x80\xc0\xaf\xffend\xe2\x82"...)
	want := strings.ReplaceAll(string([]rune(string(all))), "\x00", "\u2400")
	check := func(what string, pieces ...[]byte) {
		t.Helper()
		live, r := printed(t, pieces...)
		if r.Output != want || r.OutputBytes != int64(len(want)) || r.Truncated {
			t.Errorf("%s: the result is %q of %d bytes", what, r.Output, r.OutputBytes)
		}
		if !strings.HasPrefix(want, string(live)) || !utf8.Valid(live) {
			t.Errorf("%s: live it is %q", what, live)
		}
	}
	check("whole", all)
	for i := range all {
		check(fmt.Sprintf("cut at %d", i), all[:i], all[i:])
	}
	var bytewise [][]byte
	for i := range all {
		bytewise = append(bytewise, all[i:i+1])
	}
	check("byte by byte", bytewise...)
}

func TestTwoStreamsDoNotCutEachOthersCharacters(t *testing.T) {
	t.Parallel()
	o := startOutput(func(int64, []byte) {})
	for _, p := range []struct {
		to    *text
		bytes string
	}{{o.stdout, "\xe2\x82"}, {o.stderr, "\xf0\x9f"}, {o.stdout, "\xac"}, {o.stderr, "\x98\x80"}} {
		p.to.Write([]byte(p.bytes))
	}
	if r := o.close(); r.Output != "€😀" {
		t.Errorf("it is %q", r.Output)
	}
	if n, err := o.stdout.Write([]byte("late")); n != 4 || err != nil {
		t.Errorf("what comes late fails: %v", err)
	}
}

func TestLargeOutputOfAnyBytesKeepsHeadAndTail(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]byte, 300_000)
	for i := range all {
		all[i] = byte(random.Uint32())
	}
	want := strings.ReplaceAll(string([]rune(string(all))), "\x00", "\u2400")
	for range 3 {
		var pieces [][]byte
		for rest := all; len(rest) > 0; {
			n := min(1+random.IntN(20_000), len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		o := startOutput(func(offset int64, data []byte) {
			if !utf8.Valid(data) || want[offset:offset+int64(len(data))] != string(data) {
				t.Errorf("the piece at %d is another one", offset)
			}
			if len(data) > publishBinary {
				t.Errorf("%d bytes that are no text are shown live", len(data))
			}
		})
		for _, p := range pieces {
			o.stdout.Write(p)
		}
		r := o.close()
		if !strings.HasPrefix(want, r.Output) || !strings.HasSuffix(want, r.OutputTail) || !utf8.ValidString(r.Output+r.OutputTail) ||
			r.OutputBytes != int64(len(want)) || r.Omitted() != int64(len(want)-len(r.Output)-len(r.OutputTail)) || len(r.Output) < keepHead-utf8.UTFMax {
			t.Errorf("a head of %d, a tail of %d, %d in all, %d left out", len(r.Output), len(r.OutputTail), r.OutputBytes, r.Omitted())
		}
	}
}

func BenchmarkOutput(b *testing.B) {
	line := bytes.Repeat([]byte("all work and no play makes a log\n"), 1000)
	o := startOutput(func(int64, []byte) {})
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		o.stdout.Write(line)
	}
	o.close()
}

// BenchmarkBinaryOutput prints random bytes, most of which are no text.
func BenchmarkBinaryOutput(b *testing.B) {
	piece, random := make([]byte, 64<<10), rand.New(rand.NewPCG(1, 2))
	for i := range piece {
		piece[i] = byte(random.Uint32())
	}
	o := startOutput(func(int64, []byte) {})
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		o.stdout.Write(piece)
	}
	o.close()
}
