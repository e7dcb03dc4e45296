//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/turn"
)

// asBots makes this test program a server whose bot answers. Its value is [botServer]'s input: the URLs of the database and
// of the models, the bot, and the tools that need a person's approval.
const asBots = "ARBE_TEST_AS_BOTS"

// botServer runs a server until it is killed.
func botServer() {
	given := strings.Split(os.Getenv(asBots), "\n")
	ctx := context.Background()
	d, err := db.Open(ctx, given[0], db.Options{MaxConns: 40}) // many turns are held in their transactions
	if err == nil {
		tune := answering(given[1], given[2], &turn.Bot{Handle: "bot", Name: "Bot", Model: "fake", Tools: entry.Tools, Ask: strings.Split(given[3], ","), Limits: turn.Limits{Tokens: 1e9}})
		_, err = start(ctx, d, ready(), func(c *dispatch.Config) {
			tune(c)
			hasty(c)
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, detail(err))
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

// botProcess starts a [botServer] and returns a function that kills it.
func (r *botBench) botProcess() (kill func()) {
	r.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asBots+"="+strings.Join([]string{r.ServerURL, r.models.URL, r.bot, strings.Join(r.settings.Ask, ",")}, "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	r.t.Cleanup(kill)
	if _, err := out.Read(make([]byte, 16)); err != nil {
		r.t.Fatalf("the server did not start: %v", err)
	}
	return kill
}

// TestTurnsSurviveKilledServers kills servers at random points of turns. Afterwards each question must have exactly one
// answer, or one reported failure, and each tool must have taken effect once.
func TestTurnsSurviveKilledServers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes a while to kill servers")
	}
	r := bots(t, func(q *modeltest.Request) modeltest.Reply {
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) // so that kills hit every point
		return workOf(q).reply()
	})
	// This server only writes.
	if err := r.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	said := r.conversation()
	var threads []string
	for range 10 {
		threads = append(threads, r.conversation())
	}
	stop, asking := make(chan struct{}), sync.WaitGroup{}
	var mu sync.Mutex
	asked := map[string][]string{}
	for _, th := range threads {
		asking.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(100+rand.IntN(1500)) * time.Millisecond):
				}
				id := fmt.Sprintf("q%d", i)
				text := fmt.Sprintf("@bot do %s/%s-%s", said, th, id)
				if _, err := r.log.Append(t.Context(), r.ref(th), entry.NewDraft(id, r.scope.Agent, entry.Chat{Text: text})); err != nil {
					t.Error(detail(err))
					return
				}
				mu.Lock()
				asked[th] = append(asked[th], id)
				mu.Unlock()
			}
		})
	}
	kills := []func(){r.botProcess(), r.botProcess()}
	const rounds = 6
	for i := range rounds {
		time.Sleep(time.Duration(200+rand.IntN(700)) * time.Millisecond)
		// A step is given up after its third server has died, which another test covers.
		r.untilRow("select not exists (select from turns where ended_at is null and deaths > 1)")
		kills[i%2]()
		kills[i%2] = r.botProcess()
	}
	close(stop)
	asking.Wait()
	total := 0
	for _, th := range threads {
		total += len(asked[th])
		for _, problem := range r.audit(th, asked[th]...) {
			t.Errorf("the thread %s: %s", th, problem)
		}
		r.th = th
		for _, e := range of[entry.TurnEnded](r.entries()) {
			t.Errorf("a turn ended without an answer: %+v", e)
		}
	}
	for _, kill := range kills {
		kill()
	}
	r.th = said
	effects := map[string]int{}
	for _, c := range of[entry.Chat](r.entries()) {
		effects[c.Text]++
	}
	for text, n := range effects {
		if n != 1 {
			t.Errorf("%q was said %d times", text, n)
		}
	}
	t.Logf("%d questions, %d tool effects, %d servers killed", total, len(effects), rounds)
}

// answersTo returns the ids of the entries that an entry answers, or whose turn it ends without an answer.
func answersTo(e entry.Entry) []string {
	if c, ok := entry.As[entry.Chat](e); ok && c.Turn != nil {
		return slices.Clone(c.Turn.Answers)
	}
	if ended, ok := entry.As[entry.TurnEnded](e); ok {
		return slices.Clone(ended.Summary.Answers)
	}
	return nil
}

// TestATurnThatEndsItsServersGivesUp kills each server while a model answers the same question. Two more servers try. The
// turn then reports a failure, because the model's answer may be what ends the servers.
func TestATurnThatEndsItsServersGivesUp(t *testing.T) {
	t.Parallel()
	calls := make(chan struct{}, 10)
	r := bots(t, func(*modeltest.Request) modeltest.Reply {
		calls <- struct{}{}
		return modeltest.Reply{Text: "never", Hold: true, HoldHeaders: true}
	})
	// This server only writes.
	if err := r.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	if _, err := r.log.Append(t.Context(), r.ref(r.th), entry.NewDraft("q", r.scope.Agent, entry.Chat{Text: "@bot hello"})); err != nil {
		t.Fatal(detail(err))
	}
	for range 3 {
		kill := r.botProcess()
		<-calls
		kill()
	}
	r.botProcess()
	all := r.until(func(e entry.Entry) bool { _, ended := entry.As[entry.TurnEnded](e); return ended })
	if ended := of[entry.TurnEnded](all)[0]; ended.Reason != "server_died" {
		t.Errorf("the turn ended with %+v", ended)
	}
	if n := len(calls); n != 0 {
		t.Errorf("%d further calls of the model", n)
	}
}
