package dispatch

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"
)

// After a restart the output is written from its beginning, and the reader says where it was only when it calls: maybe
// while the output is waiting for it.
func TestAReaderOfAnEarlierServerGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	var all []byte
	for n := uint32(0); len(all) < 3*feedSize; n++ {
		all = binary.BigEndian.AppendUint32(all, n)
	}
	for name, position := range map[string]int64{
		"within what waits":          feedSize / 2,
		"behind what waits":          feedSize + 12345,
		"at the end of what waits":   feedSize,
		"at the end":                 int64(len(all)),
		"in the middle of one piece": 2*feedSize + 3,
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
				t.Errorf("%d bytes, which are not the last %d", len(got), int64(len(all))-position)
			}
		})
	}
}
