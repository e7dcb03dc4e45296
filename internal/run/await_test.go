package run_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/thread"
)

// waiting is a world in which @arbe delegates. Its runners work until the test ends their tasks.
type waiting struct {
	*world
	arbe db.Scope
	// done ends the runs, by thread.
	mu   sync.Mutex
	done map[string]chan struct{}
}

func awaiting(t *testing.T) *waiting {
	t.Helper()
	w := &waiting{done: map[string]chan struct{}{}}
	w.world = setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "tool", LastTool: "bash"})
		select {
		case <-w.end(r.by.Thread):
		case <-r.ctx.Done():
			return
		}
		r.completes("done", 0)
	})
	arbe, err := w.bots.GetByHandle(t.Context(), w.scope, "arbe")
	must(t, err)
	w.arbe = db.Scope{House: w.scope.House, Agent: arbe.ID}
	return w
}

func (w *waiting) end(threadID string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done[threadID] == nil {
		w.done[threadID] = make(chan struct{})
	}
	return w.done[threadID]
}

// ask delegates a task, and returns its thread once the agent works.
func (w *waiting) ask(by db.Scope) thread.Thread {
	w.t.Helper()
	th, err := w.runs.Spawn(w.t.Context(), by, run.Task{Parent: w.home, Text: "Work.", Root: w.home + "/e1"})
	must(w.t, err)
	for deadline := time.Now().Add(patience); w.get(th.ID).Run.Doing == ""; time.Sleep(10 * time.Millisecond) { // the row follows its heartbeat
		if time.Now().After(deadline) {
			w.t.Fatal("its runner is not heard")
		}
	}
	return th
}

// complete lets an agent end its work.
func (w *waiting) complete(th thread.Thread) {
	w.t.Helper()
	close(w.end(th.ID))
	w.ends(th.ID, 1, thread.Completed)
}

// expire lets the time of a wait pass.
func (w *waiting) expire(th thread.Thread) {
	w.t.Helper()
	must(w.t, w.db.In(w.t.Context(), w.scope, func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), "update threads set awaited_until = now() - interval '1 second' where id = $1 and awaited_until is not null", th.ID)
		return err
	}))
}

// woken waits until @arbe was called n times in the parent thread, and returns that thread's log. Further calls would
// show in the entries that wake it.
func (w *waiting) woken(n int) []entry.Entry {
	w.t.Helper()
	var asked int
	w.until(w.home, func(e entry.Entry) bool {
		if e.Type == (entry.TurnStarted{}).Type() || e.Type == (entry.TurnSteered{}).Type() {
			asked++
		}
		return asked == n
	})
	all := w.entries(w.home)
	wakes := 0
	for _, e := range all {
		f, _ := entry.As[entry.ChildFinished](e)
		o, _ := entry.As[entry.ChildOverdue](e)
		if f.Wakes != "" || o.Wakes != "" {
			wakes++
		}
	}
	if wakes != n {
		w.t.Errorf("it is woken %d times, want %d:\n%s", wakes, n, story(all))
	}
	return all
}

func TestABotIsAskedAgainWhenWhatItDelegatedTakesTooLong(t *testing.T) {
	w := awaiting(t)
	th := w.ask(w.arbe)
	must(t, w.runs.Sweep(t.Context()))
	if told := of[entry.ChildOverdue](w.entries(w.home)); len(told) != 0 {
		t.Fatalf("before its time, it is told %+v", told)
	}
	w.expire(th)
	var sweeps sync.WaitGroup
	for range 4 { // as several servers do
		sweeps.Go(func() {
			if err := w.runs.Sweep(t.Context()); err != nil {
				t.Error(fault.From(err).Detail())
			}
		})
	}
	sweeps.Wait()
	all := w.woken(1)
	told := of[entry.ChildOverdue](all)
	if len(told) != 1 || told[0].ChildThreadID != th.ID || told[0].Epoch != 1 || told[0].Runtime != "pi" || told[0].Doing != "running bash" || told[0].AgentID != w.arbe.Agent {
		t.Fatalf("it is told %+v", told)
	}
	for _, e := range all {
		if began, ok := entry.As[entry.TurnStarted](e); ok && (began.AgentID != w.arbe.Agent || began.Reason != string(entry.ReasonChild)) {
			t.Errorf("it begins %+v", began)
		}
	}
	if got := w.get(th.ID); got.Status != thread.Running {
		t.Errorf("the run is %s", got.Status)
	}

	w.complete(th)
	w.until(w.home, func(e entry.Entry) bool { c, ok := entry.As[entry.Chat](e); return ok && c.Text == "done" })
	w.woken(1)

	// Continuing it makes the bot wait again.
	w.mu.Lock()
	delete(w.done, th.ID)
	w.mu.Unlock()
	_, err := w.runs.Continue(t.Context(), w.scope, th.ID, run.Resume{})
	must(t, err)
	close(w.end(th.ID))
	w.woken(2)
}

func TestABotThatWaitsForSeveralIsAskedOnce(t *testing.T) {
	for name, late := range map[string]bool{"if the last one ends": false, "if the last one takes too long": true} {
		t.Run(name, func(t *testing.T) {
			w := awaiting(t)
			slow, other := w.ask(w.arbe), w.ask(w.arbe)
			w.expire(slow)
			must(t, w.runs.Sweep(t.Context()))
			w.until(w.home, func(e entry.Entry) bool { return e.Type == entry.ChildOverdue{}.Type() })
			if told := of[entry.ChildOverdue](w.entries(w.home)); len(told) != 1 || told[0].ChildThreadID != slow.ID || told[0].Wakes != "" {
				t.Fatalf("while it waits for another, it is told %+v", told)
			}
			if late {
				w.expire(other)
				must(t, w.runs.Sweep(t.Context()))
			} else {
				w.complete(other)
			}
			w.woken(1)
			w.complete(slow)
			if late {
				w.complete(other)
			}
			must(t, w.runs.Sweep(t.Context()))
			w.woken(1)
		})
	}
}

// A wait is in the row, so it outlives its server.
func TestAWaitOutlivesItsServer(t *testing.T) {
	w := awaiting(t)
	th := w.ask(w.arbe)
	w.driver.stopServer()
	w.expire(th)
	w.start()
	w.woken(1)
}

func TestNobodyWaitsForAPersonsTask(t *testing.T) {
	w := awaiting(t)
	th := w.ask(w.scope)
	w.expire(th)
	must(t, w.runs.Sweep(t.Context()))
	if told := of[entry.ChildOverdue](w.entries(w.home)); len(told) != 0 {
		t.Errorf("a person is told %+v", told)
	}
	w.complete(th)
	w.woken(0)
}

// The result of a task is not a person's message: it asks nobody, whomever it names. What a person says afterwards asks as ever.
func TestAResultThatNamesABotAsksNobody(t *testing.T) {
	w := setup(t, func(r *runner) { r.completes("@arbe do it", 0) })
	th, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: w.home, Text: "Work.", Root: w.home + "/e1"})
	must(t, err)
	w.ends(th.ID, 1, thread.Completed)
	w.until(w.home, func(e entry.Entry) bool {
		c, ok := entry.As[entry.Chat](e)
		return ok && strings.Contains(c.Text, "do it")
	})
	w.say(w.home, "@arbe now")
	w.until(w.home, func(e entry.Entry) bool { return e.Type == entry.TurnStarted{}.Type() })
	asked := ""
	for _, e := range w.entries(w.home) {
		if c, ok := entry.As[entry.Chat](e); ok && c.Text == "@arbe now" {
			asked = e.ID
		}
		if began, ok := entry.As[entry.TurnStarted](e); ok && began.EntryID != asked {
			t.Errorf("it begins %+v", began)
		}
	}
}

func TestAWaitHasALimit(t *testing.T) {
	w := awaiting(t)
	for wait, code := range map[time.Duration]fault.Code{25 * time.Hour: fault.Invalid, -time.Second: fault.Invalid} {
		if _, err := w.runs.Spawn(t.Context(), w.arbe, run.Task{Parent: w.home, Text: "Work.", Wait: wait}); fault.CodeOf(err) != code {
			t.Errorf("%s: %v", wait, err)
		}
	}
	th, err := w.runs.Spawn(t.Context(), w.arbe, run.Task{Parent: w.home, Text: "Work.", Root: w.home + "/e1", Wait: time.Millisecond})
	must(t, err)
	w.until(th.ID, func(e entry.Entry) bool { return e.Type == entry.Heartbeat{}.Type() })
	must(t, w.runs.Sweep(t.Context()))
	w.woken(1)
}
