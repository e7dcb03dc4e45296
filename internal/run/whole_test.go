package run_test

import (
	"io"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/thread"
)

// kept adds a store of artifacts with a quota in bytes, and sets where to it.
func kept(quota int64, where **artifact.Artifacts) func(*dispatch.Config) {
	return func(c *dispatch.Config) {
		*where = artifact.New(artifact.Config{DB: c.DB, Blobs: blob.InPostgres(c.DB), Quota: quota, Logger: c.Logger})
		c.Artifacts = *where
	}
}

// ok reports an error of the runner.
func (r *runner) ok(err error) {
	if err != nil && r.ctx.Err() == nil {
		r.w.t.Error(fault.From(err).Detail())
	}
}

// text reads an artifact.
func (w *world) text(all *artifact.Artifacts, id string) string {
	w.t.Helper()
	got, err := all.Get(w.t.Context(), w.scope, id)
	must(w.t, err)
	content, err := all.Open(w.t.Context(), got)
	must(w.t, err)
	defer content.Close()
	text, err := io.ReadAll(content)
	must(w.t, err)
	return string(text)
}

// cut returns a result whose entry has only the beginning.
func cut(whole string) entry.PiToolResult {
	return entry.PiToolResult{Harness: "pi", ToolCallID: "1", ToolName: "bash", Content: []entry.PiBlock{entry.PiText(whole[:10])}, Details: &entry.PiDetails{WholeBytes: int64(len(whole))}}
}

func TestALongResultIsKeptWhole(t *testing.T) {
	const canary = "canary-5up3r-s3cr3t"
	whole := strings.Repeat("a line of output\n", 5000) + canary + "\n"
	var all *artifact.Artifacts
	tried := make(chan struct{}) // closed when the runner has tried everything
	w := setup(t, func(r *runner) {
		defer close(tried)
		r.must(entry.Heartbeat{Epoch: 1, Phase: "tool"})
		id := entry.RunEntryID(1, r.next)
		r.ok(r.w.runs.KeepWhole(r.ctx, r.by, id, []byte(whole)))
		r.ok(r.w.runs.KeepWhole(r.ctx, r.by, id, []byte(whole)))            // as if an answer was lost
		r.ok(r.w.runs.KeepWhole(r.ctx, r.by, id, []byte("something else"))) // the first one counts
		r.must(cut(whole), cut(whole))                                      // nothing was kept of the second one

		for what, refused := range map[string]struct {
			by run.Poster
			id string
		}{
			"of another run":   {r.by, entry.RunEntryID(2, 0)},
			"by a stale one":   {run.Poster{House: r.by.House, Thread: r.by.Thread, Agent: r.by.Agent, Epoch: 2}, entry.RunEntryID(2, 0)},
			"without an id":    {r.by, ""},
			"in a thread's id": {r.by, "../" + entry.RunEntryID(1, 1)},
			"elsewhere":        {run.Poster{House: r.by.House, Thread: r.w.home, Agent: r.by.Agent, Epoch: 1}, entry.RunEntryID(1, 0)},
		} {
			if err := r.w.runs.KeepWhole(r.ctx, refused.by, refused.id, []byte("x")); fault.CodeOf(err) != fault.Forbidden && fault.CodeOf(err) != fault.Invalid {
				t.Errorf("%s: %v", what, err)
			}
		}
		named := cut(whole)
		named.Details.ArtifactID = "another"
		if err := r.post(named); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("a runner names an artifact: %v", err)
		}
		r.next--
		r.completes("done", 0)
		if err := r.w.runs.KeepWhole(r.ctx, r.by, entry.RunEntryID(1, 9), []byte("late")); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("after its end: %v", err)
		}
	}, kept(1<<22, &all))
	_, _, err := w.secrets.Set(t.Context(), w.scope, "CANARY", []byte(canary))
	must(t, err)
	env, err := w.boxes.CreateEnvironment(t.Context(), w.scope, "secret", sandbox.Recipe{Secrets: []secret.Binding{{Name: "CANARY", Required: true}}})
	must(t, err)
	child, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: w.home, Text: "Work.", Environment: env.ID})
	must(t, err)
	results := of[entry.PiToolResult](w.ends(child.ID, 1, thread.Completed))
	<-tried
	if len(results) != 2 || results[0].Details.WholeBytes != int64(len(whole)) || results[1].Details.ArtifactID != "" {
		t.Fatalf("the log has %+v", results)
	}
	if got := w.text(all, results[0].Details.ArtifactID); got != strings.Replace(whole, canary, strings.Repeat("x", len(canary)), 1) {
		t.Errorf("%d bytes are kept, which end in %q", len(got), got[max(0, len(got)-40):])
	}
	got, err := all.Get(t.Context(), w.scope, results[0].Details.ArtifactID)
	if err != nil || got.Thread != child.ID || got.Kind != "result" || got.Run != "1" || got.Author != child.Agent {
		t.Errorf("the artifact is %+v: %v", got, err)
	}
}

// The arguments of a call that are too long for the log are kept whole, and the call names them. Other calls, and what else
// the answer has, stay as they are.
func TestLongArgumentsAreKeptWhole(t *testing.T) {
	whole := `{"content":"` + strings.Repeat("a line of a file\n", 20_000) + `"}`
	part := entry.PiBlock{Type: entry.PiCallBlock, ID: "1", Name: "write", Arguments: []byte(`{"content":"a line"}`), WholeBytes: 7}
	other := part
	other.ID = "2" // nothing is kept of it
	answer := entry.PiAssistant{Harness: "pi", StopReason: entry.PiToolUse, Content: []entry.PiBlock{entry.PiText("I write it."), {Type: entry.PiCallBlock, ID: "0", Name: "ls"}, part, other}}
	var all *artifact.Artifacts
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "tool"})
		r.ok(r.w.runs.KeepWhole(r.ctx, r.by, entry.CallArgumentsID(entry.RunEntryID(1, r.next), 1), []byte(whole)))
		r.must(answer)
		named := answer
		named.Content = []entry.PiBlock{{Type: entry.PiCallBlock, ID: "3", Name: "write", WholeBytes: 7, ArtifactID: "another"}}
		if err := r.post(named); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("a runner names an artifact: %v", err)
		}
		r.next--
		r.completes("done", 0)
	}, kept(1<<22, &all))
	child := w.spawn("Work.")
	answers := of[entry.PiAssistant](w.ends(child.ID, 1, thread.Completed))
	if len(answers) != 1 || len(answers[0].Content) != 4 {
		t.Fatalf("the log has %+v", answers)
	}
	got := answers[0].Content[2]
	if got.WholeBytes != int64(len(whole)) || w.text(all, got.ArtifactID) != whole {
		t.Errorf("the call is %+v", got)
	}
	if a, err := all.Get(t.Context(), w.scope, got.ArtifactID); err != nil || a.Kind != "arguments" || a.Label != "arguments of run 1.txt" {
		t.Errorf("the artifact is %+v: %v", a, err)
	}
	answers[0].Content[2] = part
	if a, b := entry.NewDraft("", "", answers[0]), entry.NewDraft("", "", answer); string(a.Payload) != string(b.Payload) {
		t.Errorf("the rest is\n%s, want\n%s", a.Payload, b.Payload)
	}
}

// A full store costs a run only its long results.
func TestAFullStoreHoldsUpNoRun(t *testing.T) {
	whole := strings.Repeat("x", 2000)
	var all *artifact.Artifacts
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: 1, Phase: "tool"})
		if err := r.w.runs.KeepWhole(r.ctx, r.by, entry.RunEntryID(1, r.next), []byte(whole)); fault.CodeOf(err) != fault.Exhausted {
			t.Errorf("it says %v", err)
		}
		r.must(cut(whole))
		r.completes("done", 0)
	}, kept(1000, &all))
	child := w.spawn("Work.")
	if results := of[entry.PiToolResult](w.ends(child.ID, 1, thread.Completed)); len(results) != 1 || *results[0].Details != (entry.PiDetails{WholeBytes: 2000}) {
		t.Errorf("the log has %+v", results)
	}
}

func TestARunKeepsNoMoreThanItMayWrite(t *testing.T) {
	for name, c := range map[string]struct {
		size, kept int // how many texts of a size are kept
		limits     run.Limits
	}{
		"bytes":             {6000, 1, run.Limits{Bytes: 10_000}},
		"bytes of a record": {1, 2, run.Limits{Bytes: 10_000}},
		"entries":           {1, 4, run.Limits{Entries: 5}}, // the first heartbeat is one, too
	} {
		t.Run(name, func(t *testing.T) {
			var all *artifact.Artifacts
			w := setup(t, func(r *runner) {
				r.must(entry.Heartbeat{Epoch: 1, Phase: "tool"})
				for n := range c.kept {
					if err := r.w.runs.KeepWhole(r.ctx, r.by, entry.RunEntryID(1, n), nil); fault.CodeOf(err) != fault.Invalid {
						t.Errorf("an empty text: %v", err)
					}
					r.ok(r.w.runs.KeepWhole(r.ctx, r.by, entry.RunEntryID(1, n), make([]byte, c.size)))
				}
				if err := r.w.runs.KeepWhole(r.ctx, r.by, entry.RunEntryID(1, 99), make([]byte, c.size)); fault.CodeOf(err) != fault.Exhausted {
					t.Errorf("one more: %v", err)
				}
				r.completes("done", 0)
			}, kept(1<<22, &all), func(d *dispatch.Config) { d.Runs.Limits = c.limits })
			child := w.spawn("Work.")
			w.ends(child.ID, 1, thread.Completed)
			list, err := all.List(t.Context(), w.scope, child.ID, "", db.Newest, 100)
			if err != nil || len(list) != c.kept {
				t.Errorf("%d are kept, want %d (%v)", len(list), c.kept, err)
			}
		})
	}
}

// The changes of a run are an artifact that its report names.
func TestThePatchOfARunIsKept(t *testing.T) {
	var all *artifact.Artifacts
	w := setup(t, leaves, kept(1<<22, &all))
	child := w.spawn("Work.")
	report := of[entry.RunFinished](w.ends(child.ID, 1, thread.Completed))[0]
	if report.PatchError != "" || report.PatchArtifactID == "" || w.text(all, report.PatchArtifactID) != somePatch {
		t.Errorf("the report is %+v", report)
	}
	if told := of[entry.ChildFinished](w.entries(w.home)); len(told) != 1 || told[0].PatchArtifactID != report.PatchArtifactID {
		t.Errorf("the thread above is told %+v", told)
	}
}
