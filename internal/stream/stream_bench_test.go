package stream_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
)

// BenchmarkAppend measures acknowledged appends a second against bare single-row inserts of the same data
// through the same pool, in turns. The ratio is what to look at: both share the machine's noise.
func BenchmarkAppend(b *testing.B) {
	bed := durable(b)
	if _, err := bed.Owner(b).Exec(b.Context(), `
		create table raw (seq bigint generated always as identity primary key, stream_id bigint not null, house_id text not null,
			id text not null unique, author_agent_id uuid, type text not null, payload json not null, ts timestamptz not null default now());
		grant insert on raw to arbe_app`); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name             string
		writers, streams int
	}{
		{"1_writer", 1, 1}, {"32_writers_on_32_streams", 32, 32}, {"32_writers_on_1_stream", 32, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			var refs []stream.Ref
			for range c.streams {
				refs = append(refs, bed.stream(uuid.NewString()))
			}
			raw := func(writer int) error {
				_, err := bed.DB.Pool().Exec(b.Context(),
					"insert into raw (stream_id, house_id, id, author_agent_id, type, payload) values ($1, $2, $3, $4, $5, $6)",
					writer, bed.house, uuid.NewString(), bed.member, "chat", payload)
				return err
			}
			ours := func(writer int) error {
				_, err := bed.log.Append(b.Context(), refs[writer%len(refs)], entry.Draft{Author: bed.member, Type: "chat", Payload: payload})
				return err
			}
			// One turn of each before counting: connections, statements and caches.
			rate(b, c.writers, raw)
			rate(b, c.writers, ours)
			var raws, appends, ratios []float64
			for b.Loop() {
				r, a := rate(b, c.writers, raw), rate(b, c.writers, ours)
				raws, appends, ratios = append(raws, r), append(appends, a), append(ratios, a/r)
			}
			b.ReportMetric(median(raws), "raw/s")
			b.ReportMetric(median(appends), "append/s")
			b.ReportMetric(median(ratios), "append/raw")
			b.ReportMetric(0, "ns/op") // of a turn: says nothing
		})
	}
}

// BenchmarkAppendToSeen measures the time from the call of Append to the moment a tail tells the entry.
func BenchmarkAppendToSeen(b *testing.B) {
	bed := durable(b)
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

// payload is what a short message looks like: 200 bytes.
var payload = []byte(`{"text":"` + strings.Repeat("x", 189) + `"}`)

// durable is a bench whose Postgres waits for the disk, as in real life; the tests' does not.
func durable(b *testing.B) *bench {
	b.Helper()
	dir, err := os.MkdirTemp("", "arbe-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // Postgres may run as another user, who must be able to enter
		b.Fatal(err)
	}
	server, err := embedded.Start(b.Context(), embedded.Config{Dir: filepath.Join(dir, "postgres"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Stop(context.Background()) })
	key, err := secret.NewKey()
	if err != nil {
		b.Fatal(err)
	}
	sealer, err := secret.NewSealer(key)
	if err != nil {
		b.Fatal(err)
	}
	d := &dbtest.Database{OwnerURL: server.URL()}
	if d.ServerURL, err = db.Migrate(b.Context(), d.OwnerURL, sealer); err != nil {
		b.Fatal(err)
	}
	if d.DB, err = db.Open(b.Context(), d.ServerURL, db.Options{MaxConns: 32}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(d.DB.Close)
	return settle(b, d)
}

// rate runs one turn of f by each of the writers and returns how often a second f was done.
func rate(b *testing.B, writers int, f func(writer int) error) float64 {
	b.Helper()
	const turn = 300
	start := time.Now()
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for range turn / writers {
				if err := f(w); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(turn/writers*writers) / time.Since(start).Seconds()
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}
