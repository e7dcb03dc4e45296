package door_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/stream"
)

// BenchmarkAppendToSeen measures the time from the call of Append until the entry has reached all followers of a
// thread's stream over SSE, with one, 100 and 1,000 followers. Entries of 200 bytes are appended to the three streams
// in turn, 50 per second.
func BenchmarkAppendToSeen(b *testing.B) {
	const turns, pause = 300, 20 * time.Millisecond // in less time than one connection follows
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
	b.ReportMetric(0, "ns/op") // the time of all turns, which means nothing
}

// BenchmarkIdleFollower measures the server's memory for a connection that follows an idle stream over SSE.
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

// memory returns the bytes that this process has in use.
func memory() uint64 {
	runtime.GC()
	runtime.GC() // frees what pools have dropped
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// BenchmarkThroughput compares the door over HTTP, with the limits and the authorization of a real server and a
// member's API key, with a bareServer on the same Postgres. Taking turns, many writers append 200 bytes of JSON to many
// streams, and readers read 100,000 such entries from the start. Read the ratios. It also measures the largest growth
// of the server's heap while a reader reads 10,000 and 100,000 entries.
func BenchmarkThroughput(b *testing.B) {
	w := newWorldOn(b, dbtest.NewDurable(b), 0)
	bare := serveBare(b, w.Database, w.ours.id, w.ours.member)
	d := door.New(door.Config{Log: w.log, Logger: slog.New(slog.DiscardHandler), Authorize: w.authorize})
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpd.New(d, httpd.Limits{}, slog.New(slog.DiscardHandler))
	server.Start()
	b.Cleanup(server.Close)
	ours := server.URL + "/api/stream/"

	message := `{"text":"` + strings.Repeat("x", 189) + `"}`
	for _, c := range []struct{ writers, streams int }{{1, 1}, {32, 1}, {32, 32}, {64, 64}} {
		b.Run(fmt.Sprintf("append/%d_to_%d", c.writers, c.streams), func(b *testing.B) {
			of := func(base string) *clients {
				j := job{For: 500 * time.Millisecond, Port: portOf(base)}
				for i := range c.writers {
					j.Requests = append(j.Requests, writing(fmt.Sprint(base, 100*c.writers+i%c.streams), w.ours.key, message))
				}
				return j.start(b)
			}
			for i := range c.streams {
				w.do("PUT", fmt.Sprint(100*c.writers+i), "", asJSON)
			}
			inTurns(b, "append/s", of(ours), of(bare))
		})
	}
	const entries, batch = 100_000, 1000
	batches := "[" + strings.Repeat(message+",", batch-1) + message + "]"
	w.do("PUT", "1", "", asJSON).want(201)
	for range entries / batch {
		w.do("POST", "1", batches, asJSON).want(204)
	}
	owner := w.Owner(b)
	for _, statement := range []string{
		`insert into bare select 1, seq, house_id, id, author_agent_id, type, payload, ts from entries where stream_id = (select id from streams where name = '1')`,
		"vacuum analyze entries, bare",
	} {
		if _, err := owner.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	for name, accept := range map[string]string{"json": "application/json", "lines": "application/x-ndjson"} {
		b.Run("catch-up/"+name, func(b *testing.B) {
			inTurns(b, "B/s", job{Read: ours + "1", Accept: accept, Key: w.ours.key}.start(b), job{Read: bare + "1", Accept: accept}.start(b))
		})
	}
	w.do("PUT", "2", "", asJSON).want(201)
	for range entries / 10 / batch {
		w.do("POST", "2", batches, asJSON).want(204)
	}
	b.Run("catch-up/memory", func(b *testing.B) {
		sizes := map[string]*clients{}
		for name, size := range map[string]string{"1": "100k", "2": "10k"} {
			sizes[size] = job{Read: ours + name, Accept: "application/json", Key: w.ours.key}.start(b)
			sizes[size].turn() // connections, statements and caches
		}
		most := map[string]uint64{}
		for b.Loop() {
			for size, reader := range sizes {
				most[size] = max(most[size], heapGrowth(func() { reader.turn() }))
			}
		}
		for size, grown := range most {
			b.ReportMetric(float64(grown)/1024, "peak-KiB/"+size)
		}
		b.ReportMetric(0, "ns/op") // the time of some turns, which means nothing
	})
}

// heapGrowth returns the largest growth of the heap while do runs, in bytes, garbage included.
func heapGrowth(do func()) uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	heap := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	before := heap()
	most := before
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for tick := time.NewTicker(time.Millisecond); ; {
		select {
		case <-tick.C:
			most = max(most, heap())
		case <-done:
			tick.Stop()
			return most - before
		}
	}
}

// portOf returns the port of a URL.
func portOf(base string) (port int) {
	at, _ := url.Parse(base)
	port, _ = strconv.Atoi(at.Port())
	return port
}

// inTurns reports the median rate of ours, and its ratio to bare in the same turn: in time, and in processor time
// without Postgres, which other work on the machine disturbs less.
func inTurns(b *testing.B, unit string, ours, bare *clients) {
	ours.turn() // connections, statements and caches
	bare.turn()
	const turns = 5
	var rates, ratios, costs []float64
	for b.Loop() {
		for range turns {
			t, other := ours.turn(), bare.turn()
			rates, ratios, costs = append(rates, t.rate()), append(ratios, t.rate()/other.rate()), append(costs, t.cost()/other.cost())
		}
	}
	b.ReportMetric(median(rates), unit)
	b.ReportMetric(median(ratios), "ours/bare")
	b.ReportMetric(median(costs), "cost/bare")
	b.ReportMetric(0, "ns/op") // the time of some turns, which means nothing
}

// BenchmarkCatchUp measures reading 100,000 entries of 200 bytes from the start, in turns: through the log's Read,
// through the door as JSON and as lines, and by COPY from Postgres, which is the base of the ratios.
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
	b.ReportMetric(0, "ns/op") // the time of some turns, which means nothing
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

// counter counts the bytes written to it.
type counter int64

func (n *counter) Write(p []byte) (int, error) {
	*n += counter(len(p))
	return len(p), nil
}
