package door_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

// BenchmarkAppendToSeen measures the time from the call of Append to the moment that the entry has arrived at who
// follows a thread's stream over SSE: at all of them, when one, 100 and 1,000 follow. Entries of 200 bytes are
// appended in turns to the three streams, 50 a second.
func BenchmarkAppendToSeen(b *testing.B) {
	const turns, pause = 500, 20 * time.Millisecond
	w := newWorldOn(b, dbtest.NewDurable(b), 0)
	sizes := []int{1, 100, 1000}
	var houses []house
	var fleets []*fleet
	for _, size := range sizes {
		h := w.house(fmt.Sprint(size))
		houses, fleets = append(houses, h), append(fleets, w.follow(b, h, size))
	}
	entries := 0
	for b.Loop() {
		for range turns {
			entries++
			for _, h := range houses {
				w.append(h, entry.Draft{Author: h.member, Type: "chat", Payload: stamp()})
				time.Sleep(pause)
			}
		}
	}
	var seen []latencies
	for i, f := range fleets {
		l := f.saw(entries)
		b.ReportMetric(l.P50, fmt.Sprintf("p50-µs/%d", sizes[i]))
		b.ReportMetric(l.P99, fmt.Sprintf("p99-µs/%d", sizes[i]))
		seen = append(seen, l)
	}
	b.ReportMetric(seen[2].P99/seen[0].P99, "p99-1000/p99-1")
	b.ReportMetric(0, "ns/op") // of all turns: says nothing
}

// BenchmarkIdleFollower measures what a connection that follows a stream over SSE, in which nothing happens,
// holds of the server's memory.
func BenchmarkIdleFollower(b *testing.B) {
	const followers = 10_000
	w := newWorldOn(b, dbtest.New(b), 0)
	for b.Loop() {
		w.follow(b, w.ours, 1) // caches, pools
		before := memory()
		w.follow(b, w.ours, followers)
		b.ReportMetric(float64(memory()-before)/followers/1024, "KiB/follower")
	}
	b.ReportMetric(0, "ns/op") // of connecting
}

// memory is what this process has in use, in bytes.
func memory() uint64 {
	runtime.GC()
	runtime.GC() // what pools let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// BenchmarkCatchUp measures reading 100,000 entries of 200 bytes from the start, in turns: through the log's
// Read, through the door as JSON and as lines, and by COPY from Postgres, which the ratios are over.
func BenchmarkCatchUp(b *testing.B) {
	const entries, batch, turns = 100_000, 1000, 3
	w := newWorldOn(b, dbtest.NewDurable(b), 0)
	for range entries / batch {
		drafts := make([]entry.Draft, batch)
		for i := range drafts {
			drafts[i] = entry.Draft{Author: w.ours.member, Type: "chat", Payload: stamp()}
		}
		w.append(w.ours, drafts...)
	}
	owner := w.Owner(b)
	if _, err := owner.Exec(b.Context(), "vacuum analyze entries"); err != nil {
		b.Fatal(err)
	}
	ways := map[string]func() (bytes int64){
		"copy": func() int64 {
			var n counter
			if _, err := owner.PgConn().CopyTo(b.Context(), &n, `copy (select e.seq, e.id, e.author_agent_id, e.type, e.payload, e.ts
				from entries e where stream_id = (select id from streams where name = '`+w.ours.stream()+`') order by seq) to stdout`); err != nil {
				b.Fatal(err)
			}
			return int64(n)
		},
		"read": func() (bytes int64) {
			for at := int64(0); at < entries; {
				page, _, err := w.log.Read(b.Context(), w.ours.ref(), stream.Range{After: at, Limit: batch})
				if err != nil {
					b.Fatal(err)
				}
				for _, e := range page {
					bytes += int64(len(e.Payload))
				}
				at = page[len(page)-1].Seq
			}
			return bytes
		},
		"json":  func() int64 { return w.readAll(b, "application/json") },
		"lines": func() int64 { return w.readAll(b, "application/x-ndjson") },
	}
	took, ratios := map[string][]float64{}, map[string][]float64{}
	bytes := map[string]int64{}
	for b.Loop() {
		for range turns {
			for name, read := range ways {
				start := time.Now()
				bytes[name] = read()
				took[name] = append(took[name], time.Since(start).Seconds())
			}
			turn := len(took["copy"]) - 1
			for name := range ways {
				ratios[name] = append(ratios[name], took["copy"][turn]/took[name][turn])
			}
		}
	}
	for name := range ways {
		b.ReportMetric(entries/median(took[name]), name+"-entries/s")
		b.ReportMetric(float64(bytes[name])/median(took[name])/1e6, name+"-MB/s")
		if name != "copy" {
			b.ReportMetric(median(ratios[name]), name+"/copy")
		}
	}
	b.ReportMetric(0, "ns/op") // of some turns: says nothing
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// readAll reads a thread's stream to its end, page after page.
func (w *world) readAll(b *testing.B, accept string) (bytes int64) {
	b.Helper()
	for offset := "-1"; ; {
		res, err := http.DefaultClient.Do(w.request(w.url, "GET", w.ours.stream()+"?offset="+offset, "", "Authorization: Bearer "+w.ours.key, "Accept: "+accept))
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			b.Fatalf("status %d: %v", res.StatusCode, err)
		}
		bytes += n
		if res.Header.Get("Stream-Up-To-Date") == "true" {
			return bytes
		}
		offset = res.Header.Get("Stream-Next-Offset")
	}
}

// counter counts what is written to it.
type counter int64

func (n *counter) Write(p []byte) (int, error) {
	*n += counter(len(p))
	return len(p), nil
}
