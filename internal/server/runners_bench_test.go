package server_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/server"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// BenchmarkRunnersOverHTTP measures how many entries a server process takes from the runners of 200 runs, and its memory for
// each of them. Like real ones, the runners post over HTTP with the tokens of their runs, and send a heartbeat with each tenth
// post. A runner that lags behind posts several entries at once.
func BenchmarkRunnersOverHTTP(b *testing.B) {
	const runners = 200
	cfg := served(b)
	var err error
	if cfg.SecretKey, err = secret.NewKey(); err != nil {
		b.Fatal(err)
	}
	process := startProcess(b, cfg)
	posters := runnersOf(b, cfg, runners)
	says := entry.PiAssistant{Harness: "pi", Content: []entry.PiBlock{entry.PiText("I look at the file, and then at the next one.")}, StopReason: entry.PiStopped}
	for _, size := range []int{1, 10} {
		b.Run(fmt.Sprintf("posts of %d", size), func(b *testing.B) {
			before := residentMemory(b, process.Process.Pid)
			var next, entries, beats atomic.Int64
			var all sync.WaitGroup
			began := time.Now()
			for _, p := range posters {
				all.Go(func() {
					for next.Add(1) <= int64(b.N) {
						var batch []entry.Draft
						for range size {
							batch = append(batch, entry.NewDraft(entry.RunEntryID(1, p.entries), "", says))
							p.entries++
						}
						if p.posts%10 == 0 {
							batch = append(batch, entry.NewDraft(fmt.Sprintf("run.1.beat.%d", p.posts), "", entry.Heartbeat{Epoch: 1, Phase: "thinking", Through: 1}))
							beats.Add(1)
						}
						p.posts++
						p.post(b, batch)
						entries.Add(int64(size))
					}
				})
			}
			all.Wait()
			took := time.Since(began).Seconds()
			b.ReportMetric(float64(entries.Load())/took, "entries/s")
			b.ReportMetric(float64(beats.Load())/took, "heartbeats/s")
			b.ReportMetric(float64(residentMemory(b, process.Process.Pid)-before)/runners, "B/run")
		})
	}
}

// poster posts the entries of one run.
type poster struct {
	url, token     string
	client         *http.Client
	entries, posts int
}

// runnersOf makes running runs, and returns their posters.
func runnersOf(b *testing.B, cfg server.Config, n int) (all []*poster) {
	b.Helper()
	c, host := client(b, cfg), login(b, cfg).Host
	first, err := c.Threads.GetThread(b.Context(), &arbev1.GetThreadRequest{Id: newThread(b, c)})
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	b.Cleanup(transport.CloseIdleConnections)
	for range n {
		thread := newThread(b, c)
		all = append(all, &poster{url: host + "/api/stream/arbe-thread-" + thread, token: runToken(b, cfg, first.Thread.HouseId, thread), client: &http.Client{Transport: transport}})
	}
	return all
}

func (p *poster) post(b *testing.B, batch []entry.Draft) {
	var records []string
	for _, d := range batch {
		records = append(records, fmt.Sprintf(`{"id":%q,"payload":{"type":%q,%s}`, d.ID, d.Type, d.Payload[1:]))
	}
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, p.url, strings.NewReader("["+strings.Join(records, ",")+"]"))
	if err != nil {
		b.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+p.token)
	answer, err := p.client.Do(r)
	if err != nil {
		b.Error(err)
		return
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(answer.Body)
	if answer.StatusCode >= 300 {
		b.Errorf("the door answers %d: %s", answer.StatusCode, said)
	}
}

// residentMemory returns the memory of a process, in bytes.
func residentMemory(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
