package run_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/thread"
)

// A runner that dies while it saves the changes had an agent that ended. Only its report could not be collected.
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
	if runs, _, err := w.runs.List(t.Context(), w.scope, child.ID, 1); err != nil || len(runs) != 1 || runs[0].Phase != entry.PhaseResult {
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
	runs, _, err := w.runs.List(t.Context(), w.scope, child.ID, 1)
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
	runs, _, err := w.runs.List(t.Context(), w.scope, child.ID, 1)
	if err != nil || len(runs) != 1 || runs[0].Status != thread.Completed || runs[0].Phase != entry.PhaseResult || runs[0].Error != why || runs[0].Next == "" {
		t.Errorf("its runs are %+v: %v", runs, err)
	}
	if told := of[entry.ChildFinished](w.entries(w.home)); len(told) != 1 || told[0].Outcome != entry.RunCompleted || told[0].Error != "" {
		t.Errorf("the parent is told %+v", told)
	}
}
