//go:build linux

package dispatch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/stream"
)

// BenchmarkTurnsFirstDelta measures the time from a chat until a client, following the thread over HTTP with server-sent
// events, has the first piece of the answer. For comparison it makes the same call, to a model that takes no time, as one
// bare HTTP request. The two alternate, so that both have the same machine. decided is when the turn is in the log, and asked
// when its model is called. quiet pauses between two questions, as people do.
func BenchmarkTurnsFirstDelta(b *testing.B) {
	for name, rest := range map[string]time.Duration{"quiet": 300 * time.Millisecond, "busy": 0} {
		b.Run(name, func(b *testing.B) { firstDelta(b, rest) })
	}
}

func firstDelta(b *testing.B, rest time.Duration) {
	var asked atomic.Int64
	r := bots(b, func(q *modeltest.Request) modeltest.Reply {
		asked.Store(time.Now().UnixNano())
		return modeltest.Reply{Text: "well, hello"}
	})
	sse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		for ev, err := range r.log.Tail(q.Context(), r.ref(r.th), 0) {
			text, marshalErr := json.Marshal(ev)
			if err != nil || marshalErr != nil {
				return
			}
			fmt.Fprintf(w, "data: %s\n\n", text)
			flush.Flush()
		}
	}))
	defer sse.Close()
	response, err := http.Get(sse.URL)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { response.Body.Close() }() // of the last connection
	lines := bufio.NewReader(response.Body)
	next := func() (ev stream.Event) {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				b.Fatal(err)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(data), &ev); err != nil {
					b.Fatal(err)
				}
				return ev
			}
		}
	}
	middle := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2].Microseconds()) / 1000
	}
	var through, decided, called, bare []time.Duration
	n := 0
	for b.Loop() {
		n++
		if n == 50 { // keep the context small
			n = 0
			r.th = r.conversation()
			sse.CloseClientConnections()
			if response, err = http.Get(sse.URL); err != nil {
				b.Fatal(err)
			}
			lines = bufio.NewReader(response.Body)
		}
		id := fmt.Sprint("q", n)
		time.Sleep(rest)
		began := time.Now()
		r.says(id, "@bot hello")
		var first time.Duration
		for {
			ev := next()
			if ev.Delta != nil && first == 0 && strings.HasPrefix(ev.Delta.EntryID, entry.TurnPrefix) {
				first = time.Since(began)
			}
			if ev.Entry == nil {
				continue
			}
			if s, ok := entry.As[entry.TurnStarted](*ev.Entry); ok && s.EntryID == id {
				decided = append(decided, time.Since(began))
			}
			if slices.Contains(answersTo(*ev.Entry), id) {
				if first == 0 { // the answer was complete before a piece of it could be sent
					first = time.Since(began)
				}
				break
			}
		}
		through = append(through, first)
		called = append(called, time.Unix(0, asked.Load()).Sub(began))

		began = time.Now()
		bare = append(bare, bareFirstDelta(b, r.models.URL, began))
	}
	b.ReportMetric(middle(decided), "ms/decided")
	b.ReportMetric(middle(called), "ms/asked")
	b.ReportMetric(middle(through), "ms/first")
	b.ReportMetric(middle(bare), "ms/bare")
	b.ReportMetric(middle(through)-middle(bare), "ms/overhead")
	b.ReportMetric(middle(through)/middle(bare), "first/bare")
	b.ReportMetric(0, "ns/op") // includes more than is measured
}

// bareFirstDelta asks a model by one HTTP request, and returns the time from began to the first piece of the answer. It
// reads the answer to its end.
func bareFirstDelta(b *testing.B, url string, began time.Time) (first time.Duration) {
	const question = `{"model":"fake-answer","max_tokens":1024,"stream":true,"messages":[{"role":"user","content":"hello"}]}`
	response, err := http.Post(url+"/v1/messages", "application/json", strings.NewReader(question))
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if first == 0 && strings.Contains(lines.Text(), `"text_delta"`) {
			first = time.Since(began)
		}
	}
	if lines.Err() != nil || first == 0 {
		b.Fatalf("%s: no piece of an answer came: %v", response.Status, lines.Err())
	}
	return first
}

// BenchmarkTurnsAtOnce measures 200 concurrent turns in 200 threads, of a model that takes 2 seconds: how long people wait
// for an answer, and how much memory a turn takes during its model's call. The memory includes the asker's tail and the
// connection of the scripted model.
func BenchmarkTurnsAtOnce(b *testing.B) {
	const many, takes = 200, 2 * time.Second
	called := make(chan struct{}, many)
	r := bots(b, func(q *modeltest.Request) modeltest.Reply {
		called <- struct{}{}
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
		for range many {
			<-called
		}
		runtime.GC()
		runtime.ReadMemStats(&during)
		all.Wait()
		cancel()
		slices.Sort(took)
		b.ReportMetric(took[len(took)/2].Seconds(), "s/median")
		b.ReportMetric(took[len(took)-1].Seconds(), "s/last")
		used := func(m runtime.MemStats) float64 { return float64(m.HeapAlloc+m.StackInuse) / many / 1024 }
		b.ReportMetric(used(during)-used(before), "KiB/turn")
		b.ReportMetric(0, "ns/op")
	}
}

// BenchmarkTurnsPiece measures how long each piece of an answer takes, from just before the model's server writes it until a
// tail of the thread has it: alone, and beside 20 other turns of the same pace. The models write 50 pieces a second, and the
// house has a secret, which every piece is searched for.
func BenchmarkTurnsPiece(b *testing.B) {
	b.Run("alone", func(b *testing.B) { pieces(b, 0) })
	b.Run("beside-20", func(b *testing.B) { pieces(b, 20) })
}

func pieces(b *testing.B, others int) {
	const count, pause = 100, 20 * time.Millisecond
	var words []string
	for i := range count {
		words = append(words, fmt.Sprintf("<%d>", i+1))
	}
	text := strings.Join(words, " ")
	var mu sync.Mutex
	var wrote [count + 1]time.Time // by number, the pieces of the watched turn
	var all sync.WaitGroup         // waits until every model is called, so that all write concurrently
	r := benchWithBot(database(b), func(q *modeltest.Request) modeltest.Reply {
		watched := strings.Contains(q.Asked(), "watched")
		all.Done()
		all.Wait()
		return modeltest.Reply{Text: text, Before: func(part int) {
			time.Sleep(pause)
			if watched && part <= count { // the end follows them
				mu.Lock()
				defer mu.Unlock()
				wrote[part] = time.Now()
			}
		}}
	})
	r.driver = newGated()
	r.server = r.serve()
	var lags []time.Duration
	for b.Loop() {
		r.th = r.conversation()
		tail, err := r.log.StartTail(b.Context(), stream.Stream{Ref: r.ref(r.th)}, 0)
		if err != nil {
			b.Fatal(detail(err))
		}
		all.Add(1 + others)
		var beside []string
		for range others {
			th := r.conversation()
			beside = append(beside, th)
			if _, err := r.log.Append(b.Context(), r.ref(th), entry.NewDraft("q", r.scope.Agent, entry.Chat{Text: "@bot go"})); err != nil {
				b.Fatal(detail(err))
			}
		}
		r.says("q", "@bot be watched")
		var seen strings.Builder
		for ev := range tail {
			if ev.Entry != nil && slices.Contains(answersTo(*ev.Entry), "q") {
				break
			}
			now, had := time.Now(), strings.Count(seen.String(), ">")
			for _, c := range chunks(ev) {
				seen.WriteString(c.Text)
			}
			mu.Lock()
			for i := had + 1; i <= strings.Count(seen.String(), ">"); i++ {
				lags = append(lags, now.Sub(wrote[i]))
			}
			mu.Unlock()
		}
		if seen.String() != text {
			b.Fatalf("the pieces are %q", seen.String())
		}
		for _, th := range beside {
			r.follow(th, func(ev stream.Event) bool { return ev.Entry != nil && slices.Contains(answersTo(*ev.Entry), "q") })
		}
	}
	report(b, lags, "piece")
	b.ReportMetric(0, "ns/op") // would only show the models' pace
}

// report reports the median, the 99th percentile and the longest of some times.
func report(b *testing.B, all []time.Duration, of string) {
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(all[len(all)/2]), "ms/"+of+"-p50")
	b.ReportMetric(ms(all[len(all)*99/100]), "ms/"+of+"-p99")
	b.ReportMetric(ms(all[len(all)-1]), "ms/"+of+"-max")
}

// BenchmarkTurnsStop measures how long it takes to stop a turn whose model is writing: from the request to its answer, to the
// end of the connection to the model, and until a tail of the thread has the end of the turn.
func BenchmarkTurnsStop(b *testing.B) {
	r := bots(b, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "one two three", Hold: true} })
	var answered, gone, ended []time.Duration
	for b.Loop() {
		r.th = r.conversation()
		tail, err := r.log.StartTail(b.Context(), stream.Stream{Ref: r.ref(r.th)}, 0)
		if err != nil {
			b.Fatal(detail(err))
		}
		writes, over := make(chan struct{}), make(chan time.Time, 1)
		go func() {
			begin := sync.OnceFunc(func() { close(writes) })
			for ev := range tail {
				switch {
				case ev.Delta != nil && strings.HasPrefix(ev.Delta.EntryID, entry.TurnPrefix):
					begin()
				case ev.Entry != nil && ev.Entry.Type == (entry.TurnEnded{}).Type():
					over <- time.Now()
					return
				}
			}
		}()
		r.says("q", "@bot go")
		asked, err := r.models.Await(b.Context(), len(answered)+1)
		if err != nil {
			b.Fatal(err)
		}
		<-writes
		left := make(chan time.Time, 1)
		go func() {
			<-asked.Gone
			left <- time.Now()
		}()
		began := time.Now()
		r.stopAll(1)
		answered = append(answered, time.Since(began))
		gone = append(gone, (<-left).Sub(began))
		ended = append(ended, (<-over).Sub(began))
	}
	report(b, answered, "answered")
	report(b, gone, "gone")
	report(b, ended, "ended")
	b.ReportMetric(0, "ns/op") // includes the question
}

// BenchmarkTurnsDelta alternates between a piece of an answer and a stored entry. It measures how long each takes until the
// last of 1,000 tails on this server has it, and until a single tail has it.
func BenchmarkTurnsDelta(b *testing.B) {
	r := bots(b, nil)
	if err := r.stop(b.Context()); err != nil { // no other server works
		b.Fatal(detail(err))
	}
	type audience struct {
		log  stream.Ref
		size int
		seen chan string
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	gather := func(size int) audience {
		a := audience{r.ref(r.conversation()), size, make(chan string, 2*size)}
		for range size {
			tail, err := r.log.StartTail(ctx, stream.Stream{Ref: a.log}, 0)
			if err != nil {
				b.Fatal(detail(err))
			}
			go func() {
				for ev := range tail {
					switch {
					case ev.Delta != nil:
						a.seen <- ev.Delta.EntryID
					case ev.Entry != nil:
						a.seen <- ev.Entry.ID
					}
				}
			}()
		}
		return a
	}
	one, many := gather(1), gather(1000)
	piece, _ := json.Marshal(entry.PiChunk{Kind: "text", Text: "some words that a model writes"})
	n := 0
	measure := func(a audience, send func(id string) error) float64 {
		n++
		id := fmt.Sprint("e", n)
		began := time.Now()
		if err := send(id); err != nil {
			b.Fatal(detail(err))
		}
		for left := a.size; left > 0; {
			if <-a.seen == id {
				left--
			}
		}
		return float64(time.Since(began).Microseconds())
	}
	took := map[string][]float64{}
	for b.Loop() {
		for name, a := range map[string]audience{"one": one, "many": many} {
			took["delta-"+name] = append(took["delta-"+name], measure(a, func(id string) error {
				return r.log.Publish(ctx, a.log, stream.Delta{EntryID: id, Data: piece})
			}))
			took["entry-"+name] = append(took["entry-"+name], measure(a, func(id string) error {
				_, err := r.log.Append(ctx, a.log, entry.NewDraft(id, r.scope.Agent, entry.Chat{Text: "some words that people say"}))
				return err
			}))
		}
	}
	middle := func(of string) float64 {
		slices.Sort(took[of])
		return took[of][len(took[of])/2]
	}
	for _, what := range []string{"delta", "entry"} {
		b.ReportMetric(middle(what+"-one"), "us/"+what)
		b.ReportMetric(middle(what+"-many"), "us/"+what+"-to-1000")
		b.ReportMetric((middle(what+"-many")-middle(what+"-one"))/999, "us/"+what+"-and-watcher")
	}
	b.ReportMetric(0, "ns/op") // mixes several measurements
}
