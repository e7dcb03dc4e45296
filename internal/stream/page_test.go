package stream_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// readPages reads a log from a position to its end, page after page and piece after piece, and calls look for each
// piece.
func (b *bench) readPages(ref stream.Ref, after int64, whole bool, look func(p *stream.Page, bytes int)) (entries []entry.Entry) {
	b.t.Helper()
	for {
		var piece []entry.Entry
		try := func(stream.Stream) stream.Take {
			piece = nil
			return func(e *entry.Entry) {
				kept := *e
				kept.Payload = append([]byte(nil), e.Payload...)
				piece = append(piece, kept)
			}
		}
		gather := func(p *stream.Page) {
			bytes := 0
			for _, e := range piece {
				bytes += len(e.Payload)
			}
			look(p, bytes)
			entries = append(entries, piece...)
		}
		p, err := b.log.ReadFrom(b.t.Context(), ref, after, whole, try)
		if err != nil {
			b.t.Fatal(err)
		}
		for gather(p); p.More(); gather(p) {
			if err := p.Next(b.t.Context(), try); err != nil {
				b.t.Fatal(err)
			}
		}
		if n := len(entries); n > 0 && entries[n-1].Seq != p.Last {
			b.t.Fatalf("a page ends at %d, but its Last is %d", entries[n-1].Seq, p.Last)
		}
		if after = p.Last; after == p.Stream.Tail {
			return entries
		}
	}
}

func TestAPageIsReadInPieces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.make("mixed", stream.CreateOptions{}).Ref
	var written []string
	fill := func(ref stream.Ref, messages ...string) {
		t.Helper()
		drafts, err := stream.Drafts("application/json", b.member, []byte("["+strings.Join(messages, ",")+"]"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.log.Append(t.Context(), ref, drafts...); err != nil {
			t.Fatal(err)
		}
	}
	small := func(n int) (messages []string) {
		for range n {
			messages = append(messages, fmt.Sprintf(`{ "n": %d, "text": %q }`, rand.Int(), strings.Repeat("x", rand.IntN(300))))
		}
		return messages
	}
	large := func(bytes int) string { // which Postgres cannot compress
		text := make([]byte, bytes)
		for i := range text {
			text[i] = byte('a' + rand.IntN(26))
		}
		return `"` + string(text) + `"`
	}
	for _, messages := range [][]string{
		small(1500), {large(5000)}, small(700), {`"` + strings.Repeat("x", 100_000) + `"`, large(700_000), large(2001)}, small(1100),
		{large(1990), large(1998), large(2010)}, small(2000),
	} {
		fill(ref, messages...)
		written = append(written, messages...)
	}
	same := func(t *testing.T, b *bench, ref stream.Ref, written []string) {
		t.Helper()
		for _, after := range []int64{0, 1, 400, 1499, 1500, 1501, int64(len(written)) - 1, int64(len(written))} {
			for _, whole := range []bool{true, false} {
				got := b.readPages(ref, after, whole, func(p *stream.Page, bytes int) {
					if !p.Large() && bytes > 9<<20 {
						t.Errorf("a piece of small entries has %d bytes", bytes)
					}
				})
				if len(got) != len(written)-int(after) {
					t.Fatalf("after %d there are %d entries, want %d", after, len(got), len(written)-int(after))
				}
				for i, e := range got {
					if want := written[int(after)+i]; string(e.Payload) != want || e.Seq != after+int64(i)+1 || e.Type != "message" || whole && e.Author != b.member {
						t.Fatalf("entry %d is %.60v, want %.60q", after+int64(i)+1, e, want)
					}
				}
			}
		}
	}
	b.run(t, "with large entries among small ones", func(t *testing.T, b *bench) { same(t, b, ref, written) })
	b.run(t, "some of them inherited by a fork", func(t *testing.T, b *bench) {
		at := 2600
		fork := b.make("fork", stream.CreateOptions{Fork: &stream.ForkPoint{Source: ref.Name, Seq: int64(at)}}).Ref
		own := small(1200)
		fill(fork, own...)
		again := b.make("fork of the fork", stream.CreateOptions{Fork: &stream.ForkPoint{Source: fork.Name, Seq: 3000}}).Ref
		fill(again, large(3000))
		same(t, b, fork, append(append([]string(nil), written[:at]...), own...))
		got := b.readPages(again, 0, true, func(*stream.Page, int) {})
		if len(got) != 3001 || string(got[2999].Payload) != own[3000-at-1] {
			t.Errorf("the fork of the fork has %d entries", len(got))
		}
	})
	b.run(t, "and never holds many bytes, however long the log is", func(t *testing.T, b *bench) {
		ref := b.make("long", stream.CreateOptions{}).Ref
		message := `"` + strings.Repeat("x", 1000) + `"`
		for range 12 {
			messages := make([]string, 1000)
			for i := range messages {
				messages[i] = message
			}
			fill(ref, messages...)
		}
		pages, pieces := map[int64]bool{}, 0
		b.readPages(ref, 0, false, func(p *stream.Page, bytes int) {
			pages[p.Last] = true
			if pieces++; bytes > 1200<<10 {
				t.Errorf("a piece has %d bytes", bytes)
			}
		})
		if len(pages) != 2 || pieces < 12 {
			t.Errorf("12 MB are %d pages and %d pieces", len(pages), pieces)
		}
	})
	b.run(t, "until the log is deleted meanwhile", func(t *testing.T, b *bench) {
		ref := b.make("short-lived", stream.CreateOptions{}).Ref
		fill(ref, small(3000)...)
		p, err := b.log.ReadFrom(t.Context(), ref, 0, true, takeNothing)
		if err != nil || !p.More() {
			t.Fatal("it has one piece:", err)
		}
		if err := b.log.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		for p.More() && err == nil {
			err = p.Next(t.Context(), takeNothing)
		}
		wantCode(t, err, fault.NotFound)
	})
}
