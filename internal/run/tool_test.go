package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// delegating is a world whose @arbe calls delegate_task as a test wants. Its coding agents work until the test ends.
type delegating struct {
	*world
	// calls are the arguments of the calls of the next turn.
	calls atomic.Pointer[[]map[string]string]
}

func newDelegating(t *testing.T, tune func(*run.Limits)) *delegating {
	t.Helper()
	d := &delegating{}
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		reply := modeltest.Reply{Text: "Done."}
		if r.Last().Role == "tool" {
			return reply
		}
		for i, call := range *d.calls.Load() {
			arguments, _ := json.Marshal(call) // texts
			reply.Calls = append(reply.Calls, modeltest.Call{ID: fmt.Sprint("call-", i), Name: entry.DelegateTaskTool, Arguments: string(arguments)})
		}
		return reply
	})
	d.world = setup(t, func(r *runner) { <-r.ctx.Done() }, func(c *dispatch.Config) {
		tune(&c.Runs.Limits)
		c.Bots = turn.Config{
			Model: new(model.Client),
			Bot: func(context.Context, db.Scope, string) (turn.Bot, error) {
				return turn.Bot{Handle: "arbe", Name: "Arbe", Model: "fake", Tools: entry.Tools}, nil
			},
			Person: func(context.Context, db.Scope, string) (turn.Person, error) { return turn.Person{Name: "Ada"}, nil },
			Endpoint: func(_ context.Context, _ db.Scope, ref string) (model.Endpoint, string, error) {
				return model.Endpoint{Provider: model.Anthropic, BaseURL: models.URL, Key: "sk-test", Trusted: true}, ref, nil
			},
		}
	})
	return d
}

// turn has @arbe make these calls in one turn in a thread, and returns their results in the order of the calls.
func (d *delegating) turn(threadID string, calls ...map[string]string) (results []entry.PiToolResult) {
	d.t.Helper()
	d.calls.Store(&calls)
	by := dispatch.Speaker{Scope: d.scope, MayRun: func(context.Context) error { return nil }}
	said, err := d.d.Say(d.t.Context(), by, threadID, dispatch.Message{Text: "@arbe delegate it"})
	must(d.t, err)
	all := d.until(threadID, func(e entry.Entry) bool {
		c, _ := entry.As[entry.Chat](e)
		return e.Seq > said.Seq && c.Turn != nil
	})
	results = of[entry.PiToolResult](all[said.Seq:])
	slices.SortFunc(results, func(a, b entry.PiToolResult) int { return strings.Compare(a.ToolCallID, b.ToolCallID) })
	if len(results) != len(calls) {
		d.t.Fatalf("%d calls have %d results:\n%s", len(calls), len(results), story(all))
	}
	return results
}

// refused returns what a bot reads of the calls that were refused.
func refused(results []entry.PiToolResult) (texts []string) {
	for _, r := range results {
		if r.IsError {
			texts = append(texts, r.Text())
		}
	}
	return texts
}

// A bot delegates several tasks in one turn, each into the sandbox that it names, and no more than a thread may have.
func TestABotDelegatesSeveralTasksAtOnce(t *testing.T) {
	w := newDelegating(t, func(l *run.Limits) { l.Children = 4 })
	above, err := w.threads.Create(t.Context(), w.scope, thread.Draft{Name: "above"})
	must(t, err)
	boxOf := func(id string) (box string) {
		for box == "" && t.Context().Err() == nil {
			box = w.get(id).Sandbox
		}
		return box
	}
	mine, another := boxOf(w.spawn("Work in one.").ID), boxOf(w.spawn("Work in another.").ID)
	must(t, w.db.In(t.Context(), w.scope, func(tx pgx.Tx) error {
		return w.threads.PutOnSandboxTx(t.Context(), tx, above.ID, mine)
	}))

	results := w.turn(above.ID, map[string]string{"task": "With my files.", "sandbox": "parent"},
		map[string]string{"task": "With other files.", "sandbox": another, "agent": "@codex"}, map[string]string{"task": "On its own."})
	if no := refused(results); len(no) > 0 {
		t.Fatalf("the bot reads %q", no)
	}
	boxes := map[string]string{}
	for _, s := range of[entry.AgentSpawn](w.entries(above.ID)) {
		boxes[s.Task+" "+s.Runtime] = boxOf(s.ChildThreadID)
		if !slices.ContainsFunc(results, func(r entry.PiToolResult) bool {
			return strings.Contains(r.Text(), "the task is in thread "+s.ChildThreadID)
		}) {
			t.Errorf("of %q, the bot reads no thread", s.Task)
		}
		if th := w.get(s.ChildThreadID); th.ParentThread != above.ID || th.Root == "" {
			t.Errorf("%q is in %+v", s.Task, th)
		}
	}
	if own := boxes["On its own. pi"]; len(boxes) != 3 || boxes["With my files. pi"] != mine || boxes["With other files. codex"] != another || own == "" || own == mine || own == another {
		t.Errorf("they work in %q, and the parent in %q; the other one is %q", boxes, mine, another)
	}

	no := refused(w.turn(above.ID, map[string]string{"task": "One more."}, map[string]string{"task": "Another one."}, map[string]string{"task": "A third one."}))
	const want = "4 tasks that were delegated from this thread have not ended, the most allowed; wait until some have ended, or cancel some"
	if !slices.Equal(no, []string{want, want}) {
		t.Errorf("the bot reads %q", no)
	}
	if n := len(of[entry.AgentSpawn](w.entries(above.ID))); n != 4 {
		t.Errorf("%d tasks are delegated", n)
	}
}

// What a bot cannot delegate, it is told in words that say what to do instead.
func TestWhatABotCannotDelegate(t *testing.T) {
	w := newDelegating(t, func(l *run.Limits) { l.Depth = 1 })
	below, err := w.threads.Create(t.Context(), w.scope, thread.Draft{Name: "below", ParentThread: w.home})
	must(t, err)
	for _, c := range []struct {
		thread string
		call   map[string]string
		want   string
	}{
		{below.ID, map[string]string{"task": "Too deep."}, "this thread is at depth 1, and tasks cannot be delegated any deeper; do it here, or delegate it from the thread above"},
		{w.home, map[string]string{"task": "Nowhere.", "sandbox": "parent"}, "sandbox: the thread has none yet; run a command in it first, or leave the sandbox out for a new one"},
		{w.home, map[string]string{"task": "Elsewhere.", "sandbox": "nosandbox1"}, "sandbox: the house has none with this id; use an id of the same house, or leave it out"},
		{w.home, map[string]string{"task": "For a chatter.", "agent": "@arbe"}, "@arbe is not a coding agent; mention it in a thread, or delegate to a coding agent, such as @pi"},
	} {
		if r := w.turn(c.thread, c.call)[0]; !r.IsError || !strings.Contains(r.Text(), c.want) {
			t.Errorf("with %v, the bot reads %q, want %q", c.call, r.Text(), c.want)
		}
	}
	if n := len(of[entry.AgentSpawn](w.entries(below.ID))) + len(of[entry.AgentSpawn](w.entries(w.home))); n != 0 {
		t.Errorf("%d tasks are delegated", n)
	}
}
