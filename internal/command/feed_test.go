package command

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
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
				r, err := f.read(t.Context(), Reader{}, at, time.Now().Add(time.Minute))
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
		r, err := f.read(t.Context(), Reader{}, at, time.Now().Add(time.Minute))
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

// Until a command reads its input, another server may get to run it, and would not have what this one accepted.
func TestInputIsAcceptedOnlyForACommandThatReadsIt(t *testing.T) {
	t.Parallel()
	i := newInput()
	accepted := func(data string, end bool) int64 {
		t.Helper()
		w, err := i.write(t.Context(), Keys{Data: []byte(data), End: end}, time.Now())
		if err != nil || w.Closed {
			t.Errorf("writing %q: %+v, %v", data, w, err)
		}
		return w.Position
	}
	if n := accepted("data", true); n != 0 {
		t.Errorf("%d bytes are accepted before the command begins", n)
	}
	if _, err := i.write(t.Context(), Keys{End: true}, time.Now()); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("the end is answered with %v before the command begins", err)
	}
	r := i.reader(t.Context())
	if n := accepted("da", false); n != 0 {
		t.Errorf("%d bytes are accepted after their deadline", n)
	}
	if w, err := i.write(t.Context(), Keys{Data: []byte("data"), End: true}, time.Now().Add(time.Minute)); err != nil || w.Position != 4 {
		t.Errorf("writing: %+v, %v", w, err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "data" {
		t.Errorf("the command reads %q, %v", got, err)
	}
	gone := newInput()
	gone.reader(t.Context())
	gone.over(true)
	if w, err := gone.write(t.Context(), Keys{Data: []byte("data")}, time.Now().Add(time.Minute)); err != nil || w.Position != 0 {
		t.Errorf("a server that left the command accepts %+v, %v", w, err)
	}
}

func TestInputComesAsItWasWrittenHoweverItIsRead(t *testing.T) {
	t.Parallel()
	var want []byte
	i := newInput()
	whole, pieces := i.reader(t.Context()), newInput()
	pieces.reader(t.Context())
	for n, size := range []int{1, 3, shortInput, 2, inputSize - 4*shortInput, 7, shortInput - 1, 1 << 20} {
		data := bytes.Repeat([]byte{byte('a' + n)}, size)
		for _, to := range []*input{i, pieces} {
			w, err := to.write(t.Context(), Keys{Position: int64(len(want)), Data: data, End: size == 1<<20}, time.Now().Add(time.Minute))
			if err != nil || w.Position != int64(len(want)+size) {
				t.Fatalf("writing %d bytes after %d: %+v, %v", size, len(want), w, err)
			}
		}
		want = append(want, data...)
	}
	if w, err := i.write(t.Context(), Keys{Position: int64(len(want)), Data: []byte("more")}, time.Now().Add(time.Minute)); err != nil || w.Position != int64(len(want)) {
		t.Errorf("writing after the end: %+v, %v", w, err)
	}
	var got bytes.Buffer
	if n, err := io.Copy(&got, whole); err != nil || n != int64(len(want)) || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("copying gives %d of %d bytes, %v", n, len(want), err)
	}
	if got, err := io.ReadAll(iotest.OneByteReader(pieces.reader(t.Context()))); err != nil || !bytes.Equal(got, want) {
		t.Errorf("reading byte by byte gives %d of %d bytes, %v", len(got), len(want), err)
	}
}

func TestInputWaitsForRoom(t *testing.T) {
	t.Parallel()
	i := newInput()
	r := i.reader(t.Context())
	full := make([]byte, inputSize)
	if w, err := i.write(t.Context(), Keys{Data: full}, time.Now().Add(time.Minute)); err != nil || w.Position != inputSize {
		t.Fatalf("writing: %+v, %v", w, err)
	}
	if w, err := i.write(t.Context(), Keys{Position: inputSize, Data: []byte("x")}, time.Now()); err != nil || w.Position != inputSize {
		t.Errorf("writing without room: %+v, %v", w, err)
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if w, err := i.write(t.Context(), Keys{Position: inputSize, Data: []byte("x")}, time.Now().Add(time.Minute)); err != nil || w.Position != inputSize+1 {
		t.Errorf("writing with room: %+v, %v", w, err)
	}
}
