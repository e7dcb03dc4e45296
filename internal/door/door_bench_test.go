package door_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
)

// BenchmarkAppendToSeen measures the time from the call of Append to the moment that who follows a thread's
// stream over SSE has read the entry: all of them, when one, 100 and 1,000 follow. Entries of 200 bytes are
// appended in turns to the three streams, 20 a second.
func BenchmarkAppendToSeen(b *testing.B) {
	const turns, pause = 200, 50 * time.Millisecond
	w := newWorldOn(b, dbtest.NewDurable(b))
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
	w := newWorld(b)
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
