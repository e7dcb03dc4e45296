//go:build linux

package dispatch_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// BenchmarkBacklog measures how long a server takes to decide about a mention behind a long undecided log: of chats that
// mention nobody, of chats that mention people, and of entries other than chats. It reports the seconds from the server's
// start to the decision about the mention; entries decided a second; and, for the three seconds after that, entries made
// searchable a second.
func BenchmarkBacklog(b *testing.B) {
	const length = 200_000
	for _, c := range []struct {
		name    string
		payload entry.Payload
	}{
		{"chats", entry.Chat{Text: "some words that people say, and a number"}},
		{"people", entry.Chat{Text: "some words that people say @ada, and a number"}},
		{"results", entry.CommandResult{CommandID: "c", Output: "some words that programs print, and a number"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var seconds, indexed float64
			for b.Loop() {
				b.StopTimer()
				bed := databaseOn(b, dbtest.NewDurable(b))
				bed.driver = newGated()
				bare, err := stream.Open(b.Context(), bed.DB, slog.New(slog.DiscardHandler))
				if err != nil {
					b.Fatal(detail(err))
				}
				bed.server = &server{log: bare, threads: thread.New(bed.DB, bare)}
				th := bed.conversation()
				drafts := make([]entry.Draft, 500)
				for i := 0; i < length; i += len(drafts) {
					for j := range drafts {
						drafts[j] = entry.NewDraft(fmt.Sprint("e", i+j), bed.scope.Agent, c.payload)
					}
					if _, err := bare.Append(b.Context(), bed.ref(th), drafts...); err != nil {
						b.Fatal(detail(err))
					}
				}
				if _, err := bare.Append(b.Context(), bed.ref(th), entry.NewDraft("mention", bed.scope.Agent, entry.Chat{Text: "@bee, and you?"})); err != nil {
					b.Fatal(detail(err))
				}
				bare.Close()
				owner := bed.Owner(b)
				bed.tune = func(c *dispatch.Config) { c.Rosters = bot.New(c.DB, c.Threads) }
				b.StartTimer()
				began := time.Now()
				s := bed.serve()
				if _, err := bot.New(bed.DB, s.threads).Create(b.Context(), bed.scope, bot.Draft{Handle: "bee"}); err != nil {
					b.Fatal(detail(err))
				}
				for decided := int64(0); decided <= length; time.Sleep(5 * time.Millisecond) {
					if err := owner.QueryRow(b.Context(), "select decided from decisions where thread_id = $1", th).Scan(&decided); err != nil {
						b.Fatal(err)
					}
				}
				seconds += time.Since(began).Seconds()
				b.StopTimer()
				var before, after int64
				const words = "select coalesce(sum(indexed), 0) from search_cursors where thread_id = $1"
				if err := owner.QueryRow(b.Context(), words, th).Scan(&before); err != nil {
					b.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				if err := owner.QueryRow(b.Context(), words, th).Scan(&after); err != nil {
					b.Fatal(err)
				}
				indexed += float64(after-before) / 3
				if err := s.stop(b.Context()); err != nil {
					b.Fatal(detail(err))
				}
				b.StartTimer()
			}
			b.ReportMetric(seconds/float64(b.N), "mention-s")
			b.ReportMetric(length*float64(b.N)/seconds, "decided/s")
			b.ReportMetric(indexed/float64(b.N), "searchable/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
