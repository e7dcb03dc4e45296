//go:build linux

package dispatch_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/stream"
)

// BenchmarkTurnsLongThread asks 50 questions in a thread of 5,000 entries (735 KB), each after ten more entries. For some
// questions, over all requests that each makes, it reports the tokens sent, the share of them that a cache like Anthropic's
// serves, their cost at a model's prices, and the time to the first piece of the answer of a model that takes no time. The
// costs do not include the answers. summaries counts the requests for a summary over all questions.
func BenchmarkTurnsLongThread(b *testing.B) {
	const priced = "claude-sonnet-4-5"
	price := model.Lookup(model.Anthropic, priced).Price
	if price == nil {
		b.Fatal("the model has no price")
	}
	for b.Loop() {
		r := bots(b, func(q *modeltest.Request) modeltest.Reply {
			if isCompaction(q) {
				return modeltest.Reply{Text: strings.Repeat("It was said that much was to be done. ", 100)}
			}
			return modeltest.Reply{Text: strings.Repeat("That is how it is. ", 20)}
		})
		r.settings.Model = priced
		said := 0
		say := func(n int) {
			var drafts []entry.Draft
			for range n {
				said++
				drafts = append(drafts, entry.NewDraft("", r.scope.Agent, entry.Chat{Text: fmt.Sprintf("%05d ", said) + strings.Repeat("what was said ", 10)}))
			}
			for part := range slices.Chunk(drafts, 500) {
				if _, err := r.log.Append(b.Context(), r.ref(r.th), part...); err != nil {
					b.Fatal(detail(err))
				}
			}
		}
		say(5000)
		var cache promptCache
		asked, summaries := 0, 0
		for n := 1; n <= 50; n++ {
			if n > 1 {
				say(10)
			}
			id := fmt.Sprint("q", n)
			first := firstPiece(b, r, id, "@bot what now?")
			var tokens, cached int64
			var cost float64
			all := r.models.Requests()
			for _, q := range all[asked:] {
				if isCompaction(q) {
					summaries++
				}
				use := cache.send(b, q)
				tokens += use.Input + use.CacheRead + use.CacheWrite
				cached += use.CacheRead
				cost += float64(price.Of(use).Micros()) / 1e4
			}
			requests := len(all) - asked
			asked = len(all)
			if n == 1 || n == 2 || n == 50 {
				name := fmt.Sprint("-q", n)
				b.ReportMetric(float64(tokens), "tokens"+name)
				b.ReportMetric(100*float64(cached)/float64(tokens), "%cached"+name)
				b.ReportMetric(cost, "cents"+name)
				b.ReportMetric(float64(first.Microseconds())/1000, "ms/first"+name)
				b.ReportMetric(float64(requests), "requests"+name)
			}
		}
		b.ReportMetric(float64(summaries), "summaries")
	}
	b.ReportMetric(0, "ns/op") // mixes several measurements
}

// firstPiece asks something, waits for the answer, and returns the time to its first piece.
func firstPiece(b *testing.B, r *botBench, id, text string) (first time.Duration) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	began := time.Now()
	written, err := r.log.Append(ctx, r.ref(r.th), entry.NewDraft(id, r.scope.Agent, entry.Chat{Text: text}))
	if err != nil {
		b.Fatal(detail(err))
	}
	for ev, err := range r.log.Tail(ctx, r.ref(r.th), written[0].Seq) {
		if err != nil {
			b.Fatal(detail(err))
		}
		if first == 0 && (len(chunks(ev)) > 0 || answersIt(ev, id)) {
			first = time.Since(began)
		}
		if answersIt(ev, id) {
			break
		}
	}
	return first
}

func answersIt(ev stream.Event, id string) bool {
	return ev.Entry != nil && slices.Contains(answersTo(*ev.Entry), id)
}

// promptCache is a provider's cache that works as Anthropic's does: a request reads what an earlier one wrote up to a mark,
// if that mark is within the 20 blocks before one of its own, and writes up to its last mark.
type promptCache map[string]bool

// send returns the tokens that a request reads, writes and pays in full, as arbe estimates them.
func (c *promptCache) send(b *testing.B, q *modeltest.Request) (use model.Usage) {
	if *c == nil {
		*c = promptCache{}
	}
	blocks, marked := blocksOf(b, q)
	prefixes := make([]string, len(blocks)+1)
	tokens := make([]int64, len(blocks)+1)
	for i, block := range blocks {
		prefixes[i+1] = fmt.Sprintf("%x", sha256.Sum256([]byte(prefixes[i]+block)))
		tokens[i+1] = tokens[i] + model.EstimateTokens(block)
	}
	read, wrote := 0, 0
	for _, m := range marked {
		for back := range 20 {
			if at := m + 1 - back; at > read && (*c)[prefixes[at]] {
				read = at
				break
			}
		}
	}
	for _, m := range marked {
		(*c)[prefixes[m+1]] = true
		wrote = max(wrote, m+1)
	}
	wrote = max(wrote, read)
	return model.Usage{CacheRead: tokens[read], CacheWrite: tokens[wrote] - tokens[read], Input: tokens[len(blocks)] - tokens[wrote]}
}
