package run_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/thread"
)

// changesProgram is the program that uses changes in a sandbox.
const changesProgram = sandbox.Home + "/.arbe/arbe-runner"

const (
	somePatch = "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n"
	someBase  = "0123456789abcdef0123456789abcdef01234567"
)

// leaves plays a runner whose run leaves a patch.
func leaves(r *runner) {
	r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "saving"})
	box, err := r.w.boxes.Handle(r.ctx, r.w.scope, r.w.get(r.by.Thread).Sandbox)
	r.ok(err)
	r.ok(box.Upload(r.ctx, "/tree.patch", 0o600, strings.NewReader(somePatch)))
	r.must(entry.RunFinished{Epoch: r.spec.Epoch, Outcome: entry.RunCompleted, Result: "done", PatchPath: "/tree.patch", PatchFiles: 1, PatchBase: someBase})
}

// result waits for the end of a command.
func (w *world) result(used run.Used) entry.CommandResult {
	w.t.Helper()
	all := w.until(used.Thread, func(e entry.Entry) bool { return e.ID == entry.ResultID(used.Command.ID) })
	r, _ := entry.As[entry.CommandResult](all[len(all)-1])
	return r
}

func TestChangesAreAppliedToTheThreadAbove(t *testing.T) {
	var all *artifact.Artifacts
	w := setup(t, leaves, kept(1<<22, &all))
	hold, placed := make(chan struct{}), make(chan string, 10)
	w.driver.uses = func(ref string, c sandbox.Command) int {
		<-hold
		w.driver.mu.Lock()
		defer w.driver.mu.Unlock()
		placed <- c.Argv[1] + " " + c.Dir + " " + string(w.driver.files[ref+c.Argv[len(c.Argv)-1]+"/changes.patch"])
		return 1
	}
	another, err := w.bots.GetByHandle(t.Context(), w.scope, "arbe")
	must(t, err)
	child := w.spawn("Work.")
	report := of[entry.RunFinished](w.ends(child.ID, 1, thread.Completed))[0]

	var pressed [4]run.Used
	var both sync.WaitGroup
	for i := range pressed {
		both.Go(func() {
			scope := w.scope
			if i%2 == 1 {
				scope.Agent = another.ID
			}
			var err error
			if pressed[i], err = w.runs.Apply(t.Context(), scope, child.ID, 0); err != nil {
				t.Error(fault.From(err).Detail())
			}
		})
	}
	both.Wait()
	for _, p := range pressed {
		if p.Thread != w.home || p.Command.ID != pressed[0].Command.ID {
			t.Errorf("two who press at once get %+v and %+v", p, pressed[0])
		}
	}
	c, _ := entry.As[entry.Command](pressed[0].Command)
	if !slices.Equal(c.Argv[:2], []string{changesProgram, "apply"}) || c.Changes != report.PatchArtifactID || c.Directory != sandbox.Workspace {
		t.Errorf("the command is %+v", c)
	}
	close(hold)
	if r := w.result(pressed[0]); r.ExitCode != 1 || r.Error != "" {
		t.Errorf("it ends with %+v", r)
	}
	if got := <-placed; got != "apply "+sandbox.Workspace+" "+somePatch || len(placed) > 0 {
		t.Errorf("it finds %q, and ran %d times more", got, len(placed))
	}

	// After the command has ended, for example with a conflict that was then solved, it can run again.
	again, err := w.runs.Apply(t.Context(), w.scope, child.ID, 1)
	must(t, err)
	if again.Command.ID == pressed[0].Command.ID {
		t.Error("it is not tried again")
	}
	w.result(again)
	must(t, all.Delete(t.Context(), w.scope, report.PatchArtifactID))
	gone, err := w.runs.Apply(t.Context(), w.scope, child.ID, 1)
	must(t, err)
	if r := w.result(gone); r.ExitCode != -1 || !strings.Contains(r.Error, "the changes have been deleted") {
		t.Errorf("without the patch, it ends with %+v", r)
	}
}

// Whoever may write to a thread may choose the ids of what they say. They cannot pass it off as the command.
func TestOtherEntriesWithTheIDsOfCommandsThatUseChanges(t *testing.T) {
	var all *artifact.Artifacts
	w := setup(t, leaves, kept(1<<22, &all))
	child := w.spawn("Work.")
	patch := of[entry.RunFinished](w.ends(child.ID, 1, thread.Completed))[0].PatchArtifactID
	id := func(n int) string { return fmt.Sprintf("apply.%s.%d", patch, n) }
	chat := entry.NewDraft(id(1), w.scope.Agent, entry.Chat{Text: "mine"})
	_, err := w.d.Append(t.Context(), dispatch.Speaker{Scope: w.scope}, w.home, chat, true)
	must(t, err)
	_, err = w.d.Commands.Run(t.Context(), w.scope, w.home, id(2), entry.Command{Argv: []string{changesProgram, "apply"}})
	must(t, err)
	used, err := w.runs.Apply(t.Context(), w.scope, child.ID, 0)
	must(t, err)
	if c, ok := entry.As[entry.Command](used.Command); !ok || used.Command.ID != id(3) || c.Changes != patch {
		t.Fatalf("it is %+v", used)
	}
	if r := w.result(used); r.ExitCode != 0 || r.Error != "" {
		t.Errorf("it ends with %+v", r)
	}
}

func TestChangesThatCannotBeUsed(t *testing.T) {
	var all *artifact.Artifacts
	w := setup(t, func(r *runner) {
		if text := of[entry.Chat](r.w.entries(r.by.Thread))[0].Text; text == "Nothing." {
			r.must(entry.Heartbeat{Epoch: 1, Phase: "thinking"})
			r.completes("done", 0)
			return
		}
		leaves(r)
	}, kept(1<<22, &all))
	nothing := w.spawn("Nothing.")
	w.ends(nothing.ID, 1, thread.Completed)
	top, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Text: "Work."})
	must(t, err)
	w.ends(top.ID, 1, thread.Completed)
	apply := func(id string, epoch int64) error {
		_, err := w.runs.Apply(t.Context(), w.scope, id, epoch)
		return err
	}
	branch := func(id, name string) error {
		_, err := w.runs.Branch(t.Context(), w.scope, id, 0, name)
		return err
	}
	for what, c := range map[string]struct {
		err  error
		code fault.Code
		says string
	}{
		"of a run without any": {apply(nothing.ID, 1), fault.Precondition, "run 1 has left no changes"},
		"of another run":       {apply(top.ID, 2), fault.Precondition, "run 2 has left no changes"},
		"with no thread above": {apply(top.ID, 0), fault.Precondition, "no thread delegated this task"},
		"of nothing":           {apply("nowhere", 0), fault.NotFound, "no such thread"},
		"without a repository": {branch(top.ID, ""), fault.Precondition, "has no repository"},
	} {
		if fault.CodeOf(c.err) != c.code || !strings.Contains(fault.From(c.err).Message, c.says) {
			t.Errorf("%s: %v", what, c.err)
		}
	}
	for what, id := range map[string]string{"that left none": nothing.ID, "that never was": w.home} {
		if used, err := w.runs.Apply(t.Context(), w.scope, id, 0); err != nil || used.Thread != "" || used.Command.ID != "" {
			t.Errorf("of a run %s: %+v, %v", what, used, err)
		}
	}
	for _, name := range []string{"-f", "--force", "a..b", "a b", "/a", "a/", "a//b", ".a", "a/.b", "a.lock", "HEAD", "refs/heads/main", "a~1", "a:b", "+a", "ä", strings.Repeat("a", 151), "a\nb", "a/-b", "a.", "@{-1}"} {
		if err := branch(top.ID, name); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}

// repository returns the repository to which the changes of a thread's last run can be pushed.
func (w *world) repository(threadID string) string {
	w.t.Helper()
	list, _, err := w.runs.List(w.t.Context(), w.scope, threadID, 0, 1)
	must(w.t, err)
	if len(list) != 1 || list[0].Patch == "" {
		w.t.Fatalf("the runs are %+v", list)
	}
	return list[0].Repository
}

func TestChangesBecomeABranch(t *testing.T) {
	var all *artifact.Artifacts
	w := setup(t, leaves, kept(1<<22, &all))
	var door bytes.Buffer
	w.driver.uses = func(ref string, c sandbox.Command) int {
		w.driver.mu.Lock()
		defer w.driver.mu.Unlock()
		door.Write(w.driver.files[ref+c.Argv[len(c.Argv)-1]+"/door"])
		return 0
	}
	_, _, err := w.secrets.Set(t.Context(), w.scope, "TOKEN", []byte("a-token-of-a-host"))
	must(t, err)
	recipe := sandbox.Recipe{Repo: "https://github.com/octocat/hello.git", Git: []sandbox.GitCredential{{Host: "github.com", Secret: "TOKEN"}}, Secrets: []secret.Binding{}}
	env, err := w.boxes.CreateEnvironment(t.Context(), w.scope, "hello", recipe)
	must(t, err)
	child, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: w.home, Text: "Fix --the “test”, now", Environment: env.ID})
	must(t, err)
	w.ends(child.ID, 1, thread.Completed)
	used, err := w.runs.Branch(t.Context(), w.scope, child.ID, 0, "")
	must(t, err)
	c, _ := entry.As[entry.Command](used.Command)
	if name := "arbe/fix-the-test-now-" + child.ID[:6]; used.Thread != child.ID || used.Branch != name || used.URL != "https://github.com/octocat/hello/tree/"+name {
		t.Errorf("it is %+v", used)
	}
	want := []string{changesProgram, "branch", "-name=" + used.Branch, "-to=https://github.com/octocat/hello.git", "-base=" + someBase, "-title=Fix --the “test”, now", "-author=pi"}
	if !slices.Equal(c.Argv[:len(want)], want) {
		t.Errorf("the command is %q", c.Argv)
	}
	if r := w.result(used); r.ExitCode != 0 {
		t.Errorf("it ends with %+v", r)
	}
	if got := w.repository(child.ID); got != "https://github.com/octocat/hello.git" {
		t.Errorf("a branch can be pushed to %q", got)
	}
	other, err := w.runs.Branch(t.Context(), w.scope, child.ID, 0, "fix/it")
	must(t, err)
	w.result(other)

	for what, url := range map[string]string{"another host": "https://example.com/a/b.git", "no host": "git://github.com/octocat/hello.git"} {
		recipe.Repo = url
		env, err := w.boxes.CreateEnvironment(t.Context(), w.scope, what, recipe)
		must(t, err)
		child, err := w.runs.Spawn(t.Context(), w.scope, run.Task{Parent: w.home, Text: "Fix it", Environment: env.ID})
		must(t, err)
		w.ends(child.ID, 1, thread.Completed)
		if _, err := w.runs.Branch(t.Context(), w.scope, child.ID, 0, ""); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("%s: %v", what, err)
		}
		if got := w.repository(child.ID); got != "" {
			t.Errorf("%s: a branch can be pushed to %q", what, got)
		}
	}
}
