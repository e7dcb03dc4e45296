//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/stream"
)

// BenchmarkTurnsFirstDelta measures the time from a chat to the first piece of its answer at a tail, and the same call
// of the same model without arbe, in turns.
func BenchmarkTurnsFirstDelta(b *testing.B) {
	r := bots(b, nil)
	endpoint := model.Endpoint{Provider: model.Anthropic, BaseURL: r.models.URL, Key: "sk-test", Trusted: true}
	client := new(model.Client)
	middle := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2].Microseconds()) / 1000
	}
	var through, bare []time.Duration
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprint("q", n)
		tail, err := r.log.StartTail(b.Context(), stream.Stream{Ref: r.ref(r.th)}, int64(len(r.entries())))
		if err != nil {
			b.Fatal(detail(err))
		}
		began := time.Now()
		r.says(id, "@bot hello")
		var first time.Duration
		for ev, err := range tail {
			if err != nil {
				b.Fatal(detail(err))
			}
			if ev.Delta != nil && first == 0 && strings.HasPrefix(ev.Delta.EntryID, entry.TurnPrefix) {
				first = time.Since(began)
			}
			if ev.Entry != nil && slices.Contains(answersTo(*ev.Entry), id) {
				break
			}
		}
		through = append(through, first)

		began, first = time.Now(), 0
		_, err = client.Stream(b.Context(), endpoint, "fake-answer", model.Request{Messages: []entry.PiMessage{entry.PiUser{Content: []entry.PiBlock{entry.PiText("hello")}}}}, func(model.Delta) {
			if first == 0 {
				first = time.Since(began)
			}
		})
		if err != nil {
			b.Fatal(err)
		}
		bare = append(bare, first)
	}
	b.ReportMetric(middle(through), "ms/first")
	b.ReportMetric(middle(bare), "ms/bare")
	b.ReportMetric(0, "ns/op") // includes what is not measured
}

// BenchmarkTurnsAtOnce measures 200 turns in 200 threads at the same time, of a model that takes 2 seconds.
func BenchmarkTurnsAtOnce(b *testing.B) {
	const many, takes = 200, 2 * time.Second
	r := bots(b, func(q *modeltest.Request) modeltest.Reply {
		time.Sleep(takes)
		return modeltest.Reply{Text: "done"}
	})
	var threads []string
	for range many {
		threads = append(threads, r.conversation())
	}
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprint("q", n)
		var before, during runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		var mu sync.Mutex
		var took []time.Duration
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(b.Context())
		for _, th := range threads {
			all.Go(func() {
				if _, err := r.log.Append(ctx, r.ref(th), entry.NewDraft(id, r.scope.Agent, entry.Chat{Text: "@bot hello"})); err != nil {
					b.Error(detail(err))
					return
				}
				for ev, err := range r.log.Tail(ctx, r.ref(th), 0) {
					if err != nil {
						b.Error(detail(err))
						return
					}
					if ev.Entry != nil && slices.Contains(answersTo(*ev.Entry), id) {
						mu.Lock()
						took = append(took, time.Since(began))
						mu.Unlock()
						return
					}
				}
			})
		}
		time.Sleep(takes / 2)
		runtime.GC()
		runtime.ReadMemStats(&during)
		all.Wait()
		cancel()
		slices.Sort(took)
		b.ReportMetric(took[len(took)/2].Seconds(), "s/median")
		b.ReportMetric(took[len(took)-1].Seconds(), "s/last")
		b.ReportMetric(float64(during.HeapInuse-min(before.HeapInuse, during.HeapInuse))/many/1024, "KiB/turn")
		b.ReportMetric(0, "ns/op")
	}
}
