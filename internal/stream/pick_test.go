package stream_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// Pick finds the same entries as reading and filtering the whole log: in forks too, from both ends, page by page.
func TestPickFindsTheEntriesOfSomeKinds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	source := b.make("source", stream.CreateOptions{}).Ref
	kinds := []string{"chat", "command", "signal.thread.forked", "signal.house.x", "signals", "signal"}
	fill := func(ref stream.Ref, n int) {
		t.Helper()
		var drafts []entry.Draft
		for range n {
			drafts = append(drafts, entry.Draft{Type: kinds[rand.IntN(len(kinds))], Payload: []byte(`{"text":"` + strings.Repeat("x", rand.IntN(3000)) + `"}`)})
		}
		if _, err := b.log.Append(t.Context(), ref, drafts...); err != nil {
			t.Fatal(err)
		}
	}
	fill(source, 40)
	fork := b.make("fork", stream.CreateOptions{Fork: &stream.ForkPoint{Source: "source", Seq: 25}}).Ref
	fill(fork, 20)
	deep := b.make("deep", stream.CreateOptions{Fork: &stream.ForkPoint{Source: "fork", Seq: 30}}).Ref
	fill(deep, 20)
	empty := b.make("empty", stream.CreateOptions{}).Ref

	for range 200 {
		ref := []stream.Ref{source, fork, deep, empty}[rand.IntN(4)]
		all, tail, err := b.log.Read(t.Context(), ref, stream.Range{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		kinds := stream.Kinds{Types: [][]string{nil, {"chat"}, {"signal"}, {"signal", "command"}, {"signal.thread"}, {"none"}}[rand.IntN(6)]}
		if rand.IntN(2) == 0 {
			kinds.Without = []string{"signal.", "signal.thread.", "c", "none"}[rand.IntN(4)]
		}
		r := stream.Range{After: rand.Int64N(tail + 1), Last: rand.IntN(2) == 0, Limit: 1 + rand.IntN(8)}
		if rand.IntN(2) == 0 {
			r.Before = 1 + rand.Int64N(tail+3)
		}
		var want []int64
		for _, e := range all {
			if e.Seq > r.After && (r.Before == 0 || e.Seq < r.Before) && (kinds.Without == "" || !strings.HasPrefix(e.Type, kinds.Without)) &&
				(kinds.Types == nil || slices.ContainsFunc(kinds.Types, func(k string) bool { return e.Type == k || strings.HasPrefix(e.Type, k+".") })) {
				want = append(want, e.Seq)
			}
		}
		var got []int64
		first := r
		for range 100 {
			page, searched, end, err := b.log.Pick(t.Context(), ref, r, kinds)
			if err != nil || end != tail || len(page) > r.Limit {
				t.Fatalf("%+v of %s: %d entries up to %d of %d: %v", r, ref.Name, len(page), searched, tail, err)
			}
			if r.Last {
				got = append(seqs(page), got...)
				r.Before = searched
				if searched <= r.After+1 {
					break
				}
			} else {
				got = append(got, seqs(page)...)
				last := tail
				if r.Before > 0 {
					last = min(last, r.Before-1)
				}
				if r.After = searched; searched >= last {
					break
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v in %+v of %s: found %v, want %v", kinds, first, ref.Name, got, want)
		}
	}
	if _, _, _, err := b.log.Pick(t.Context(), source, stream.Range{After: 100}, stream.Kinds{Types: []string{"chat"}}); fault.CodeOf(err) != fault.OutOfRange {
		t.Errorf("after the end: %v", err)
	}
}

// BenchmarkPickTheLastOfAType finds the last 20 entries of a rare type at the beginning of a log of a million, and
// compares the time to one read of its last 20 entries.
func BenchmarkPickTheLastOfAType(b *testing.B) {
	bed := setup(b)
	ref := bed.stream("million")
	_, err := bed.Owner(b).Exec(b.Context(), `
		insert into entries (stream_id, seq, house_id, id, type, payload, ts)
		select s.id, n, s.house_id, 'e' || n, case when n <= 20 then 'command' else 'chat' end, '{"text":"some words of a chat"}', now()
		from streams s cross join generate_series(1, 1000000) n where s.house_id = $1 and s.name = 'million'`, bed.house)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := bed.Owner(b).Exec(b.Context(), "analyze entries"); err != nil {
		b.Fatal(err)
	}
	var plain time.Duration
	for b.Loop() {
		began := time.Now()
		if _, _, err := bed.log.Read(b.Context(), ref, stream.Range{Last: true, Limit: 20}); err != nil {
			b.Fatal(err)
		}
		plain += time.Since(began)
		found := 0
		for r := (stream.Range{Last: true, Limit: 20}); ; {
			page, searched, _, err := bed.log.Pick(b.Context(), ref, r, stream.Kinds{Types: []string{"command"}})
			if err != nil {
				b.Fatal(err)
			}
			if found += len(page); searched <= 1 {
				break
			}
			r.Before = searched
		}
		if found != 20 {
			b.Fatalf("it found %d entries", found)
		}
	}
	b.ReportMetric(float64(plain.Microseconds())/1000/float64(b.N), "ms/plain-read")
}
