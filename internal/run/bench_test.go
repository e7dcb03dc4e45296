package run_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// runners is the number of concurrent runs.
const runners = 200

// BenchmarkRunners measures how many entries of how many runs one server takes, each with a heartbeat in between, and
// the memory that a posting run costs.
func BenchmarkRunners(b *testing.B) {
	w := open(b, func(*runner) {})
	pi, err := w.bots.GetByHandle(b.Context(), w.scope, "pi")
	must(b, err)
	var all []run.Poster
	for i := range runners {
		th, err := w.threads.Create(b.Context(), w.scope, thread.Draft{Name: fmt.Sprint("run ", i), Agent: pi.ID})
		must(b, err)
		must(b, w.db.In(b.Context(), w.scope, func(tx pgx.Tx) error {
			locked, err := w.threads.LockTx(b.Context(), tx, th.ID)
			if err == nil {
				_, err = w.threads.BeginRunTx(b.Context(), tx, locked, "")
			}
			return err
		}))
		all = append(all, run.Poster{House: w.scope.House, Thread: th.ID, Agent: pi.ID, Epoch: 1})
	}
	post := func(by run.Poster, id string, p entry.Payload) {
		if _, err := w.runs.Accept(b.Context(), by, stream.Write{ContentType: "application/json", Content: []entry.Draft{entry.NewDraft(id, "", p)}}); err != nil {
			b.Error(err)
		}
	}
	says := entry.PiAssistant{Harness: "pi", Content: []entry.PiBlock{entry.PiText("I look at the file, and then at the next one.")}, StopReason: entry.PiStopped}
	before := heap()
	var next atomic.Int64
	var entries, beats atomic.Int64
	b.ResetTimer()
	began := time.Now()
	var group sync.WaitGroup
	for _, by := range all {
		group.Go(func() {
			for n := 0; next.Add(1) <= int64(b.N); n++ {
				post(by, entry.RunEntryID(1, n), says)
				entries.Add(1)
				if n%10 == 0 {
					post(by, entry.RunEntryID(1, 0)+"beat", entry.Heartbeat{Epoch: 1, Phase: "thinking", Through: 1})
					beats.Add(1)
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began).Seconds()
	b.StopTimer()
	b.ReportMetric(float64(entries.Load())/took, "entries/s")
	b.ReportMetric(float64(beats.Load())/took, "heartbeats/s")
	b.ReportMetric(float64(max(heap()-before, 0))/runners, "B/run")
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
