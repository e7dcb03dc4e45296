//go:build linux

package sandbox_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// grown returns a bench with real boxes, and a thread whose environment clones a repository.
func grown(t *testing.T, recipe sandbox.Recipe) (b *bench, th, repo string) {
	t.Helper()
	root := t.TempDir()
	repo = filepath.Join(root, "repo")
	repository(t, repo)
	b = setupWith(t, nil, map[string]sandbox.Driver{"local": newLocal(t)}, root)
	recipe.Driver, recipe.Repo = "local", repo
	return b, b.thread(b.environment(recipe)), repo
}

// resumed returns the log entry about the only replacement of a thread's sandbox.
func resumed(t *testing.T, b *bench, th string) entry.SandboxResumed {
	t.Helper()
	entries := logged[entry.SandboxResumed](b, th)
	if len(entries) != 1 {
		t.Fatalf("the log has %+v", entries)
	}
	return entries[0]
}

func (b *bench) destroy(id string) {
	b.t.Helper()
	if _, err := b.boxes.Destroy(b.t.Context(), b.scope, id); err != nil {
		b.t.Fatal(detail(err))
	}
}

func TestTheTreeOfARepositoryComesBack(t *testing.T) {
	t.Parallel()
	b, th, repo := grown(t, sandbox.Recipe{Setup: "test ! -e new || touch .git/setup-saw-it"})
	other := b.thread("")
	old, base := b.sh(th, "git rev-parse HEAD")
	b.share(other, th)
	b.sh(th, `
		git config user.name Ada; git config user.email ada@example.com
		echo committed >> file; git commit --quiet -am 'a commit of its own'
		echo changed >> file; echo new > new; printf '\000\377' > 'odd [*] name'; ln -s file link
		printf '#!/bin/sh\n' > run; chmod +x run; mkdir -p deep/er; echo x > deep/er/x
		git config core.fsmonitor 'touch /tmp/ran; false'; git config diff.external 'touch /tmp/ran; false'
		echo ignored > .gitignore; echo secret > ignored; git init --quiet nested; head -c 20000000 /dev/zero > large`)
	run(t, repo, "git", "-c", "user.name=Ada", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "upstream moves on")
	if _, err := b.boxes.Destroy(t.Context(), b.scope, old.ID); err != nil {
		t.Fatal(detail(err))
	}

	box, got := b.sh(other, `git rev-parse HEAD; cat file new deep/er/x; od -An -tx1 'odd [*] name'; readlink link; test -x run && echo runs; ls -d ignored nested large .git/setup-saw-it 2>/dev/null; true`)
	want := base + "latest\ncommitted\nchanged\nnew\nx\n 00 ff\nfile\nruns\n.git/setup-saw-it\n"
	if box.ID == old.ID || got != want {
		t.Errorf("the new sandbox has\n%s\nwant\n%s", got, want)
	}
	for _, thread := range []string{th, other} {
		said := resumed(t, b, thread)
		for _, words := range []string{"sandbox " + old.ID + " was gone", "commit " + base[:7] + " with 7 changed files (1 commit of the old sandbox came back as changes)", "Not restored: 2 files or folders"} {
			if !strings.Contains(said.Plain(), words) {
				t.Errorf("the log says %q, want %q in it", said.Plain(), words)
			}
		}
		if b.on(thread) != box.ID {
			t.Errorf("a thread is on %s", b.on(thread))
		}
	}
	b.destroy(box.ID) // again: the restored files were never committed, and are still restored
	if _, again := b.sh(th, "cat new; git rev-parse HEAD"); again != "new\n"+base {
		t.Errorf("the third sandbox has %q", again)
	}
}

func TestFilesWithoutARepositoryComeBack(t *testing.T) {
	t.Parallel()
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newLocal(t)})
	th := b.thread(b.environment(sandbox.Recipe{Driver: "local"}))
	old, _ := b.sh(th, `
		mkdir -p src node_modules/x; echo a > src/a; echo x > node_modules/x/y; ln -s /etc/passwd link; ln src/a src/hard; mkfifo pipe
		git init --quiet mine; echo '#!/bin/sh' > mine/.git/hooks/post-checkout; echo m > mine/m`)
	b.boxes.SaveIdle(t.Context())
	tree, err := b.boxes.Tree(t.Context(), b.scope, old.ID)
	if err != nil || len(tree.Saved) != 1 || tree.SavedAt.Before(tree.UsedAt) {
		t.Fatalf("what is saved of an idle sandbox is %+v (%v)", tree, err)
	}
	b.sh(th, "echo later > later")
	b.destroy(old.ID)
	_, got := b.sh(th, "cat src/hard later mine/m; readlink link; ls; ls mine/.git/hooks 2>/dev/null; git -C mine status --porcelain")
	if want := "a\nlater\nm\n/etc/passwd\nlater\nlink\nmine\nsrc\n?? m\n"; got != want {
		t.Errorf("the new sandbox has\n%s\nwant\n%s", got, want)
	}
	if said := resumed(t, b, th).Files(); !strings.Contains(said, "Restored as saved on") {
		t.Errorf("the log says %q", said)
	}
	list, err := b.artifacts.List(t.Context(), b.scope, th, "", db.Newest, 10)
	if err != nil || len(list) != 1 {
		t.Errorf("%d artifacts are kept, want the last one only (%v)", len(list), err)
	}
}

// patched replaces the last saved patch of a thread's sandbox, as if a program in it had written the new one.
func patched(t *testing.T, b *bench, th, patch string) (box, id string) {
	t.Helper()
	box = b.on(th)
	made, err := b.artifacts.Create(t.Context(), b.scope, artifact.Draft{Kind: "patch", Thread: th}, strings.NewReader(patch))
	if err != nil {
		t.Fatal(detail(err))
	}
	b.exec(`update sandbox_trees set saved = jsonb_set(saved, '{0,artifact}', to_jsonb($2::text)) where sandbox_id = $1`, box, made.ID)
	return box, made.ID
}

func TestAPatchThatCannotComeBack(t *testing.T) {
	t.Parallel()
	b, _, repo := grown(t, sandbox.Recipe{})
	env := b.environment(sandbox.Recipe{Driver: "local", Repo: repo})
	whole := func(name, content string) string {
		return fmt.Sprintf("diff --git a/%[1]s b/%[1]s\nnew file mode 100755\n--- /dev/null\n+++ b/%[1]s\n@@ -0,0 +1 @@\n+%[2]s\n", name, content)
	}
	good := whole("good", "good")
	for name, patch := range map[string]string{
		"does not apply":              good + "diff --git a/file b/file\n--- a/file\n+++ b/file\n@@ -1 +1 @@\n-nobody wrote this\n+x\n",
		"leads out of the tree":       good + whole("../../home/agent/out", "x"),
		"has an absolute path":        good + whole("/home/agent/out", "x"),
		"writes into .git":            good + whole(".git/hooks/post-checkout", "x"),
		"writes through a link":       good + "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/home/agent\n\\ No newline at end of file\n" + whole("l/out", "x"),
		"is no patch":                 strings.Repeat("\x00\xff", 1000),
		"was deleted":                 "",
		"names a commit that is gone": "",
	} {
		t.Run(name, func(t *testing.T) {
			th := b.thread(env)
			b.sh(th, "echo new > new")
			b.boxes.SaveIdle(t.Context())
			old, id := patched(t, b, th, patch)
			switch name {
			case "was deleted":
				if err := b.artifacts.Delete(t.Context(), b.scope, id); err != nil {
					t.Fatal(err)
				}
			case "names a commit that is gone":
				b.exec(`update sandbox_trees set saved = jsonb_set(saved, '{0,commit}', '"1234567890123456789012345678901234567890"') where sandbox_id = $1`, old)
			}
			if _, err := b.boxes.Discard(t.Context(), b.scope, old); err != nil {
				t.Fatal(detail(err))
			}
			box, got := b.sh(th, "git status --porcelain --ignored; cat file; ls -A .git/hooks ~ | grep -x -e out -e post-checkout; true")
			if box.ID == old || got != "latest\n" {
				t.Errorf("the new sandbox has %q, want a clean clone", got)
			}
			said := resumed(t, b, th)
			if len(said.Tree) != 1 || said.Tree[0].Problem == "" || said.Tree[0].ArtifactID != id || !strings.Contains(said.Plain(), "Not restored: ") {
				t.Errorf("the log says %q", said.Plain())
			}
			b.destroy(box.ID)
			if _, err := b.artifacts.Get(t.Context(), b.scope, id); name != "was deleted" && err != nil {
				t.Errorf("the patch is lost: %v", err)
			}
		})
	}
}

func TestAServerThatWasKilledWhileATreeMoved(t *testing.T) {
	t.Parallel()
	b, th, _ := grown(t, sandbox.Recipe{})
	old, _ := b.sh(th, "echo new > new")

	// A crash between saving and destroying the box: the record is dead, and the box still exists.
	b.boxes.SaveIdle(t.Context())
	b.exec("update sandboxes set status = 'dead', destroyed_at = now() where id = $1", old.ID)
	b.sh(th, "test -e new") // the next server has not even swept
	b.boxes.Sweep(t.Context())
	next := b.on(th)

	// A crash between creating the box and the end of restoring: the record is pending, and the box exists without
	// its files.
	b.sh(th, "echo newer > new")
	b.destroy(next)
	env := b.envOf(next)
	b.exec("insert into sandboxes (id, house_id, environment_id, provider, replaces) values ('half', $1, $2, 'local', $3)", b.scope.House, env, next)
	if _, err := b.driver("local").Create(t.Context(), sandbox.Spec{ID: "half", Labels: sandbox.Labels{House: b.scope.House, Thread: th, Environment: env}}); err != nil {
		t.Fatal(detail(err))
	}
	b.boxes.Sweep(t.Context())
	box, got := b.sh(th, "cat new")
	if box.ID != "half" || got != "newer\n" {
		t.Errorf("the thread goes on in %s with %q", box.ID, got)
	}
	boxes, err := b.driver("local").List(t.Context(), sandbox.Labels{})
	if err != nil || len(boxes) != 1 {
		t.Errorf("%d boxes are there, want 1 (%v)", len(boxes), err)
	}
	if entries := logged[entry.SandboxResumed](b, th); len(entries) != 2 {
		t.Errorf("the log has %+v", entries)
	}
}

func TestAnEphemeralSandboxGoesWhenNobodyNeedsIt(t *testing.T) {
	t.Parallel()
	b, shared, repo := grown(t, sandbox.Recipe{})
	b.sh(shared, "true")
	driven := b.driven(b.environment(sandbox.Recipe{Driver: "local", Repo: repo}))
	box, _ := b.sh(driven, "echo new > new")
	if !box.Ephemeral {
		t.Fatal("the sandbox of a driven thread is not ephemeral")
	}
	b.exec("update threads set status = 'running' where id = $1", driven)
	b.boxes.ReapSpare(t.Context())
	if b.status(box.ID) != sandbox.StatusLive {
		t.Fatal("it was deleted while its thread ran")
	}
	b.exec("update threads set status = 'completed' where id = $1", driven)
	b.boxes.ReapSpare(t.Context())
	if b.status(box.ID) != sandbox.StatusDead || b.status(b.on(shared)) != sandbox.StatusLive {
		t.Errorf("the ephemeral one is %s, the shared one %s", b.status(box.ID), b.status(b.on(shared)))
	}
	boxes, err := b.driver("local").List(t.Context(), sandbox.Labels{})
	if err != nil || slices.ContainsFunc(boxes, func(x sandbox.Box) bool { return x.ID == box.ID }) {
		t.Errorf("its box is still there (%v)", err)
	}
	if _, got := b.sh(driven, "cat new"); got != "new\n" {
		t.Errorf("it came back with %q", got)
	}
}

func TestATreeThatCannotBeSavedIsKept(t *testing.T) {
	t.Parallel()
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newLocal(t)})
	th := b.thread(b.environment(sandbox.Recipe{Driver: "local"}))
	// Noise comes first or later, so that something is stored already; the rest compresses well, and counts by its size.
	box, _ := b.sh(th, "head -c 4000000 /dev/urandom > 0; truncate -s 16000000 1 2 3 4 5")
	_, err := b.boxes.Destroy(t.Context(), b.scope, box.ID)
	if f := fault.From(err); f.Reason() != fault.TreeNotSaved || !strings.Contains(f.Message, "more than 64 MB") {
		t.Errorf("deleting it says %s", detail(err))
	}
	b.boxes.ReapSpare(t.Context())
	if b.status(box.ID) != sandbox.StatusLive {
		t.Error("it was deleted")
	}
	if _, err := b.boxes.Discard(t.Context(), b.scope, box.ID); err != nil || b.status(box.ID) != sandbox.StatusDead {
		t.Errorf("it could not be given up: %s", detail(err))
	}
	b.sh(th, "test ! -e 1")
	if said := resumed(t, b, th).Files(); !strings.Contains(said, "Not restored: what was changed or made: there is more than 64 MB") {
		t.Errorf("the log says %q", said)
	}
}

func TestAThreadContinuesInAFreshSandbox(t *testing.T) {
	t.Parallel()
	b, parent, repo := grown(t, sandbox.Recipe{})
	old, _ := b.sh(parent, "echo parent > new")
	child := b.driven(b.environment(sandbox.Recipe{Driver: "local", Repo: repo}))
	b.share(child, parent)
	for range 2 { // a job may repeat it
		if err := b.boxes.Renew(t.Context(), b.scope, child, old.ID); err != nil {
			t.Fatal(detail(err))
		}
	}
	box, got := b.sh(child, "cat new; echo child > new")
	if box.ID == old.ID || !box.Ephemeral || got != "parent\n" {
		t.Errorf("the child goes on in %+v with %q", box, got)
	}
	if now, got := b.sh(parent, "cat new"); now.ID != old.ID || got != "parent\n" || len(logged[entry.SandboxResumed](b, parent)) != 0 {
		t.Errorf("the parent is on %s with %q", now.ID, got)
	}
	if said := resumed(t, b, child).Plain(); !strings.HasPrefix(said, "the thread left sandbox "+old.ID) || !strings.Contains(said, "with 1 changed file.") {
		t.Errorf("the log says %q", said)
	}
}

// What a new sandbox began with is kept until its own files are saved, although the old one is saved again.
func TestWhatASandboxBeganWithIsKept(t *testing.T) {
	t.Parallel()
	b, parent, repo := grown(t, sandbox.Recipe{})
	old, _ := b.sh(parent, "echo parent > new")
	leaves := func() (child string, box sandbox.Sandbox) { // which saves the old sandbox
		child = b.driven(b.environment(sandbox.Recipe{Driver: "local", Repo: repo}))
		b.share(child, parent)
		if err := b.boxes.Renew(t.Context(), b.scope, child, old.ID); err != nil {
			t.Fatal(detail(err))
		}
		box, _ = b.sh(child, "true")
		return child, box
	}
	child, box := leaves()
	b.sh(parent, "echo changed > new")
	leaves()
	b.exec("update sandboxes set status = 'dead', destroyed_at = now() where id = $1", box.ID)
	if _, got := b.sh(child, "cat new"); got != "parent\n" {
		t.Errorf("in the next sandbox, the file is %q", got)
	}
}

// A thread that leaves a sandbox which it shares leaves alone, even if the sandbox is gone.
func TestAThreadLeavesADeadSandboxAlone(t *testing.T) {
	t.Parallel()
	b, parent, repo := grown(t, sandbox.Recipe{})
	old, _ := b.sh(parent, "echo parent > new")
	child := b.driven(b.environment(sandbox.Recipe{Driver: "local", Repo: repo}))
	b.share(child, parent)
	if _, err := b.boxes.Destroy(t.Context(), b.scope, old.ID); err != nil {
		t.Fatal(detail(err))
	}
	if err := b.boxes.Renew(t.Context(), b.scope, child, old.ID); err != nil {
		t.Fatal(detail(err))
	}
	box, got := b.sh(child, "cat new; echo child > new")
	if box.ID == old.ID || got != "parent\n" {
		t.Errorf("the child goes on in %+v with %q", box, got)
	}
	if now, got := b.sh(parent, "cat new"); now.ID == old.ID || now.ID == box.ID || got != "parent\n" {
		t.Errorf("the parent is on %s with %q", now.ID, got)
	}
}

// driven creates a thread that a bot drives.
func (b *bench) driven(environment string) string {
	b.t.Helper()
	var id string
	err := b.owner.QueryRow(b.t.Context(), `with a as (insert into agents (kind, name, runtime) values ('bot', 'Pi', 'pi') returning id)
		insert into members (house_id, agent_id, role) select $1, id, 'member' from a returning agent_id::text`, b.scope.House).Scan(&id)
	if err != nil {
		b.t.Fatal(err)
	}
	th := b.thread(environment)
	b.exec("update threads set agent_id = $2::uuid, status = 'idle' where id = $1", th, id)
	return th
}

func (b *bench) envOf(box string) string {
	b.t.Helper()
	got, err := b.boxes.Sandbox(b.t.Context(), b.scope, box)
	if err != nil {
		b.t.Fatal(err)
	}
	return got.Environment
}

// An environment may clone other repositories than when the files were saved, and programs in a sandbox choose the
// saved files.
func TestFilesAreWhereARepositoryIsNow(t *testing.T) {
	t.Parallel()
	b, _, repo := grown(t, sandbox.Recipe{})
	env := b.environment(sandbox.Recipe{Driver: "local"})
	th := b.thread(env)
	old, _ := b.sh(th, "mkdir -p app/deep; echo mine > app/file; echo mine > app/deep/x; ln -s /tmp lib; echo kept > kept")
	b.destroy(old.ID)
	recipe := sandbox.Recipe{Driver: "local", Repositories: []sandbox.Repository{{URL: repo, Folder: "app"}, {URL: repo, Folder: "lib/app"}}}
	if _, err := b.boxes.UpdateEnvironment(t.Context(), b.scope, env, "", nil, &recipe); err != nil {
		t.Fatal(detail(err))
	}
	if _, got := b.sh(th, "cat kept lib/app/file; ls app; test ! -L lib"); got != "kept\nlatest\nfile\n" {
		t.Errorf("the new sandbox has %q", got)
	}
	if said := resumed(t, b, th).Plain(); !strings.Contains(said, "3 files where the environment now clones a repository") {
		t.Errorf("the log says %q", said)
	}
}
