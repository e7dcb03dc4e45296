package run_test

import (
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/thread"
)

// Another coding agent continues in a child. It knows the conversation, gets only the new task as its prompt, and works
// on its own copy of the files.
func TestAnotherAgentContinues(t *testing.T) {
	var mu sync.Mutex
	after := map[string]int64{}
	w := setup(t, func(r *runner) {
		mu.Lock()
		after[r.by.Thread] = r.spec.After
		mu.Unlock()
		if r.spec.Epoch == 1 {
			r.must(r.says("I looked."))
			r.completes("", r.w.get(r.by.Thread).Tail)
			return
		}
		r.must(r.says("I fixed it."))
		r.completes("fixed", r.w.get(r.by.Thread).Tail)
	})
	source := w.spawn("Fix the test.")
	w.ends(source.ID, 1, thread.Completed)
	how := run.Resume{Agent: "@codex", Task: "Go on.", ID: "goes-on"}
	began, err := w.runs.Continue(t.Context(), w.scope, source.ID, how)
	must(t, err)
	log := w.ends(began.Thread, began.Epoch, thread.Completed)
	again, err := w.runs.Continue(t.Context(), w.scope, source.ID, how)
	must(t, err)
	if again != began || began.Thread == source.ID || began.Epoch != 2 {
		t.Fatalf("it continues as %+v, and a retry as %+v", began, again)
	}
	codex, child := w.botOf(w.scope.House, "codex"), w.get(began.Thread)
	if child.ParentThread != source.ID || child.Agent != codex || child.AskedBy != w.scope.Agent || child.Origin == nil || child.Origin.Thread != source.ID {
		t.Errorf("the child is %+v", child)
	}

	// What the runner makes of the log: the conversation before, and one prompt.
	var told []string
	for _, m := range harness.Transcript(log[:child.Origin.Seq+2], codex, after[child.ID]) {
		switch m := m.(type) {
		case entry.PiUser:
			told = append(told, "user: "+m.Text())
		case entry.PiAssistant:
			told = append(told, "agent: "+m.Text())
		}
	}
	if len(told) != 2 || told[0] != "user: Fix the test." || told[1] != "agent: I looked." {
		t.Errorf("its session begins with %q", told)
	}
	q := entry.NewQueue(codex, after[child.ID])
	for _, e := range log {
		q.Learn(e)
	}
	if waiting := q.Waiting(); len(waiting) != 1 || waiting[0].Chat.Text != "Go on." {
		t.Errorf("its prompts are %+v", waiting)
	}
	if answers := of[entry.PiAssistant](log); len(answers) != 2 || answers[1].Text() != "I fixed it." {
		t.Errorf("the log says:\n%s", story(log))
	}

	runs, _, err := w.runs.List(t.Context(), w.scope, child.ID, 0, 10)
	if must(t, err); len(runs) != 1 || runs[0].Epoch != 2 || runs[0].Result != "fixed" {
		t.Errorf("its runs are %+v", runs)
	}
	if now := w.get(source.ID); child.Sandbox == "" || now.Sandbox == child.Sandbox || now.Status != thread.Completed || now.Run.Epoch != 1 {
		t.Errorf("it works in %s, and the thread is %+v", child.Sandbox, now)
	}
	above := w.entries(source.ID)
	spawned, finished := of[entry.AgentSpawn](above), of[entry.ChildFinished](above)
	if len(spawned) != 1 || spawned[0].ChildThreadID != child.ID || spawned[0].Runtime != "codex" || len(finished) != 1 || finished[0].Outcome != "completed" {
		t.Errorf("the thread says:\n%s", story(above))
	}
}

func TestAnotherAgentCannotContinue(t *testing.T) {
	began, finish := make(chan struct{}, 1), make(chan struct{})
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "thinking"})
		began <- struct{}{}
		<-finish
		r.completes("done", r.w.get(r.by.Thread).Tail)
	})
	w.houses().Creation = house.Anyone
	other, err := w.houses().Create(t.Context(), w.scope.Agent, "Other")
	must(t, err)
	source := w.spawn("Work.")
	refused := func(how run.Resume, code fault.Code) {
		t.Helper()
		before := len(w.entries(source.ID))
		_, err := w.runs.Continue(t.Context(), w.scope, source.ID, how)
		if f := fault.From(err); err == nil || f.Code != code || f.Next == "" {
			t.Errorf("%+v: %v", how, err)
		}
		if after := len(w.entries(source.ID)); after != before {
			t.Errorf("%+v is refused, but the thread has %d more entries", how, after-before)
		}
	}
	<-began
	refused(run.Resume{Agent: "@codex"}, fault.Precondition) // the thread's own agent is at work
	close(finish)
	w.ends(source.ID, 1, thread.Completed)
	for _, c := range []struct {
		how  run.Resume
		code fault.Code
	}{
		{run.Resume{Agent: "@arbe"}, fault.Precondition}, // no coding agent
		{run.Resume{Agent: "@claude"}, fault.Precondition},
		{run.Resume{Agent: "@nobody"}, fault.NotFound},
		{run.Resume{Agent: w.botOf(other.ID, "codex")}, fault.NotFound},
		{run.Resume{Agent: "@codex", Task: "\x00"}, fault.Invalid},
		{run.Resume{Agent: "@codex", Sandbox: "nosuchsandbox"}, fault.NotFound},
		{run.Resume{Agent: "@pi", Task: "Go on."}, fault.Invalid},
	} {
		refused(c.how, c.code)
	}
	children, err := w.threads.List(t.Context(), w.scope, thread.Filter{ParentThread: source.ID, Limit: 10})
	if must(t, err); len(children) != 0 {
		t.Errorf("what was refused left %d children", len(children))
	}
	_, err = w.runs.Continue(t.Context(), w.scope, w.home, run.Resume{Agent: "@codex"})
	if fault.CodeOf(err) != fault.Precondition {
		t.Errorf("a chat is continued: %v", err)
	}
	if c, err := w.runs.Continue(t.Context(), w.scope, source.ID, run.Resume{Agent: "@pi"}); err != nil || c.Thread != source.ID || c.Epoch != 2 {
		t.Errorf("its own agent continues as %+v: %v", c, err)
	}
	w.ends(source.ID, 2, thread.Completed)
	for before, want := range map[int64]int64{0: 2, 2: 1} { // page by page
		if runs, _, err := w.runs.List(t.Context(), w.scope, source.ID, before, 1); err != nil || len(runs) != 1 || runs[0].Epoch != want {
			t.Errorf("before %d come %+v: %v", before, runs, err)
		}
	}
}

// A fork of a coding agent's thread has the conversation, and its own runs.
func TestAForkIsContinued(t *testing.T) {
	w := setup(t, func(r *runner) {
		r.must(r.says("I looked."))
		r.completes("done", r.w.get(r.by.Thread).Tail)
	})
	source := w.spawn("Fix the test.")
	w.ends(source.ID, 1, thread.Completed)
	fork, err := w.threads.Fork(t.Context(), w.scope, source.ID, thread.Fork{})
	must(t, err)
	w.say(fork.ID, "Now the docs.")
	log := w.ends(fork.ID, 2, thread.Completed)
	if answers := of[entry.PiAssistant](log); len(answers) != 2 || w.get(source.ID).Run.Epoch != 1 {
		t.Errorf("the fork says:\n%s", story(log))
	}
	if runs, _, err := w.runs.List(t.Context(), w.scope, fork.ID, 0, 10); err != nil || len(runs) != 1 {
		t.Errorf("its runs are %+v: %v", runs, err)
	}
}

// botOf returns the id of a bot of a house.
func (w *world) botOf(house, handle string) string {
	w.t.Helper()
	b, err := w.bots.GetByHandle(w.t.Context(), db.Scope{House: house, Agent: w.scope.Agent}, handle)
	must(w.t, err)
	return b.ID
}
