package stream_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

// BenchmarkAppend measures acknowledged appends per second, alternating with what they are compared to. Read the
// ratios: both sides share the machine's noise. A lone append is compared to committing a bare row. Many at once are
// compared to a transaction for each (naive), and to what Postgres could take if nothing had to be checked (ceiling).
func BenchmarkAppend(b *testing.B) {
	bed := newBench(b, dbtest.NewDurable(b))
	bare := newBareLog(b, bed)
	for _, c := range []struct{ appenders, streams int }{{1, 1}, {8, 1}, {8, 64}, {64, 1}, {64, 64}, {256, 1}, {256, 64}} {
		var refs []stream.Ref
		for range c.streams {
			refs = append(refs, bed.stream(uuid.NewString()))
		}
		ours := func(appender int) error {
			_, err := bed.log.Append(b.Context(), refs[appender%c.streams], entry.Draft{Author: bed.member, Type: "chat", Payload: payload})
			return err
		}
		naive := func(appender int) error {
			return bed.DB.In(b.Context(), db.Scope{House: bed.house}, func(tx pgx.Tx) error {
				_, err := bed.log.AppendTx(b.Context(), tx, refs[appender%c.streams], entry.Draft{Author: bed.member, Type: "chat", Payload: payload})
				return err
			})
		}
		ceiling := func(appender int) error { return bare.append(int64(appender%c.streams), bed.house, bed.member) }
		b.Run(fmt.Sprintf("%d_to_%d_streams", c.appenders, c.streams), func(b *testing.B) {
			if c.appenders == 1 {
				compareLone(b, ours, bare.commitOne(bed.house, bed.member))
				return
			}
			compare(b, c.appenders, ours, map[string]func(int) error{"naive": naive, "ceiling": ceiling})
		})
	}
}

// compare reports how many calls of f per second so many goroutines make, and the ratio of that to each of the others.
func compare(b *testing.B, many int, f func(int) error, others map[string]func(int) error) {
	rate(b, many, f) // one uncounted round of each, for connections, statements and caches
	for _, other := range others {
		rate(b, many, other)
	}
	var own []float64
	ratios := map[string][]float64{}
	for b.Loop() {
		r := rate(b, many, f)
		own = append(own, r)
		for name, other := range others {
			ratios[name] = append(ratios[name], r/rate(b, many, other))
		}
	}
	b.ReportMetric(median(own), "append/s")
	for name, of := range ratios {
		b.ReportMetric(median(of), "append/"+name)
	}
	b.ReportMetric(0, "ns/op") // of a turn: says nothing
}

// BenchmarkAppendToSeen measures the time from the call of Append to the moment a tail sends the entry.
func BenchmarkAppendToSeen(b *testing.B) {
	bed := newBench(b, dbtest.NewDurable(b))
	for _, tails := range []int{1, 100} {
		b.Run(fmt.Sprintf("%d_tails", tails), func(b *testing.B) {
			ref := bed.stream(uuid.NewString())
			var called atomic.Int64 // when, in nanoseconds
			var seen sync.WaitGroup
			var took sync.Mutex
			var latencies []float64
			var ready, ended sync.WaitGroup
			ctx, cancel := context.WithCancel(b.Context())
			ready.Add(tails)
			for range tails {
				ended.Go(func() {
					for ev, err := range bed.log.Tail(ctx, ref, 0) {
						switch {
						case err != nil:
							b.Error(err)
							return
						case ev.CaughtUp:
							ready.Done()
						case ev.Entry != nil:
							us := float64(time.Now().UnixNano()-called.Load()) / 1e3
							took.Lock()
							latencies = append(latencies, us)
							took.Unlock()
							seen.Done()
						}
					}
				})
			}
			ready.Wait()
			for b.Loop() {
				seen.Add(tails)
				called.Store(time.Now().UnixNano())
				if _, err := bed.log.Append(b.Context(), ref, entry.Draft{Author: bed.member, Type: "chat", Payload: payload}); err != nil {
					b.Fatal(err)
				}
				seen.Wait()
			}
			cancel()
			ended.Wait()
			slices.Sort(latencies)
			b.ReportMetric(latencies[len(latencies)/2], "p50-µs")
			b.ReportMetric(latencies[len(latencies)*99/100], "p99-µs")
		})
	}
}

// BenchmarkIdleTail measures the memory of a tail in this process while nothing happens in its log.
func BenchmarkIdleTail(b *testing.B) {
	const tails = 10_000
	bed := setup(b)
	ref := bed.stream(uuid.NewString())
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		var ready, ended sync.WaitGroup
		before := memory()
		ready.Add(tails)
		for range tails {
			ended.Go(func() {
				for ev, err := range bed.log.Tail(ctx, ref, 0) {
					if err != nil {
						b.Error(err)
					}
					if err != nil || ev.CaughtUp {
						ready.Done()
					}
				}
			})
		}
		ready.Wait()
		b.ReportMetric(float64(memory()-before)/tails/1024, "KiB/tail")
		cancel()
		ended.Wait()
	}
	b.ReportMetric(0, "ns/op") // the time to start a tail, which means nothing
}

// memory returns the bytes that this process has in use.
func memory() uint64 {
	runtime.GC()
	runtime.GC() // frees what pools have dropped
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// payload is a short message of 200 bytes.
var payload = []byte(`{"text":"` + strings.Repeat("x", 189) + `"}`)

// compareLone reports how long f takes while nothing else runs, and the ratio of that to other.
func compareLone(b *testing.B, f, other func(int) error) {
	const turn = 100 // few enough for both to meet the same load of the machine, and enough for caches to forget the other
	var took, others []float64
	for b.Loop() {
		for range turn {
			others = append(others, once(b, other))
		}
		for range turn {
			took = append(took, once(b, f))
		}
	}
	b.ReportMetric(median(took), "µs")
	b.ReportMetric(median(took)/median(others), "x-bare")
	b.ReportMetric(0, "ns/op") // of a turn: says nothing
}

// once runs f and returns the microseconds that it took.
func once(b *testing.B, f func(int) error) float64 {
	b.Helper()
	start := time.Now()
	if err := f(0); err != nil {
		b.Fatal(err)
	}
	return float64(time.Since(start).Nanoseconds()) / 1e3
}

// rate runs one round of f in so many goroutines, and returns the calls per second.
func rate(b *testing.B, many int, f func(int) error) float64 {
	b.Helper()
	const turn = 100 * time.Millisecond
	start := time.Now()
	var done atomic.Int64
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			for time.Since(start) < turn {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(start).Seconds()
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}
