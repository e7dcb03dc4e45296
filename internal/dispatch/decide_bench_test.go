//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

// BenchmarkDecide measures what decisions, and making entries searchable, cost appends: acknowledged appends a second through a log about whose entries
// nobody decides, through that of a server without a selector, and through that of one whose selector looks at every
// entry and finds no work, in turns. The ratios are over the first.
func BenchmarkDecide(b *testing.B) {
	const turn, turns = 300 * time.Millisecond, 15
	names := []string{"bare", "idle", "looking"}
	bed := databaseOn(b, dbtest.NewDurable(b))
	bed.driver = newShelf()
	bare, err := stream.Open(b.Context(), bed.DB, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(detail(err))
	}
	b.Cleanup(bare.Close)
	logs := map[string]*stream.Log{"bare": bare, "idle": bed.serve().log}
	bed.tune = func(c *dispatch.Config) {
		c.Select = func(context.Context, dispatch.News) (dispatch.Work, error) { return nil, nil }
	}
	bed.server = bed.serve()
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
					for j := range names { // nobody always comes first
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
			b.ReportMetric(0, "ns/op") // of some turns: says nothing
		})
	}
}
