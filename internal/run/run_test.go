package run_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestARunFromItsTaskToItsResult(t *testing.T) {
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking", Through: 1})
		r.must(r.says("I look."), entry.PiToolResult{Harness: "pi", ToolCallID: "1", ToolName: "bash"})
		r.must(entry.Heartbeat{Epoch: 1, Phase: "tool", LastTool: "bash", Through: 1})
		r.must(r.says("Fixed."), entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted, Result: "Fixed.", Through: 1, Usage: &entry.TurnUsage{Input: 3, Output: 4, CostMicros: 1200}})
	})
	child := w.spawn("Fix the failing test.\nIt is in main_test.go.")
	if child.Name != "Fix the failing test." || child.Status != thread.Idle || child.ParentThread != w.home || child.AskedBy != w.scope.Agent {
		t.Errorf("the child is %+v", child)
	}
	all := w.ends(child.ID, 1, thread.Completed)
	if kinds := types(all); kinds != "chat status_changed heartbeat assistant tool_result assistant run_finished status_changed" {
		t.Errorf("its log has %s:\n%s", kinds, story(all))
	}
	if all[0].Author != w.scope.Agent || all[3].Author != child.Agent {
		t.Errorf("the task is by %s and the answer by %s", all[0].Author, all[3].Author)
	}
	th := w.get(child.ID)
	if th.Run.Epoch != 1 || th.Run.Through != 1 || th.Run.HeartbeatAt.IsZero() || th.Run.StartedAt.IsZero() {
		t.Errorf("the row says %+v", th.Run)
	}
	if r := th.Run; r.Doing != "running bash" || r.Tool != "bash" || r.Result != "Fixed." || r.CostMicros != 1200 || r.EndedAt.Before(r.StartedAt) {
		t.Errorf("the row says at a glance %+v", r)
	}
	above := w.entries(w.home)
	spawned, ended, said := of[entry.AgentSpawn](above), of[entry.ChildFinished](above), of[entry.Chat](above)
	if len(spawned) != 1 || spawned[0].ChildThreadID != child.ID || spawned[0].Runtime != "pi" {
		t.Errorf("the parent says %+v", spawned)
	}
	if len(ended) != 1 || ended[0].Outcome != "completed" || ended[0].Usage == nil || ended[0].Wakes != "" {
		t.Errorf("the parent was told %+v", ended)
	}
	if len(said) != 1 || said[0].Text != "Fixed." || said[0].Run == nil || said[0].Run.ThreadID != child.ID || above[len(above)-1].Author != child.Agent {
		t.Errorf("the parent hears %+v", said)
	}
	runs, _, err := w.runs.List(t.Context(), w.scope, child.ID, 0, 10)
	must(t, err)
	if len(runs) != 1 || runs[0].Status != thread.Completed || runs[0].Policy != entry.ReasonDelegated || runs[0].Result != "Fixed." || runs[0].Ended.Before(runs[0].Started) {
		t.Errorf("its runs are %+v", runs)
	}
}

// types returns the kinds of entries, without their common prefixes.
func types(entries []entry.Entry) string {
	var list []string
	for _, e := range entries {
		list = append(list, e.Type[strings.LastIndex(e.Type, ".")+1:])
	}
	return strings.Join(list, " ")
}

func TestARunnerThatDies(t *testing.T) {
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "thinking"})
		r.must(r.says("I begin."))
		r.exit = 137
	})
	child := w.spawn("Work.")
	all := w.ends(child.ID, 1, thread.Failed)
	lost := of[entry.SessionOrphaned](all)
	if len(lost) != 1 || !strings.Contains(lost[0].Reason, "exit 137") || !strings.Contains(lost[0].LastLines, "the last words") {
		t.Errorf("the log says\n%s", story(all))
	}
	told(t, w, child, "failed")
}

// told checks that the parent was told once how a child ended.
func told(t *testing.T, w *world, child thread.Thread, outcome string) {
	t.Helper()
	above := w.entries(w.home)
	if ended := of[entry.ChildFinished](above); len(ended) != 1 || ended[0].Outcome != outcome || ended[0].ChildThreadID != child.ID {
		t.Errorf("the parent was told %+v, want once %s", ended, outcome)
	}
	if said := of[entry.Chat](above); len(said) != 1 || said[0].Run == nil || said[0].Run.Outcome != outcome {
		t.Errorf("the parent hears %+v", said)
	}
}

func TestASandboxThatIsGone(t *testing.T) {
	begun := make(chan struct{})
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "thinking"})
		close(begun)
		<-r.ctx.Done()
	})
	child := w.spawn("Work.")
	<-begun
	must(t, w.driver.Destroy(t.Context(), "box-"+w.get(child.ID).Sandbox))
	all := w.ends(child.ID, 1, thread.Failed)
	if lost := of[entry.SessionOrphaned](all); len(lost) != 1 || !strings.Contains(lost[0].Reason, "sandbox") {
		t.Errorf("the log says\n%s", story(all))
	}
	told(t, w, child, "failed")
}

func TestAnAgentThatCannotBeInstalled(t *testing.T) {
	w := setup(t, func(*runner) { t.Error("it was launched") })
	w.driver.fails = "npm: not found"
	child := w.spawn("Work.")
	all := w.ends(child.ID, 1, thread.Failed)
	why := of[entry.PiFailed](all)
	if len(why) != 1 || why[0].Phase != entry.PhaseDispatch || !strings.Contains(why[0].Error, "npm: not found") || !strings.Contains(why[0].Next, "continue") {
		t.Errorf("the log says\n%s", story(all))
	}
	told(t, w, child, "failed")
}

// Messages wait until an agent has received them, even if several launches fail first. The parent hears of each failure once.
func TestMessagesOutliveLaunchesThatFail(t *testing.T) {
	heard := make(chan []string, 1)
	w := setup(t, func(r *runner) {
		var texts []string
		for _, e := range r.w.entries(r.by.Thread) {
			if c, ok := entry.As[entry.Chat](e); ok && e.Seq > r.spec.After {
				texts = append(texts, c.Text)
			}
		}
		heard <- texts
		r.completes("done", r.w.get(r.by.Thread).Tail)
	})
	install := func(fails string) {
		w.driver.mu.Lock()
		defer w.driver.mu.Unlock()
		w.driver.fails = fails
	}
	install("npm: not found")
	child := w.spawn("Work.")
	w.ends(child.ID, 1, thread.Failed)
	for epoch := range int64(5) {
		w.say(child.ID, "And this.")
		w.ends(child.ID, 2+epoch, thread.Failed)
	}
	install("")
	w.say(child.ID, "Now.")
	w.ends(child.ID, 7, thread.Completed)
	if texts := strings.Join(<-heard, " "); texts != "Work."+strings.Repeat(" And this.", 5)+" Now." {
		t.Errorf("the agent hears %q", texts)
	}
	if ended := of[entry.ChildFinished](w.entries(w.home)); len(ended) != 7 {
		t.Errorf("the parent was told of %d runs", len(ended))
	}
}

func TestCancel(t *testing.T) {
	t.Run("a runner that obeys reports it", func(t *testing.T) {
		begun, announced := make(chan struct{}), make(chan struct{})
		w := setup(t, func(r *runner) {
			r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
			close(begun)
			r.w.until(r.by.Thread, func(e entry.Entry) bool { return e.Type == entry.CancelRequested{}.Type() })
			r.must(entry.Heartbeat{Epoch: 1, Phase: "stopping"})
			close(announced)
			r.must(entry.RunFinished{Epoch: 1, Outcome: entry.RunCancelled})
			select {
			case <-r.asked:
				r.w.t.Error("it is ended before it has reported")
			default:
			}
		})
		w.driver.announced = announced // because a busy machine takes longer than the server waits
		child := w.spawn("Work.")
		<-begun
		stopped, err := w.runs.Cancel(t.Context(), w.scope, child.ID)
		must(t, err)
		all := w.ends(child.ID, 1, thread.Cancelled)
		if asked := of[entry.CancelRequested](all); !stopped || len(asked) != 1 {
			t.Errorf("the log says\n%s", story(all))
		}
		told(t, w, child, "cancelled")
		if stopped, err := w.runs.Cancel(t.Context(), w.scope, child.ID); err != nil || stopped {
			t.Errorf("again, it stops %v: %v", stopped, err)
		}
	})
	t.Run("a runner that is dead is no obstacle", func(t *testing.T) {
		begun := make(chan struct{})
		w := setup(t, func(r *runner) {
			r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
			close(begun)
			<-r.asked // and says nothing
		})
		child := w.spawn("Work.")
		<-begun
		start := time.Now()
		_, err := w.runs.Cancel(t.Context(), w.scope, child.ID)
		must(t, err)
		w.ends(child.ID, 1, thread.Cancelled)
		if took := time.Since(start); took > 10*time.Second { // it is given no more time to report
			t.Errorf("it took %s", took)
		}
		told(t, w, child, "cancelled")
	})
}

func TestWhatIsSaid(t *testing.T) {
	var mu sync.Mutex
	var after []int64
	steered := make(chan struct{})
	w := setup(t, func(r *runner) {
		mu.Lock()
		after = append(after, r.spec.After)
		mu.Unlock()
		if r.spec.Epoch == 1 {
			r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking", Through: 1})
			<-steered // it ends without having read the message
			r.completes("one", 1)
			return
		}
		r.completes("more", r.w.get(r.by.Thread).Tail)
	})
	child := w.spawn("Work.")
	w.until(child.ID, func(e entry.Entry) bool { return e.Type == entry.Heartbeat{}.Type() })
	w.say(child.ID, "Also this.")
	close(steered)
	w.ends(child.ID, 2, thread.Completed)
	w.say(child.ID, "And later, this.")
	w.ends(child.ID, 3, thread.Completed)
	if mu.Lock(); len(after) != 3 || after[0] != 0 || after[1] != 1 || after[2] <= after[1] {
		t.Errorf("the runs began after %v", after)
	}
	mu.Unlock()
}

// A task may share the sandbox of the thread that delegates it.
func TestATaskInTheParentsSandbox(t *testing.T) {
	w := setup(t, func(r *runner) { r.completes("done", r.w.get(r.by.Thread).Tail) })
	child := w.spawn("Work.")
	w.ends(child.ID, 1, thread.Completed)
	below, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: child.ID, Text: "Work here.", Sandbox: "parent"})
	must(t, err)
	w.ends(below.ID, 1, thread.Completed)
	if got, want := w.get(below.ID).Sandbox, w.get(child.ID).Sandbox; got != want || want == "" {
		t.Errorf("it works in %q, want %q", got, want)
	}
}

func TestTwoContinueAtOnce(t *testing.T) {
	w := setup(t, func(r *runner) { r.completes("done", r.w.get(r.by.Thread).Tail) })
	child := w.spawn("Work.")
	w.ends(child.ID, 1, thread.Completed)
	another := w.member("Bob")
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			scope := w.scope
			if i%2 == 1 {
				scope = another
			}
			if c, err := w.runs.Continue(t.Context(), scope, child.ID, run.Resume{}); err != nil || c.Epoch < 2 {
				t.Errorf("it continues as %d: %v", c.Epoch, err)
			}
		})
	}
	all.Wait()
	w.ends(child.ID, 2, thread.Completed)
	if chats := of[entry.Chat](w.entries(child.ID)); w.driver.launched() < 2 || len(chats) > w.driver.launched() {
		t.Errorf("%d runs, and %d chats", w.driver.launched(), len(chats))
	}
	box := w.get(child.ID).Sandbox
	_, err := w.runs.Continue(t.Context(), w.scope, child.ID, run.Resume{Fresh: true})
	must(t, err)
	epoch := w.get(child.ID).Run.Epoch
	if w.get(child.ID).Status != thread.Running {
		epoch++
	}
	w.ends(child.ID, epoch, thread.Completed)
	if w.get(child.ID).Sandbox == box {
		t.Error("the fresh run has the old sandbox")
	}
}

func TestAHostileRunner(t *testing.T) {
	refusals := make(chan error, 20)
	w := setup(t, func(r *runner) {
		defer close(refusals)
		r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
		own := entry.RunEntryID(1, 5)
		for _, d := range []entry.Draft{
			entry.NewDraft(own, "", entry.StatusChanged{From: "running", To: "completed", Epoch: 1}),
			entry.NewDraft(own, "", entry.ChildFinished{ChildThreadID: "x", Outcome: "completed"}),
			entry.NewDraft(entry.RunEntryID(2, 0), "", r.says("from the future")),
			entry.NewDraft(entry.RunEndID(1), "", r.says("in the way")),
			entry.NewDraft("mine", "", r.says("by another id")),
			entry.NewDraft(own, "", entry.RunFinished{Epoch: 2, Outcome: entry.RunCompleted}),
			entry.NewDraft(own, "", entry.Chat{Text: "hi", Run: &entry.RunSummary{ThreadID: "t"}}),
			entry.NewDraft(own, "", entry.PiAssistant{Turn: "n1", StopReason: entry.PiStopped}),
			entry.NewDraft(own, "", entry.Command{Command: "true"}),
			entry.NewDraft(own, "", entry.PermissionAsked{Epoch: 1, CallID: "run.1.9", Tool: "Bash"}),
			entry.NewDraft(entry.AskedID(own), "", entry.PermissionAsked{Epoch: 2, CallID: own, Tool: "Bash"}),
			entry.NewDraft(entry.AnsweredID(own), "", entry.PermissionAnswered{Epoch: 1, Outcome: entry.Approved}),
		} {
			refusals <- r.send(d)
		}
		later := r.by
		later.Epoch = 2
		_, err := r.w.runs.Accept(r.ctx, later, write(entry.NewDraft(entry.RunEntryID(2, 0), "", r.says("later"))))
		refusals <- err
		r.completes("done", 0)
		refusals <- r.post(r.says("too late"))
	})
	child := w.spawn("Work.")
	n := 0
	for err := range refusals {
		n++
		if code := fault.CodeOf(err); code != fault.Forbidden && code != fault.Invalid {
			t.Errorf("refusal %d: %v", n, err)
		}
	}
	all := w.ends(child.ID, 1, thread.Completed)
	if kinds := types(all); n != 14 || kinds != "chat status_changed heartbeat run_finished status_changed" {
		t.Errorf("after %d refusals, the log has %s", n, kinds)
	}
}

// No secret of the house that a run received appears in its posts, whatever the run does with it.
func TestASecretOfARun(t *testing.T) {
	const canary = "canary-5up3r-s3cr3t"
	heard := make(chan string, 1)
	w := setup(t, func(r *runner) {
		heard <- r.env["CANARY"]
		said := "It is " + canary + "."
		r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking", LastTool: canary})
		r.must(r.says(said), entry.PiAssistant{Harness: "pi", StopReason: entry.PiToolUse,
			Content: []entry.PiBlock{{Type: entry.PiCallBlock, ID: "1", Name: "bash", Arguments: []byte(`{"command":"echo ` + canary + `"}`)}}},
			entry.PiToolResult{Harness: "pi", ToolCallID: "1", ToolName: "bash", Content: []entry.PiBlock{entry.PiText(said)}})
		r.must(entry.RunFinished{Epoch: 1, Outcome: entry.RunFailed, Error: said, LastLines: said, Result: said})
	})
	_, _, err := w.secrets.Set(t.Context(), w.scope, "CANARY", []byte(canary))
	must(t, err)
	env, err := w.boxes.CreateEnvironment(t.Context(), w.scope, "secret", sandbox.Recipe{Secrets: []secret.Binding{{Name: "CANARY", Required: true}}})
	must(t, err)
	child, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: w.home, Text: "Work.", Environment: env.ID})
	must(t, err)
	all := w.ends(child.ID, 1, thread.Failed)
	if got := <-heard; got != canary {
		t.Errorf("the run received %q", got)
	}
	for _, e := range append(all, w.entries(w.home)...) {
		if strings.Contains(string(e.Payload), canary) {
			t.Errorf("entry %d has it: %s %s", e.Seq, e.Type, e.Payload)
		}
	}
	if failures := of[entry.PiFailed](all); len(failures) != 1 || !strings.Contains(failures[0].Error, "It is ") {
		t.Errorf("the log says\n%s", story(all))
	}
}

func TestARunThatWritesTooMuch(t *testing.T) {
	w := setup(t, func(r *runner) {
		for r.post(r.says("again")) == nil {
		}
		r.exit = 3
	}, func(c *dispatch.Config) { c.Runs.Limits.Entries = 20 })
	child := w.spawn("Work.")
	all := w.ends(child.ID, 1, thread.Failed)
	if why := of[entry.PiFailed](all); len(why) != 1 || !strings.Contains(why[0].Error, "written more") || len(all) > 30 {
		t.Errorf("the log says\n%s", story(all))
	}
	told(t, w, child, "failed")
}

// silent begins a run whose runner posts one heartbeat and then nothing more.
func silent(t *testing.T, tune ...func(*dispatch.Config)) (*world, thread.Thread) {
	begun := make(chan struct{})
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
		close(begun)
		<-r.ctx.Done()
	}, tune...)
	child := w.spawn("Work.")
	<-begun
	return w, child
}

func TestReconcile(t *testing.T) {
	short := func(c *dispatch.Config) { c.Runs.Limits.Silence = 50 * time.Millisecond }
	t.Run("a runner that this server has not heard for long enough is lost", func(t *testing.T) {
		w, child := silent(t, short)
		if done, err := w.runs.Reconcile(t.Context(), w.scope, child.ID); err != nil || done.To != thread.Running {
			t.Fatalf("a run that lives becomes %+v: %v", done, err)
		}
		w.silence(child.ID, time.Minute)
		for w.get(child.ID).Status == thread.Running {
			must(t, w.runs.Sweep(t.Context()))
		}
		all := w.ends(child.ID, 1, thread.Failed)
		if lost := of[entry.SessionOrphaned](all); len(lost) != 1 || !strings.Contains(lost[0].Reason, "has been silent") {
			t.Errorf("the log says\n%s", story(all))
		}
		told(t, w, child, "failed")
	})
	t.Run("hours without a server, or a clock that jumps, lose no run", func(t *testing.T) {
		w, child := silent(t)
		for _, by := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
			w.silence(child.ID, by)
			must(t, w.runs.Sweep(t.Context()))
			if done, err := w.runs.Reconcile(t.Context(), w.scope, child.ID); err != nil || done.To != thread.Running {
				t.Errorf("after %s, it becomes %+v: %v", by, done, err)
			}
		}
	})
	t.Run("a report that is in the log already is adopted, by whoever reads the thread", func(t *testing.T) {
		w, child := silent(t)
		id := entry.RunEntryID(1, 0)
		_, err := w.log.Write(t.Context(), child.Stream(), write(entry.NewDraft(id, child.Agent, entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted, Result: "Done."})))
		must(t, err)
		if th := w.runs.Fresh(t.Context(), w.scope, w.get(child.ID)); th.Status != thread.Running {
			t.Errorf("as long as the runner may be heard, it becomes %s", th.Status)
		}
		w.silence(child.ID, time.Minute)
		if done, err := w.runs.Judge(t.Context(), w.scope, child.ID); err != nil || done.To != thread.Completed || w.get(child.ID).Status != thread.Running {
			t.Errorf("it would become %+v: %v", done, err)
		}
		// A read waits only briefly, so on a busy machine a later read may be the one that adopts the report.
		for deadline := time.Now().Add(patience); w.runs.Fresh(t.Context(), w.scope, w.get(child.ID)).Status != thread.Completed; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no read adopts it")
			}
		}
		all := w.ends(child.ID, 1, thread.Completed)
		if reports := of[entry.RunFinished](all); len(reports) != 1 || types(all) != "chat status_changed heartbeat run_finished status_changed" {
			t.Errorf("the log says\n%s", story(all))
		}
		told(t, w, child, "completed")
	})
}

func TestAServerThatStops(t *testing.T) {
	goOn := make(chan struct{})
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
		<-goOn
		r.completes("done", 0)
	})
	child := w.spawn("Work.")
	w.until(child.ID, func(e entry.Entry) bool { return e.Type == entry.Heartbeat{}.Type() })
	w.driver.stopServer()
	w.start()
	close(goOn)
	w.ends(child.ID, 1, thread.Completed)
	if n := w.driver.launched(); n != 1 {
		t.Errorf("%d runners were launched", n)
	}
	told(t, w, child, "completed")
}

// A server remembers nothing of runs that have ended, so that a long life costs no memory.
func TestEndedRunsAreForgotten(t *testing.T) {
	ended := make(chan struct{})
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
		must(t, r.w.runs.Sweep(r.ctx)) // it sees the run
		if r.w.runs.Remembered() == 0 {
			t.Error("a run that posts is not remembered")
		}
		r.completes("done", 0)
		close(ended)
	})
	child := w.spawn("Work.")
	w.ends(child.ID, 1, thread.Completed)
	<-ended
	must(t, w.runs.Sweep(t.Context()))
	if n := w.runs.Remembered(); n != 0 {
		t.Errorf("%d things are remembered", n)
	}
}

// If a runner does not end its agent at the time limit, the server ends the run.
func TestARunThatExceedsItsTime(t *testing.T) {
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
		<-r.asked
	})
	child := w.spawn("Work.")
	w.until(child.ID, func(e entry.Entry) bool { return e.Type == entry.Heartbeat{}.Type() })
	w.driver.stopServer()
	must(t, w.db.In(t.Context(), w.scope, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "update threads set run_started_at = now() - interval '25 hours' where id = $1", child.ID)
		return err
	}))
	w.start()
	all := w.ends(child.ID, 1, thread.Failed)
	if text := story(all); !strings.Contains(text, "run_minutes") {
		t.Errorf("the log says\n%s", text)
	}
	told(t, w, child, "failed")
}

// If a server stops while it installs an agent, the next one launches the run, once.
func TestAServerThatStopsWhileItInstallsAnAgent(t *testing.T) {
	w := setup(t, func(r *runner) { r.completes("done", 0) })
	w.driver.hold, w.driver.held = make(chan struct{}), make(chan struct{}, 1)
	child := w.spawn("Work.")
	<-w.driver.held
	must(t, w.runs.Sweep(t.Context())) // which looks for runs that are silent
	w.driver.stopServer()
	w.start()
	close(w.driver.hold)
	w.ends(child.ID, 1, thread.Completed)
	if n := w.driver.launched(); n != 1 {
		t.Errorf("%d runners were launched", n)
	}
	told(t, w, child, "completed")
}

// A server that stops between the claim of a run and its launch launches it, because the next server only follows it.
func TestAServerThatStopsWhileItLaunches(t *testing.T) {
	goOn := make(chan struct{})
	var first sync.Once
	w := setup(t, func(r *runner) {
		first.Do(func() { r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"}) }) // the second one meets a server that stops
		<-goOn
		r.completes("done", 0)
	})
	stops, launches := make(chan struct{}), make(chan struct{})
	w.driver.left = sync.OnceFunc(func() { close(stops) })
	followed := w.spawn("Work.")
	w.until(followed.ID, func(e entry.Entry) bool { return e.Type == entry.Heartbeat{}.Type() })
	w.driver.launching = sync.OnceFunc(func() {
		close(launches)
		<-stops
	})
	child := w.spawn("Work, too.")
	<-launches
	w.driver.stopServer()
	w.start()
	close(goOn)
	w.ends(followed.ID, 1, thread.Completed)
	w.ends(child.ID, 1, thread.Completed)
	if n := w.driver.launched(); n != 2 {
		t.Errorf("%d runners were launched", n)
	}
}

// A run goes on while the provider of its sandbox does not answer.
func TestARunWhoseProviderDoesNotAnswer(t *testing.T) {
	goOn := make(chan struct{})
	w := setup(t, func(r *runner) {
		<-goOn
		r.completes("done", 0)
	})
	w.driver.away.Store(2)
	child := w.spawn("Work.")
	for deadline := time.Now().Add(patience); w.driver.away.Load() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server does not follow the run")
		}
	}
	close(goOn)
	w.ends(child.ID, 1, thread.Completed)
	told(t, w, child, "completed")
}

func TestWhatCannotBeDelegated(t *testing.T) {
	w := setup(t, func(r *runner) { <-r.asked }, func(c *dispatch.Config) { c.Runs.Limits.Children = 2 })
	for what, c := range map[string]struct {
		task run.Task
		code fault.Code
	}{
		"nothing":                  {run.Task{Text: " \n"}, fault.Invalid},
		"a novel":                  {run.Task{Text: strings.Repeat("x", entry.MaxTask+1)}, fault.Exhausted},
		"invalid text":             {run.Task{Text: "\xff"}, fault.Invalid},
		"a task for nobody":        {run.Task{Text: "x", Agent: "@nobody"}, fault.NotFound},
		"a task for a chatter":     {run.Task{Text: "x", Agent: "@arbe"}, fault.Precondition},
		"a task for what is not":   {run.Task{Text: "x", Agent: "@claude"}, fault.Precondition},
		"a task from nowhere":      {run.Task{Text: "x", Parent: "nowhere"}, fault.NotFound},
		"a task in no sandbox":     {run.Task{Text: "x", Parent: w.home, Sandbox: "parent"}, fault.Precondition},
		"a task for a bad machine": {run.Task{Text: "x", Environment: "nothing"}, fault.NotFound},
	} {
		if _, err := w.runs.Spawn(t.Context(), w.scope, c.task); fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v", what, err)
		}
	}
	one, two := w.spawn("- one"), w.spawn("@two")
	if _, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: w.home, Text: "three"}); fault.CodeOf(err) != fault.Exhausted {
		t.Errorf("one too many: %v", err)
	}
	for _, th := range []thread.Thread{one, two} {
		_, err := w.runs.Cancel(t.Context(), w.scope, th.ID)
		must(t, err)
		w.ends(th.ID, 1, thread.Cancelled)
	}
}

// Tasks that a program delegates with a bot's key count towards the limit of the person's entry.
func TestABotsKeyDelegatesNoMoreThanTheBot(t *testing.T) {
	w := setup(t, func(r *runner) { <-r.asked }, func(c *dispatch.Config) { c.Bots.Roots.Threads = 2 })
	arbe, err := w.bots.GetByHandle(t.Context(), w.scope, "arbe")
	must(t, err)
	asBot := w.scope
	asBot.Agent = arbe.ID
	first, err := w.runs.Spawn(t.Context(), asBot, run.Task{Parent: w.home, Text: "one"})
	must(t, err)
	below, err := w.runs.Spawn(t.Context(), asBot, run.Task{Parent: first.ID, Text: "two"})
	must(t, err)
	if first.Root == "" || below.Root != first.Root {
		t.Errorf("the roots are %q and %q", first.Root, below.Root)
	}
	if _, err := w.runs.Spawn(t.Context(), asBot, run.Task{Parent: below.ID, Text: "three"}); fault.CodeOf(err) != fault.Exhausted {
		t.Errorf("one too many: %v", err)
	}
	person, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: w.home, Text: "of a person"})
	must(t, err)
	if person.Root != "" {
		t.Errorf("the root of a person's task is %q", person.Root)
	}
	for _, th := range []thread.Thread{first, below, person} {
		_, err := w.runs.Cancel(t.Context(), w.scope, th.ID)
		must(t, err)
	}
}

func TestADeletedThreadWhoseChildRuns(t *testing.T) {
	ended := make(chan struct{})
	begun := make(chan struct{})
	w := setup(t, func(r *runner) {
		defer close(ended)
		r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
		close(begun)
		<-r.asked
	})
	parent, err := w.threads.Create(t.Context(), w.scope, thread.Draft{Name: "above"})
	must(t, err)
	child, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: parent.ID, Text: "Work."})
	must(t, err)
	<-begun
	must(t, w.d.DeleteThread(t.Context(), w.scope, parent.ID))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("its runner goes on")
	}
	if _, err := w.threads.Get(t.Context(), w.scope, child.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the child is left: %v", err)
	}
}

// A task that names no environment gets that of the thread above.
func TestTheEnvironmentOfATask(t *testing.T) {
	w := setup(t, func(r *runner) { r.completes("done", 0) })
	env, err := w.boxes.CreateEnvironment(t.Context(), w.scope, "above", sandbox.Recipe{})
	must(t, err)
	other, err := w.boxes.CreateEnvironment(t.Context(), w.scope, "other", sandbox.Recipe{})
	must(t, err)
	parent, err := w.threads.Create(t.Context(), w.scope, thread.Draft{Name: "above", Environment: env.ID})
	must(t, err)
	for named, want := range map[string]string{"": env.ID, other.ID: other.ID} {
		child, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: parent.ID, Text: "Work.", Environment: named})
		must(t, err)
		if child.Environment != want {
			t.Errorf("named %q, the environment is %q, want %q", named, child.Environment, want)
		}
	}
}

func TestABotIsWokenOnce(t *testing.T) {
	both := make(chan struct{})
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
		<-both
		r.completes("done", 0)
	})
	arbe, err := w.bots.GetByHandle(t.Context(), w.scope, "arbe")
	must(t, err)
	asBot := w.scope
	asBot.Agent = arbe.ID
	var children []thread.Thread
	for _, text := range []string{"one", "two"} {
		th, err := w.runs.Spawn(t.Context(), asBot, run.Task{Parent: w.home, Text: text, Root: w.home + "/e1"})
		must(t, err)
		children = append(children, th)
	}
	close(both)
	for _, th := range children {
		w.ends(th.ID, 1, thread.Completed)
	}
	all := w.until(w.home, func(e entry.Entry) bool { return e.Type == entry.TurnStarted{}.Type() })
	woken := 0
	for _, told := range of[entry.ChildFinished](all) {
		if told.Wakes != "" {
			woken++
		}
	}
	if asked := of[entry.TurnStarted](all); woken != 1 || len(of[entry.ChildFinished](all)) != 2 || asked[0].AgentID != arbe.ID || asked[0].Reason != string(entry.ReasonChild) {
		t.Errorf("the parent says\n%s", story(all))
	}
}

// Anyone who may run commands in a thread can delegate a task to a coding agent.
func TestATaskIsDelegatedInAMessage(t *testing.T) {
	w := setup(t, func(r *runner) { r.completes("Done.", 1) })
	by := dispatch.Speaker{Scope: w.scope, MayRun: func(context.Context) error { return nil }}
	say := func(by dispatch.Speaker, id, text string) (entry.Entry, error) {
		return w.d.Say(t.Context(), by, w.home, dispatch.Message{ID: id, Text: text})
	}
	first, err := say(by, "the-task", "/delegate @codex fix the test\nnow")
	must(t, err)
	spawned, ok := entry.As[entry.AgentSpawn](first)
	if !ok || first.ID != "the-task" || first.Author != w.scope.Agent || spawned.Runtime != "codex" || spawned.Task != "fix the test\nnow" {
		t.Fatalf("it becomes %+v", first)
	}
	again, err := say(by, "the-task", "/delegate @codex fix the test\nnow")
	if err != nil || again.Seq != first.Seq {
		t.Errorf("a retry is entry %d: %v", again.Seq, err)
	}
	w.ends(spawned.ChildThreadID, 1, thread.Completed)
	if n := len(of[entry.AgentSpawn](w.entries(w.home))); n != 1 {
		t.Errorf("%d tasks were delegated", n)
	}

	for text, code := range map[string]fault.Code{
		"/delegate":              fault.Invalid,
		"/delegate @pi":          fault.Invalid,
		"/delegate @nobody work": fault.NotFound,
		"/delegate @arbe work":   fault.Precondition,
	} {
		if _, err := say(by, "", text); fault.CodeOf(err) != code {
			t.Errorf("%q: %v", text, err)
		}
	}
	chat, err := say(dispatch.Speaker{Scope: w.scope}, "", "/delegate fix it")
	if _, is := entry.As[entry.Chat](chat); err != nil || !is {
		t.Errorf("from somebody who may run nothing, it is %s: %v", chat.Type, err)
	}
	_, err = w.d.SayAll(t.Context(), by, w.home, write(entry.NewDraft("x", w.scope.Agent, entry.Chat{Text: "/delegate fix it"})), []bool{false})
	if fault.CodeOf(err) != fault.Invalid {
		t.Errorf("together with other entries: %v", err)
	}
}

// An agent asks its model through the gateway, or itself with the key that its environment binds.
func TestTheKeyOfAnEnvironment(t *testing.T) {
	got := make(chan runnerModel, 1)
	w := setup(t, func(r *runner) {
		got <- r.spec.Model
		r.must(entry.RunFinished{Epoch: 1, Outcome: entry.RunCompleted, Result: "done"})
	}, func(c *dispatch.Config) {
		c.Runs.Model = func(context.Context, db.Scope, bot.Bot, []string) (run.Model, error) {
			return run.Model{Provider: "anthropic", ID: "m", Dialect: "messages", Path: "/api/model/anthropic", KeyEnv: "ANTHROPIC_API_KEY", Root: "https://api.anthropic.com"}, nil
		}
	})
	_, _, err := w.secrets.Set(t.Context(), w.scope, "ANTHROPIC_API_KEY", []byte("sk-ant-of-the-environment"))
	must(t, err)
	env, err := w.boxes.CreateEnvironment(t.Context(), w.scope, "with a key", sandbox.Recipe{Secrets: []secret.Binding{{Name: "ANTHROPIC_API_KEY", Required: true}}})
	must(t, err)
	for environment, want := range map[string]runnerModel{
		"":     {BaseURL: "http://arbe.internal/api/model/anthropic"},
		env.ID: {BaseURL: "https://api.anthropic.com", KeyEnv: "ANTHROPIC_API_KEY"},
	} {
		child, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: w.home, Text: "Work.", Environment: environment})
		must(t, err)
		w.ends(child.ID, 1, thread.Completed)
		if m := <-got; m != want {
			t.Errorf("the agent is told %+v, want %+v", m, want)
		}
	}
}
