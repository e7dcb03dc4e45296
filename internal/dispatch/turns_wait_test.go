//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/turn"
)

// tunedBench returns a bench with a bot whose server is tuned further.
func tunedBench(t *testing.T, script modeltest.Script, tune func(*dispatch.Config)) *botBench {
	t.Helper()
	r := benchWithBot(database(t), script)
	r.driver = newGated()
	first := r.tune
	r.tune = func(c *dispatch.Config) {
		first(c)
		tune(c)
	}
	r.server = r.serve()
	r.th = r.conversation()
	return r
}

// waits returns the entries that say that a turn is waiting.
func (r *botBench) waits() []entry.TurnWaiting { return of[entry.TurnWaiting](r.entries()) }

func isWaiting(e entry.Entry) bool { return e.Type == entry.TurnWaiting{}.Type() }

// turnJobs returns the number of turns' jobs in a state.
func (r *botBench) turnJobs(state string) int {
	return r.counted("select count(*) from "+db.JobSchema+".river_job where kind = 'turn' and state = $1", state)
}

// TestWhatPassesIsWaitedOut makes a provider fail in every temporary way before each call of a turn. The question gets one
// answer, and neither the answer nor the log contains text of the interrupted attempts.
func TestWhatPassesIsWaitedOut(t *testing.T) {
	t.Parallel()
	failures := []modeltest.Failure{
		modeltest.Overloaded, modeltest.Overloaded, modeltest.OverloadedWithin, modeltest.Limited(0.05), modeltest.CutWithin, modeltest.Silent,
		modeltest.Broken, modeltest.CutOff, modeltest.SilentWithin, modeltest.Limited(0),
	}
	for dialect, path := range map[model.Dialect]string{model.Messages: "", model.Chat: "/v1", model.Responses: "/v1", model.Gemini: ""} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			call := modeltest.Flaky(calls("list_threads", map[string]int{}), failures...)
			script := modeltest.Flaky(nil, failures...)
			r := tunedBench(t, func(q *modeltest.Request) modeltest.Reply {
				if q.Last().Role != "tool" {
					return call(q)
				}
				again := *q
				again.Seen -= len(failures) + 1
				return script(&again)
			}, func(c *dispatch.Config) {
				// Longer than a model needs on a busy machine, because an extra attempt would be counted.
				c.Bots.Model = &model.Client{HeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second}
				endpoint := c.Bots.Endpoint
				c.Bots.Endpoint = func(ctx context.Context, scope db.Scope, ref string) (model.Endpoint, string, error) {
					e, id, err := endpoint(ctx, scope, ref)
					e.Dialect, e.BaseURL = dialect, e.BaseURL+path
					return e, id, err
				}
			})
			r.says("q", "@bot hello")
			answer := r.answer("q")
			if answer.Text == "" || strings.Contains(answer.Text, "half") || answer.Turn.Steps != 2 {
				t.Errorf("it answers %q after %d steps", answer.Text, answer.Turn.Steps)
			}
			if n, want := len(r.models.Requests()), 2*(len(failures)+1); n != want {
				t.Errorf("%d requests, want %d", n, want)
			}
			if all := r.story(r.th); strings.Contains(all, modeltest.HalfAnswer[:4]) {
				t.Errorf("the log has a half of an answer: %s", all)
			}
			if n := r.counted("select tries from turns"); n != len(failures) {
				t.Errorf("%d tries count for the last step, want %d", n, len(failures))
			}
		})
	}
}

// TestAWaitIsSaid: people see which provider the bot waits for, why, and when it tries again, even while the provider is
// merely silent. Stop ends the turn at once.
func TestAWaitIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure modeltest.Failure
		silence time.Duration // longer than the answer takes, or its beginning
		reason  string
		plain   string
	}{
		"of an overloaded provider":             {modeltest.Overloaded, time.Hour, "overload", "waiting for Anthropic: overloaded; next try in "},
		"of a silent provider":                  {modeltest.Silent, 300 * time.Millisecond, "idle", "waiting for Anthropic: no answer for under 1 s; next try in 3 min"},
		"of one that is silent within":          {modeltest.SilentWithin, 10 * time.Second, "idle", "waiting for Anthropic: no answer for 10 s; next try in 1 min 50 s"},
		"of one that says when to ask again":    {modeltest.Limited(90), time.Hour, "rate_limit", "waiting for Anthropic: too many requests ("},
		"of one that cannot be reached":         {modeltest.CutOff, time.Hour, "unreachable", "waiting for Anthropic: it cannot be reached"},
		"of one that is overloaded in mid-text": {modeltest.OverloadedWithin, time.Hour, "overload", "waiting for Anthropic: overloaded; next try in "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tunedBench(t, modeltest.Flaky(nil, c.failure), func(d *dispatch.Config) {
				d.Bots.Waits = turn.Waits{First: time.Minute, Silence: c.silence}
			})
			r.says("q", "@bot hello")
			r.until(isWaiting)
			w := r.waits()[0]
			if w.Reason != c.reason || w.Provider != "Anthropic" || w.DelayMS <= 0 || !strings.HasPrefix(w.Plain(), c.plain) {
				t.Errorf("it says %q: %+v", w.Plain(), w)
			}
			if found, err := r.dispatcher.StopTurns(t.Context(), r.scope, r.th, ""); err != nil || len(found) != 1 {
				t.Fatalf("%d turns were active (%s)", len(found), detail(err))
			}
			if e := r.end("q"); e.Outcome != entry.TurnStopped {
				t.Errorf("it ends with %+v", e)
			}
			if n := len(r.models.Requests()); n != 1 {
				t.Errorf("the model was asked %d times", n)
			}
		})
	}
}

// TestTheTailsHearOfAWait: a page and arbe ask show a wait live, even a short one that has no entry.
func TestTheTailsHearOfAWait(t *testing.T) {
	t.Parallel()
	// The answer comes after the tail has heard of the next try, because a tail may skip what is over.
	held := modeltest.Flaky(func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "Hello.", HoldHeaders: true} }, modeltest.CutWithin)
	r := tunedBench(t, held, func(c *dispatch.Config) {
		// Long enough for the tail to hear of it before it is over, and too short for an entry.
		c.Bots.Waits = turn.Waits{First: 8 * time.Second, Hold: time.Minute, Brief: time.Hour}
	})
	var speak, answer sync.Once
	var heard []string
	r.follow(r.th, func(ev stream.Event) bool {
		speak.Do(func() { r.says("q", "@bot hello") }) // an earlier entry shows that the tail has begun
		if ev.Delta != nil && strings.Contains(string(ev.Delta.Data), `"retry"`) {
			heard = append(heard, string(ev.Delta.Data))
			if strings.Contains(string(ev.Delta.Data), "asking again") {
				answer.Do(func() {
					if err := r.models.Step(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
		}
		c, ok := entry.Chat{}, false
		if ev.Entry != nil {
			c, ok = entry.As[entry.Chat](*ev.Entry)
		}
		return ok && c.Turn != nil
	})
	if len(heard) < 2 || !strings.Contains(heard[0], "waiting for Anthropic: the connection was lost; next try in") || !strings.Contains(heard[1], "asking again") {
		t.Errorf("the tails heard %q", heard)
	}
	if w := r.waits(); len(w) != 0 {
		t.Errorf("the log has %+v", w)
	}
}

// TestALongWaitHasFewEntries also checks that no model reads them.
func TestALongWaitHasFewEntries(t *testing.T) {
	t.Parallel()
	var down []modeltest.Failure
	for range 20 { // over within the first minute
		down = append(down, modeltest.Overloaded)
	}
	r := tunedBench(t, modeltest.Flaky(nil, down...), func(c *dispatch.Config) {
		c.Bots.Waits = turn.Waits{First: time.Millisecond, Max: 5 * time.Millisecond, Brief: time.Millisecond}
	})
	r.says("q", "@bot hello")
	r.answer("q")
	if w := r.waits(); len(w) != 1 {
		t.Errorf("%d entries say that it waits: %+v", len(w), w)
	}
	for _, q := range r.models.Requests() {
		if strings.Contains(string(q.Body), "waiting for") {
			t.Fatalf("the model reads of it: %s", q.Body)
		}
	}
}

// tooLong is overloaded, and with the third call it asks for a longer pause than a turn has time.
func tooLong(q *modeltest.Request) modeltest.Reply {
	reply := modeltest.Overloaded(q)
	if q.Seen == 2 {
		reply.Header = map[string]string{"Retry-After": "3600"}
	}
	return reply
}

// TestAWaitEndsWithTheTurn: if the turn has too little time left to wait, it fails at once, in the provider's words.
func TestAWaitEndsWithTheTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure modeltest.Failure
		reason  string
		says    []string
	}{
		"because the provider asks for too much": {modeltest.Limited(3600), "rate_limit", []string{"limits the rate of requests", "your organization's rate limit", "in 1 h"}},
		"because it fails for too long":          {tooLong, "overload", []string{"overloaded", "It was asked 3 times"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bots(t, func(q *modeltest.Request) modeltest.Reply { return c.failure(q) })
			r.settings.Limits.Time = 30 * time.Minute
			r.says("q", "@bot hello")
			e := r.end("q")
			if e.Outcome != entry.TurnFailed || e.Reason != c.reason || e.Next == "" {
				t.Errorf("it ends with %+v", e)
			}
			for _, words := range c.says {
				if !strings.Contains(e.Message, words) {
					t.Errorf("it does not say %q: %s", words, e.Message)
				}
			}
		})
	}
}

// TestWhoWaitsTakesNoWorker: more turns wait than may run at once, and yet another one is answered.
func TestWhoWaitsTakesNoWorker(t *testing.T) {
	t.Parallel()
	const waiting = 6
	r := tunedBench(t, func(q *modeltest.Request) modeltest.Reply {
		if q.Model == "fake-529" {
			return modeltest.Overloaded(q)
		}
		return modeltest.ByName(q)
	}, func(c *dispatch.Config) {
		c.Bots.Waits = turn.Waits{First: time.Hour, Max: 2 * time.Hour}
		c.Limits = dispatch.Limits{Turns: jobs.Limits{ThreadRunning: 1, HouseRunning: 2, PersonRunning: 2}}
	})
	r.settings.Model, r.settings.Limits.Time = "fake-529", 10*time.Hour
	for i := range waiting {
		r.th = r.conversation()
		r.says(fmt.Sprint("q", i), "@bot hello")
		r.until(isWaiting)
	}
	r.settings.Model = "fake-answer"
	r.th = r.conversation()
	r.says("q", "@bot hello")
	r.answer("q")
	r.untilRow("select count(*) = 0 from " + db.JobSchema + ".river_job where kind = 'turn' and state = 'running'")
	if n := r.turnJobs("scheduled"); n != waiting {
		t.Errorf("%d turns wait, want %d", n, waiting)
	}
	if err := r.dispatcher.ReviveTurns(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	if n := r.turnJobs("scheduled"); n != waiting {
		t.Errorf("a sweep left %d of %d waits", n, waiting)
	}
}

// TestAWaitOutlivesItsServer kills the server of a waiting turn. The next server asks when the provider wants to be asked.
func TestAWaitOutlivesItsServer(t *testing.T) {
	t.Parallel()
	const after = 6
	asked := make(chan time.Time, 10)
	script := modeltest.Flaky(nil, modeltest.Limited(after))
	r := bots(t, func(q *modeltest.Request) modeltest.Reply {
		asked <- time.Now()
		return script(q)
	})
	// The test itself only writes.
	if err := r.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	kill := r.botProcess()
	if _, err := r.log.Append(t.Context(), r.ref(r.th), entry.NewDraft("q", r.scope.Agent, entry.Chat{Text: "@bot hello"})); err != nil {
		t.Fatal(detail(err))
	}
	r.until(isWaiting)
	kill()
	r.botProcess()
	r.answer("q")
	first, second := <-asked, <-asked
	if waited := second.Sub(first); waited < (after-1)*time.Second || len(r.models.Requests()) != 2 {
		t.Errorf("it was asked %d times, again after %s", len(r.models.Requests()), waited)
	}
	if n := r.counted("select count(*) from turns"); n != 1 {
		t.Errorf("there are %d turns", n)
	}
}

// TestAFallbackAnswers while the provider of the bot's own model does not, and the log says so.
func TestAFallbackAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own       modeltest.Failure
		fallbacks []string
		patience  time.Duration
		// answers is the model that answers, if any. fell lists the models that were asked in place of another.
		answers string
		fell    []string
	}{
		"after a while":                     {modeltest.Overloaded, []string{"fake-answer"}, 5 * time.Second, "fake-answer", []string{"fake-answer"}},
		"at once if the pause is too long":  {modeltest.Limited(3600), []string{"fake-answer"}, time.Minute, "fake-answer", []string{"fake-answer"}},
		"but not one that is not allowed":   {modeltest.Limited(3600), []string{"forbidden", "fake-answer"}, time.Minute, "fake-answer", []string{"fake-answer"}},
		"but not one whose key is wrong":    {modeltest.Limited(3600), []string{"fake-401", "fake-answer"}, time.Minute, "fake-answer", []string{"fake-401", "fake-answer"}},
		"but not one that costs too much":   {modeltest.Limited(3600), []string{"dear"}, time.Minute, "", []string{"dear"}},
		"but not in place of the bot's own": {tooLong, []string{"own"}, time.Millisecond, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tunedBench(t, func(q *modeltest.Request) modeltest.Reply {
				if q.Model == "own" {
					return c.own(q)
				}
				return modeltest.ByName(q)
			}, func(d *dispatch.Config) {
				d.Bots.Waits.Fallback = c.patience
				d.Bots.Budget = turn.Budget{DayMicros: 1, UnknownMicros: 1e9}
				d.Bots.Fallbacks = func(context.Context, db.Scope) ([]string, error) { return c.fallbacks, nil }
				endpoint := d.Bots.Endpoint
				d.Bots.Endpoint = func(ctx context.Context, scope db.Scope, ref string) (model.Endpoint, string, error) {
					e, id, err := endpoint(ctx, scope, ref)
					if ref == "forbidden" {
						err = fault.New(fault.Precondition, "this house has no key for it", "set one")
					}
					e.Shared = ref == "dear"
					return e, id, err
				}
			})
			r.settings.Model = "own"
			r.says("q", "@bot hello")
			if c.answers == "" {
				if e := r.end("q"); e.Outcome != entry.TurnFailed {
					t.Errorf("it ends with %+v", e)
				}
			} else if a := r.answer("q"); a.Turn.Model != "anthropic/"+c.answers {
				t.Errorf("it answers with %q", a.Turn.Model)
			}
			var fell []string
			for _, f := range of[entry.TurnFellBack](r.entries()) {
				fell = append(fell, f.Fallback)
			}
			if !slices.Equal(fell, c.fell) {
				t.Errorf("it fell back to %q, want %q", fell, c.fell)
			}
			if c.patience < time.Minute && c.answers != "" && len(r.models.Requests()) < 3 {
				t.Errorf("its own model was asked %d times", len(r.models.Requests())-1)
			}
			for _, q := range r.models.Requests() {
				if q.Model == "dear" || q.Model == "forbidden" {
					t.Errorf("%s was asked", q.Model)
				}
			}
		})
	}
}

// TestAnEmptyAnswerAfterToolsIsAskedForOnceMore also checks that a second empty answer is an error.
func TestAnEmptyAnswerAfterToolsIsAskedForOnceMore(t *testing.T) {
	t.Parallel()
	for name, empty := range map[string]int{"and comes": 1, "and does not come": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bots(t, func(q *modeltest.Request) modeltest.Reply {
				switch {
				case q.Seen == 0:
					return modeltest.Reply{Calls: []modeltest.Call{{Name: "list_threads", Arguments: "{}"}}}
				case q.Seen <= empty:
					return modeltest.Reply{Text: " "}
				}
				return modeltest.Reply{Text: "There is one thread."}
			})
			r.says("q", "@bot how many?")
			if empty == 1 {
				if a := r.answer("q"); a.Text != "There is one thread." || a.Turn.Steps != 2 || a.Turn.Usage.Input != 300 {
					t.Errorf("it answers %q: %+v", a.Text, a.Turn)
				}
			} else if e := r.end("q"); e.Outcome != entry.TurnSilent || e.Reason != "silent" || e.Next == "" {
				t.Errorf("it ends with %+v", e)
			}
			if n := len(r.models.Requests()); n != 3 {
				t.Errorf("the model was asked %d times", n)
			}
			if asked := r.models.Requests()[2].Asked(); !strings.Contains(asked, "you gave no answer") {
				t.Errorf("it was asked %q", asked)
			}
		})
	}
}
