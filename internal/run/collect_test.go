package run_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/thread"
)

// If a runner dies while it saves the changes, its agent has already ended. Only the report could not be collected.
func TestARunnerThatDiesWithItsReport(t *testing.T) {
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "thinking"})
		r.must(r.says("Done."))
		r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "saving"})
		r.exit = 137
	})
	child := w.spawn("Work.")
	if lost := of[entry.SessionOrphaned](w.ends(child.ID, 1, thread.Failed)); len(lost) != 1 || lost[0].Phase != entry.PhaseResult {
		t.Errorf("the log says %+v", lost)
	}
	if runs, _, err := w.runs.List(t.Context(), w.scope, child.ID, 0, 1); err != nil || len(runs) != 1 || runs[0].Phase != entry.PhaseResult {
		t.Errorf("its runs are %+v: %v", runs, err)
	}
}

// A run whose changes cannot be kept is completed, because its work is done. It says that they were not collected.
func TestAPatchThatCannotBeKept(t *testing.T) {
	var all *artifact.Artifacts
	w := setup(t, leaves, kept(1, &all))
	child := w.spawn("Work.")
	report := of[entry.RunFinished](w.ends(child.ID, 1, thread.Completed))[0]
	if report.PatchArtifactID != "" || report.Phase != entry.PhaseResult || !strings.Contains(report.PatchError, "stay in the sandbox") {
		t.Errorf("the report is %+v", report)
	}
	runs, _, err := w.runs.List(t.Context(), w.scope, child.ID, 0, 1)
	if err != nil || len(runs) != 1 || runs[0].Phase != entry.PhaseResult || runs[0].Error != report.PatchError || runs[0].Next == "" {
		t.Errorf("its runs are %+v: %v", runs, err)
	}
}

// A run whose runner could not save its changes is completed for everybody, and its entry says what was not collected.
func TestATreeThatWasNotSaved(t *testing.T) {
	const why = "the changes stay in the sandbox, because they could not be saved: no space left on device"
	w := setup(t, func(r *runner) {
		r.must(r.says("Done."))
		r.must(entry.RunFinished{Epoch: r.spec.Epoch, Outcome: entry.RunCompleted, Phase: entry.PhaseResult, Result: "Done.", PatchError: why})
	})
	child := w.spawn("Work.")
	w.ends(child.ID, 1, thread.Completed)
	runs, _, err := w.runs.List(t.Context(), w.scope, child.ID, 0, 1)
	if err != nil || len(runs) != 1 || runs[0].Status != thread.Completed || runs[0].Phase != entry.PhaseResult || runs[0].Error != why || runs[0].Next == "" {
		t.Errorf("its runs are %+v: %v", runs, err)
	}
	if told := of[entry.ChildFinished](w.entries(w.home)); len(told) != 1 || told[0].Outcome != entry.RunCompleted || told[0].Error != "" {
		t.Errorf("the parent is told %+v", told)
	}
}

// A second runner of a killed one's run posts what is left, with the changes. The run ends with its report.
func TestARunnerThatDiesIsCollected(t *testing.T) {
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "thinking"})
		r.must(r.says("I begin."))
		r.exit = 137
	})
	w.driver.collects = func(r *runner) {
		r.next = 1
		r.must(r.says("It was not posted."))
		r.must(entry.RunFinished{Epoch: r.spec.Epoch, Outcome: entry.RunFailed, Phase: entry.PhaseObservation, Error: "the runner was killed"})
	}
	child := w.spawn("Work.")
	all := w.ends(child.ID, 1, thread.Failed)
	if text := story(all); !strings.Contains(text, "It was not posted.") || !strings.Contains(text, "the runner was killed") || len(of[entry.SessionOrphaned](all)) != 0 {
		t.Errorf("the log says\n%s", text)
	}
	told(t, w, child, "failed")
}

// A server that stops while it collects leaves that to the next one, which starts nothing twice.
func TestAServerThatStopsWhileItCollects(t *testing.T) {
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "thinking"})
		r.exit = 137
	})
	collects, goOn := make(chan struct{}, 2), make(chan struct{})
	w.driver.collects = func(r *runner) {
		collects <- struct{}{}
		<-goOn
		r.must(entry.RunFinished{Epoch: r.spec.Epoch, Outcome: entry.RunFailed, Phase: entry.PhaseObservation, Error: "the runner was killed"})
	}
	child := w.spawn("Work.")
	<-collects
	w.driver.stopServer()
	w.start()
	close(goOn)
	if lost := of[entry.SessionOrphaned](w.ends(child.ID, 1, thread.Failed)); len(lost) != 0 || len(collects) != 0 {
		t.Errorf("it is collected %d times more, and lost: %v", len(collects), lost)
	}
	told(t, w, child, "failed")
}
