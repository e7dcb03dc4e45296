package run_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestTasksAreDelegatedOnlySoDeep(t *testing.T) {
	w := setup(t, func(r *runner) { <-r.ctx.Done() }, func(c *dispatch.Config) { c.Runs.Limits.Depth = 2 })
	parent := w.home
	for range 2 {
		child, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: parent, Text: "Work."})
		must(t, err)
		parent = child.ID
	}
	_, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: parent, Text: "Work."})
	if f := fault.From(err); f.Code != fault.Exhausted || f.Reason() != fault.LimitReached || !strings.Contains(f.Message, "any deeper") {
		t.Errorf("it says %v", err)
	}
}

// A repeated call returns the task that it began, even if that is the last one that the limit allows.
func TestARepeatedTaskMeetsNoLimit(t *testing.T) {
	w := setup(t, func(r *runner) { <-r.ctx.Done() }, func(c *dispatch.Config) { c.Runs.Limits.Children = 1 })
	task := run.Task{ID: "once", Parent: w.home, Text: "Work."}
	first, err := w.runs.Spawn(t.Context(), w.scope, task)
	must(t, err)
	again, err := w.runs.Spawn(t.Context(), w.scope, task)
	if err != nil || again.ID != first.ID {
		t.Errorf("it is in thread %q, and then in %q: %v", first.ID, again.ID, err)
	}
	task.ID = "twice"
	if _, err := w.runs.Spawn(t.Context(), w.scope, task); fault.CodeOf(err) != fault.Exhausted {
		t.Errorf("one too many: %v", err)
	}
}

// A runner that is never heard is given longer than one that falls silent, because its agent may take long to start.
func TestARunnerThatIsNeverHeard(t *testing.T) {
	begun := make(chan struct{})
	w := setup(t, func(r *runner) {
		close(begun)
		<-r.ctx.Done()
	}, func(c *dispatch.Config) {
		c.Runs.Limits.Silence, c.Runs.Limits.Start = time.Nanosecond, 50*time.Millisecond
	})
	child := w.spawn("Work.")
	<-begun
	must(t, w.db.In(t.Context(), w.scope, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "update threads set run_started_at = now() - interval '1 min' where id = $1", child.ID)
		return err
	}))
	for w.get(child.ID).Status == thread.Running {
		must(t, w.runs.Sweep(t.Context()))
	}
	lost := of[entry.SessionOrphaned](w.ends(child.ID, 1, thread.Failed))
	if len(lost) != 1 || lost[0].Reason != "its runner did not report within 50ms" || lost[0].Phase != "" {
		t.Errorf("the log says %+v", lost)
	}
	told(t, w, child, "failed")
}

func TestAHouseRunsOnlySoManyAtOnce(t *testing.T) {
	var running, most atomic.Int64
	w := setup(t, func(r *runner) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		for range 20 { // long enough for others to begin
			r.must(r.says("I work."))
		}
		running.Add(-1)
		r.completes("done", 0)
	}, func(c *dispatch.Config) { c.Limits.Runs = jobs.Limits{HouseRunning: 1} })
	one, two := w.spawn("One."), w.spawn("Two.")
	w.ends(one.ID, 1, thread.Completed)
	w.ends(two.ID, 1, thread.Completed)
	if most.Load() != 1 {
		t.Errorf("%d runs were in progress at once", most.Load())
	}
}
