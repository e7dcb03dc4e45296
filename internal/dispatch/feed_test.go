package dispatch

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"
)

// After a restart the output is written again from its beginning. The reader reports its position only when it calls,
// which may be while the output waits for room.
func TestAReaderOfAnEarlierServerGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	var all []byte
	for n := uint32(0); len(all) < 3*feedSize; n++ {
		all = binary.BigEndian.AppendUint32(all, n)
	}
	for name, position := range map[string]int64{
		"within the waiting output":        feedSize / 2,
		"after the waiting output":         feedSize + 12345,
		"at the end of the waiting output": feedSize,
		"at the end":                       int64(len(all)),
		"in the middle of a piece":         2*feedSize + 3,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFeed()
			written := make(chan error, 1)
			go func() {
				for rest := all; len(rest) > 0; {
					piece := rest[:min(len(rest), 50_000)]
					if err := f.write(context.Background(), Stdout, piece, int64(len(all)-len(rest)+len(piece))); err != nil {
						written <- err
						return
					}
					rest = rest[len(piece):]
				}
				written <- f.close(context.Background())
			}()
			for full := false; !full; time.Sleep(time.Millisecond) {
				f.mu.Lock()
				full = f.end-f.base == feedSize
				f.mu.Unlock()
			}
			got := []byte{}
			for at := position; ; {
				r, err := f.read(t.Context(), at, ReadOn, time.Now().Add(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range r.Pieces {
					got = append(got, p.Data...)
				}
				if at = r.Position; r.Ended {
					break
				}
			}
			if err := <-written; err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, all[position:]) {
				t.Errorf("got %d bytes, want the last %d of the output", len(got), int64(len(all))-position)
			}
		})
	}
}

// A piece takes more memory than its bytes. A command that writes single bytes to both outputs in turn makes many.
func TestTheNumberOfWaitingPiecesIsLimited(t *testing.T) {
	t.Parallel()
	const n = 3*feedPieces + 7
	f := newFeed()
	written := make(chan error, 1)
	go func() {
		for i := range n {
			if err := f.write(context.Background(), Channel(i%2), []byte{byte(i)}, int64(i+1)); err != nil {
				written <- err
				return
			}
		}
		written <- f.close(context.Background())
	}()
	waiting := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.pieces)
	}
	for deadline := time.Now().Add(time.Minute); waiting() < feedPieces; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d pieces wait, want %d", waiting(), feedPieces)
		}
	}
	for at := int64(0); ; {
		if w := waiting(); w > feedPieces {
			t.Fatalf("%d pieces wait, want at most %d", w, feedPieces)
		}
		r, err := f.read(t.Context(), at, ReadOn, time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Pieces) > mostPieces {
			t.Fatalf("one answer has %d pieces, want at most %d", len(r.Pieces), mostPieces)
		}
		for i, p := range r.Pieces {
			if want := at + int64(i); p.Channel != Channel(want%2) || !bytes.Equal(p.Data, []byte{byte(want)}) {
				t.Fatalf("piece %d is %v", want, p)
			}
		}
		if at = r.Position; r.Ended {
			break
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if f.end != n {
		t.Errorf("%d bytes were written, want %d", f.end, n)
	}
}
