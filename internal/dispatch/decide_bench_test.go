//go:build linux

package dispatch_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

// BenchmarkDecide measures how much deciding and indexing slow down appends. It counts acknowledged appends a second through
// three logs in turn: one without a decider, one whose server has no selector, and one whose server checks every entry against
// the bots of the house and finds no work. The ratios are relative to the first.
func BenchmarkDecide(b *testing.B) {
	const turn, turns = time.Second, 5 // long enough to use up the credit earned during the others' turns
	names := []string{"bare", "idle", "looking"}
	bed := databaseOn(b, dbtest.NewDurable(b))
	bed.driver = newGated()
	bare, err := stream.Open(b.Context(), bed.DB, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(detail(err))
	}
	b.Cleanup(bare.Close)
	logs := map[string]*stream.Log{"bare": bare, "idle": bed.serve().log}
	bed.tune = func(c *dispatch.Config) {
		c.Rosters = bot.New(c.DB, c.Threads)
	}
	bed.server = bed.serve()
	for i := range 5 {
		if _, err := bot.New(bed.DB, bed.threads).Create(b.Context(), bed.scope, bot.Draft{Handle: fmt.Sprint("bot", i)}); err != nil {
			b.Fatal(detail(err))
		}
	}
	logs["looking"] = bed.log
	payload := entry.NewDraft("", bed.scope.Agent, entry.Chat{Text: strings.Repeat("some words that people say, ", 6)})
	for _, c := range []struct{ writers, threads int }{{1, 1}, {32, 1}, {32, 32}} {
		threads := map[string][]stream.Ref{}
		for name := range logs {
			for range c.threads {
				threads[name] = append(threads[name], bed.ref(bed.conversation()))
			}
		}
		rate := func(name string) float64 {
			var done atomic.Int64
			var all sync.WaitGroup
			began := time.Now()
			for i := range c.writers {
				all.Go(func() {
					for time.Since(began) < turn {
						if _, err := logs[name].Append(b.Context(), threads[name][i%c.threads], payload); err != nil {
							b.Error(detail(err))
							return
						}
						done.Add(1)
					}
				})
			}
			all.Wait()
			return float64(done.Load()) / time.Since(began).Seconds()
		}
		b.Run(fmt.Sprintf("%d_to_%d_threads", c.writers, c.threads), func(b *testing.B) {
			own, ratios := map[string][]float64{}, map[string][]float64{}
			for b.Loop() {
				for i := range turns {
					for j := range names { // rotate who comes first
						name := names[(i+j)%len(names)]
						own[name] = append(own[name], rate(name))
					}
					for _, name := range names[1:] {
						ratios[name] = append(ratios[name], own[name][len(own[name])-1]/own["bare"][len(own["bare"])-1])
					}
				}
			}
			middle := func(xs []float64) float64 {
				slices.Sort(xs)
				return xs[len(xs)/2]
			}
			for name, of := range ratios {
				b.ReportMetric(middle(of), name+"/bare")
			}
			b.ReportMetric(middle(own["bare"]), "bare-append/s")
			b.ReportMetric(0, "ns/op") // meaningless over several turns
		})
	}
}
