package run_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/thread"
)

// asks posts a question about a call.
func (r *runner) asks(call string) error {
	return r.send(entry.NewDraft(entry.AskedID(call), "", entry.PermissionAsked{Epoch: 1, CallID: call, Tool: "Bash", Arguments: json.RawMessage(`{"command":"make ` + call + `"}`)}))
}

// An agent's question is a request like those of turns: a row and an entry. The first answer counts, and the end of
// the run ends it.
func TestWhatAnAgentAsksIsAnsweredOnce(t *testing.T) {
	ends := make(chan struct{})
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "asking", Through: 1})
		for _, call := range []string{"run.1.0.call0", "run.1.0.call1", "run.1.0.call2", "run.1.0.call0"} { // the last one is a retry
			if err := r.asks(call); err != nil {
				r.w.t.Error(err)
			}
		}
		withdrawn := entry.PermissionAnswered{Epoch: 1, Outcome: entry.Withdrawn}
		if err := r.send(entry.NewDraft("run.1.0.call2.answered", "", withdrawn)); err != nil {
			r.w.t.Error(err)
		}
		r.must(r.says("I wait."))
		select {
		case <-ends:
		case <-r.ctx.Done():
		}
		r.completes("Done.", 1)
	})
	child := w.spawn("Work.")
	w.until(child.ID, func(e entry.Entry) bool { return e.Type == (entry.PiAssistant{}).Type() })
	open, err := w.d.OpenApprovals(t.Context(), w.scope, child.ID, db.Cursor{}, 10)
	must(t, err)
	if len(open) != 2 || open[0].Epoch != 1 || open[0].Turn != "" || open[0].Call != "run.1.0.call0" || open[0].ExpiresAt.Before(time.Now().Add(23*time.Hour)) {
		t.Fatalf("the open requests are %+v", open)
	}
	answer := func(id string, yes bool) error {
		_, err := w.d.Answer(t.Context(), w.scope, approval.Answer{House: w.scope.House, Thread: child.ID, Approval: id, Approve: yes, Reason: "as you like"})
		return err
	}
	must(t, answer(open[0].ID, true))
	must(t, answer(open[0].ID, true)) // repeating it is harmless
	if err := answer(open[0].ID, false); fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "already answered") {
		t.Errorf("the second answer: %v", err)
	}
	close(ends)
	all := w.ends(child.ID, 1, thread.Completed)
	outcomes := map[string]string{}
	for _, p := range of[entry.PermissionAnswered](all) {
		outcomes[p.ApprovalID] += p.Outcome
	}
	if len(of[entry.PermissionAsked](all)) != 3 || len(outcomes) != 3 || outcomes[open[0].ID] != entry.Approved || outcomes[open[1].ID] != entry.Withdrawn {
		t.Errorf("the outcomes are %v:\n%s", outcomes, story(all))
	}
	if err := answer(open[1].ID, true); fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "run has ended") {
		t.Errorf("an answer after the end: %v", err)
	}
}

// Any member answers an agent, whoever delegated to it, and only the first answer reaches the agent. Everybody else learns who
// answered and how. Whoever is not a person of the house cannot answer.
func TestAnotherMemberAnswersAnAgent(t *testing.T) {
	const call = "run.1.0.call0"
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "asking", Through: 1})
		if err := r.asks(call); err != nil {
			r.w.t.Error(err)
		}
		for _, e := range r.w.until(r.by.Thread, func(e entry.Entry) bool { return e.ID == entry.AnsweredID(call) }) {
			if p, ok := entry.As[entry.PermissionAnswered](e); ok {
				r.completes("They said "+p.Outcome+": "+p.Reason, 1)
			}
		}
	})
	bob, cleo := w.member("Bob"), w.member("Cleo")
	stranger, err := w.houses().CreatePerson(t.Context(), "Eve")
	must(t, err)
	arbe, err := w.bots.GetByHandle(t.Context(), w.scope, "arbe")
	must(t, err)
	child := w.spawn("Work.") // in Ada's name
	w.until(child.ID, func(e entry.Entry) bool { return e.Type == (entry.PermissionAsked{}).Type() })
	open, err := w.d.OpenApprovals(t.Context(), bob, "", db.Cursor{}, 10)
	must(t, err)
	if len(open) != 1 || open[0].Thread != child.ID || open[0].Call != call {
		t.Fatalf("Bob sees the requests %+v", open)
	}
	answer := func(by db.Scope, yes bool, reason string) error {
		_, err := w.d.Answer(t.Context(), by, approval.Answer{House: w.scope.House, Thread: child.ID, Approval: open[0].ID, Approve: yes, Reason: reason})
		return err
	}
	for name, by := range map[string]string{"a stranger": stranger, "a bot": arbe.ID} {
		if err := answer(db.Scope{House: w.scope.House, Agent: by}, true, ""); fault.CodeOf(err) != fault.Forbidden && fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s answers: %v", name, err)
		}
	}
	errs := map[string]error{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, by := range map[string]db.Scope{"Bob": bob, "Cleo": cleo} { // at once, with the same answer
		all.Go(func() {
			err := answer(by, true, name+" agrees")
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	all.Wait()
	first, second := "Bob", "Cleo"
	if errs[first] != nil {
		first, second = second, first
	}
	must(t, errs[first])
	for name, err := range map[string]error{second: errs[second], "Ada": answer(w.scope, false, "")} {
		if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "this was already answered: "+first+" said yes at ") {
			t.Errorf("%s answers after %s: %v", name, first, err)
		}
	}
	log := w.ends(child.ID, 1, thread.Completed)
	by := map[string]string{"Bob": bob.Agent, "Cleo": cleo.Agent}[first]
	if got := of[entry.PermissionAnswered](log); len(got) != 1 || got[0].Outcome != entry.Approved || got[0].AnsweredBy != by {
		t.Errorf("the answers are %+v, want one of %s", got, first)
	}
	if report := of[entry.RunFinished](log); len(report) != 1 || report[0].Result != "They said approved: "+first+" agrees" {
		t.Errorf("the agent reports %+v", report)
	}
}

// No request waits forever. One that nobody answers in time expires, and the run is notified.
func TestNobodyAnswersAnAgent(t *testing.T) {
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "asking", Through: 1})
		if err := r.asks("run.1.0.call0"); err != nil {
			r.w.t.Error(err)
		}
		r.w.until(r.by.Thread, func(e entry.Entry) bool { return e.ID == "run.1.0.call0.answered" })
		r.completes("Done.", 1)
	}, func(c *dispatch.Config) {
		c.Runs.Rules = func(context.Context, db.Scope, bot.Bot) (run.Rules, error) {
			return run.Rules{Patience: time.Millisecond}, nil
		}
	})
	child := w.spawn("Work.")
	w.until(child.ID, func(e entry.Entry) bool { return e.Type == (entry.PermissionAsked{}).Type() })
	for over := false; !over; {
		th := w.get(child.ID)
		must(t, w.runs.Sweep(t.Context()))
		over = th.Status == thread.Completed
	}
	all := w.ends(child.ID, 1, thread.Completed)
	if answered := of[entry.PermissionAnswered](all); len(answered) != 1 || answered[0].Outcome != entry.Expired {
		t.Errorf("the log is\n%s", story(all))
	}
}

// An agent that cannot ask is not started if its tools need approval.
func TestAnAgentThatCannotAsk(t *testing.T) {
	w := setup(t, func(r *runner) { r.completes("Done.", 1) }, func(c *dispatch.Config) {
		c.Runs.Rules = func(context.Context, db.Scope, bot.Bot) (run.Rules, error) {
			return run.Rules{Ask: []string{entry.SayTool, entry.RunCommandTool}}, nil
		}
	})
	child := w.spawn("Work.")
	all := w.ends(child.ID, 1, thread.Failed)
	if failed := of[entry.PiFailed](all); len(failed) != 1 || !strings.Contains(failed[0].Error, "run_command only with a person's approval") || strings.Contains(failed[0].Error, "say") {
		t.Errorf("the log is\n%s", story(all))
	}
}
