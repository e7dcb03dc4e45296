//go:build linux

package dispatch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/turn"
)

// callers creates two bots, @one and @two. Each answers by creating five threads and mentioning the other one there.
func callers(q *modeltest.Request) modeltest.Reply {
	if q.Last().Role == "tool" {
		return modeltest.Reply{Text: "done"}
	}
	other := "@two"
	if strings.Contains(q.System, "@two") {
		other = "@one"
	}
	var reply modeltest.Reply
	for i := range 5 {
		text, _ := json.Marshal(map[string]string{"name": fmt.Sprint("thread ", i), "text": other + " go on"})
		reply.Calls = append(reply.Calls, modeltest.Call{Name: entry.CreateThreadTool, Arguments: string(text)})
	}
	return reply
}

// still waits until no turn is active and every entry is decided.
func (r *botBench) still() {
	r.t.Helper()
	owner := r.Owner(r.t)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var busy bool
		err := owner.QueryRow(r.t.Context(), `select exists (select from turns where ended_at is null)
			or exists (select from decisions d where d.decided < (select coalesce(max(e.seq), 0) from entries e where e.stream_id = d.stream_id))`).Scan(&busy)
		if err != nil {
			r.t.Fatal(err)
		}
		if !busy {
			return
		} else if time.Now().After(deadline) {
			r.t.Fatal("it does not end")
		}
	}
}

// counted returns the count that a query selects.
func (r *botBench) counted(query string, args ...any) (n int) {
	r.t.Helper()
	if err := r.Owner(r.t).QueryRow(r.t.Context(), query, args...).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func TestWhatFollowsFromOneMessageEnds(t *testing.T) {
	t.Parallel()
	attack := func(t *testing.T, servers int, roots turn.RootLimits) *botBench {
		r := policyBench(t, 0, callers)
		tune := r.tune
		r.tune = func(c *dispatch.Config) { tune(c); c.Bots.Roots = roots }
		for range servers {
			r.server = r.serve()
		}
		r.invent("one")
		r.invent("two")
		r.says("q", "@one go on")
		r.still()
		return r
	}
	const threads = "select count(*) from threads where root is not null"
	const turns = "select count(*) from turns where root = $1"
	t.Run("in threads", func(t *testing.T) {
		t.Parallel()
		r := attack(t, 2, turn.RootLimits{})
		if n := r.counted(threads); n != 20 {
			t.Errorf("bots created %d threads, want 20", n)
		}
		if n := r.counted(turns, turn.RootOf(r.th, "q")); n != 21 { // the first turn, and one in each thread
			t.Errorf("%d turns began", n)
		}
		if n := len(r.models.Requests()); n > 50 {
			t.Errorf("models were called %d times", n)
		}
		refused := r.counted("select count(*) from entries where type = 'pi.tool_result' and payload::text like '%may create no more%'")
		if refused == 0 {
			t.Error("no bot read why it may create no more threads")
		}
	})
	t.Run("in turns, and each thread says so once", func(t *testing.T) {
		t.Parallel()
		r := attack(t, 2, turn.RootLimits{Turns: 12, Threads: 1000})
		if n := r.counted(turns, turn.RootOf(r.th, "q")); n != 12 {
			t.Errorf("%d turns began, want 12", n)
		}
		if n := r.counted(threads); n != 5*12 {
			t.Errorf("bots created %d threads", n)
		}
		skipped := r.counted("select count(*) from entries where type = 'signal.dispatch.skipped' and payload->>'reason' = 'breadth'")
		if most := 5*12 - 11; skipped != most {
			t.Errorf("%d entries say that no more may begin, want one in each of %d threads", skipped, most)
		}
		r.says("more", "@one go on") // a person says so
		r.still()
		if n := r.counted(turns, turn.RootOf(r.th, "more")); n != 12 {
			t.Errorf("%d turns followed from what a person said next", n)
		}
	})
	t.Run("in money", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 0, callers)
		tune := r.tune
		r.tune = func(c *dispatch.Config) { tune(c); c.Bots.Roots = turn.RootLimits{Micros: 1} }
		r.server = r.serve()
		r.invent("one")
		r.invent("two")
		if _, err := r.Owner(t).Exec(t.Context(), `create function spend() returns trigger language plpgsql set search_path = public, pg_temp as $$ begin new.cost_micros := 1; return new; end $$;
			create trigger spend before insert on model_calls for each row execute function spend()`); err != nil {
			t.Fatal(err)
		}
		r.says("q", "@one go on")
		r.still()
		if n := len(r.models.Requests()); n != 1 {
			t.Errorf("models were called %d times", n)
		}
		if e := of[entry.TurnEnded](r.entries()); len(e) != 1 || e[0].Reason != "entry_usd" {
			t.Errorf("the turn ended with %+v", e)
		}
	})
	t.Run("and a retry by a person starts a new count", func(t *testing.T) {
		t.Parallel()
		r := attack(t, 1, turn.RootLimits{Turns: 3, Threads: 4})
		id := of[entry.TurnStarted](r.entries())[0].TurnID
		if _, err := r.dispatcher.RetryTurn(t.Context(), r.scope, r.th, id); err != nil {
			t.Fatal(detail(err))
		}
		r.still()
		if n := r.counted("select count(distinct root) from turns"); n != 2 {
			t.Errorf("the turns have %d roots", n)
		}
		if n := r.counted(threads); n != 8 {
			t.Errorf("bots created %d threads, want 4 for each root", n)
		}
	})
}

func TestTurnsThatMayNotEvenWait(t *testing.T) {
	t.Parallel()
	r := policyBench(t, 0, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "one two three", Hold: true} })
	tune := r.tune
	r.tune = func(c *dispatch.Config) {
		tune(c)
		c.Limits = dispatch.Limits{Turns: jobs.Limits{HouseRunning: 1, ThreadWaiting: 2, HouseWaiting: 4, PersonWaiting: 5}}
	}
	r.server = r.serve()
	for i := range 8 {
		r.invent(fmt.Sprint("bot", i))
	}
	waiting := func() int { return r.counted("select count(*) from turns where status = 'queued'") }
	refusals := func(thread string) (list []string) {
		for _, e := range r.bench.entries(thread) {
			if s, ok := entry.As[entry.Skipped](e); ok && s.Reason == "queue" {
				list = append(list, s.Explanation)
			}
		}
		return list
	}
	r.says("q", "@bot0 begin")
	if _, err := r.models.Await(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	r.says("all", "@bot1 @bot2 @bot3 @bot4 @bot5 begin")
	r.settled("all")
	if n := waiting(); n != 2 {
		t.Errorf("%d turns of the thread wait, want 2", n)
	}
	if said := refusals(r.th); len(said) != 1 || !strings.Contains(said[0], "in this thread") {
		t.Errorf("the thread says %q", said)
	}
	for range 3 {
		r.th = r.conversation()
		r.says("all", "@bot1 @bot2 begin")
		r.settled("all")
	}
	if n := waiting(); n != 4 {
		t.Errorf("%d turns of the house wait, want 4", n)
	}
	if said := refusals(r.th); len(said) != 1 || !strings.Contains(said[0], "in this house") {
		t.Errorf("the thread says %q", said)
	}
}
