package runner

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// project is a repository with a working tree in which a run has worked, beginning at the commit base.
type project struct {
	t    *testing.T
	dir  string
	base string
}

const lines = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"

// newProject makes a project with a few files.
func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{t: t, dir: t.TempDir()}
	p.git("init", "-q", "-b", "main")
	p.write("a.txt", lines)
	p.write("dir/b.txt", lines)
	p.write("gone.txt", "gone\n")
	p.write("image.png", "\x89PNG\x00\x01")
	p.commit("first")
	p.base = strings.TrimSpace(p.git("rev-parse", "HEAD"))
	return p
}

func (p *project) git(args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "git", append([]string{"-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (p *project) commit(text string) {
	p.t.Helper()
	p.git("add", "-A")
	p.git("commit", "-qm", text)
}

func (p *project) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	check(p.t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(p.t, os.WriteFile(path, []byte(text), 0o644))
}

func (p *project) read(name string) string {
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return ""
	}
	return string(text)
}

// clone returns a clone of the project, as another thread would have it.
func (p *project) clone() *project {
	p.t.Helper()
	c := &project{t: p.t, dir: filepath.Join(p.t.TempDir(), "clone"), base: p.base}
	p.git("clone", "-q", p.dir, c.dir)
	return c
}

// state returns the full state of the working tree and the index.
func (p *project) state() string {
	p.t.Helper()
	text := p.git("status", "--porcelain", "--untracked-files=all") + p.git("ls-files", "--stage") + p.git("diff", "--binary")
	check(p.t, filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		content, _ := os.ReadFile(path)
		text += fmt.Sprintf("%s %q\n", path, content)
		return nil
	}))
	return text
}

// saved returns a directory with the changes of the working tree, saved as at the end of a run.
func (p *project) saved() string {
	p.t.Helper()
	dir := p.t.TempDir()
	t := newTree(&setup{Spec: Spec{WorkDir: p.dir}, dir: p.t.TempDir(), environ: os.Environ()})
	saved, err := t.save(p.t.Context(), p.base, filepath.Join(dir, ChangesPatch))
	if err != nil || saved.missing != "" || saved.path == "" {
		p.t.Fatalf("saving: %+v, %v", saved, err)
	}
	return dir
}

// with returns a directory with a handmade patch.
func with(t *testing.T, patch string) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, ChangesPatch), []byte(patch), 0o600))
	return dir
}

// apply applies changes, as the program does in the working tree.
func (p *project) apply(dir string) (out string, err error) {
	p.t.Helper()
	c, err := openChanges(p.t.Context(), p.dir, dir, os.Environ())
	if err != nil {
		return "", err
	}
	defer c.close()
	var b bytes.Buffer
	err = c.apply(p.t.Context(), p.base, &b)
	return b.String(), err
}

// worked returns a project whose run has made every kind of change.
func worked(t *testing.T) (p *project, dir string) {
	t.Helper()
	p = newProject(t)
	run := p.clone()
	run.write("a.txt", strings.Replace(lines, "two", "TWO", 1))
	run.write("new/file.txt", "new\n")
	run.write("image.png", "\x89PNG\x00\x02\xff")
	run.write("blob.bin", "\x00\x01\x02")
	check(t, os.Remove(filepath.Join(run.dir, "gone.txt")))
	check(t, os.Rename(filepath.Join(run.dir, "dir/b.txt"), filepath.Join(run.dir, "dir/c.txt")))
	check(t, os.Symlink("../a.txt", filepath.Join(run.dir, "new/link")))
	run.write("tool.sh", "#!/bin/sh\n")
	check(t, os.Chmod(filepath.Join(run.dir, "tool.sh"), 0o755))
	return p, run.saved()
}

func TestChangesAreApplied(t *testing.T) {
	t.Parallel()
	p, dir := worked(t)
	p.write("mine.txt", "mine\n")
	p.write("a.txt", strings.Replace(lines, "nine", "NINE", 1)) // not committed, and in the same file
	index := p.git("ls-files", "--stage")
	said, err := p.apply(dir)
	if err != nil || !strings.HasSuffix(said, "8 files applied.\n") && !strings.HasSuffix(said, "9 files applied.\n") {
		t.Fatalf("it says %q, %v", said, err)
	}
	if got := p.read("a.txt"); got != strings.NewReplacer("two", "TWO", "nine", "NINE").Replace(lines) {
		t.Errorf("a.txt is %q", got)
	}
	for name, want := range map[string]string{"new/file.txt": "new\n", "image.png": "\x89PNG\x00\x02\xff", "blob.bin": "\x00\x01\x02", "gone.txt": "", "dir/b.txt": "", "dir/c.txt": lines, "mine.txt": "mine\n"} {
		if got := p.read(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if to, err := os.Readlink(filepath.Join(p.dir, "new/link")); err != nil || to != "../a.txt" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if info, err := os.Stat(filepath.Join(p.dir, "tool.sh")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("the tool is %v, %v", info, err)
	}
	if now := p.git("ls-files", "--stage"); now != index {
		t.Error("it changes what is staged")
	}
	before := p.state()
	said, err = p.apply(dir)
	if err != nil || said != "These changes have already been applied.\n" || p.state() != before {
		t.Errorf("a second time, it says %q, %v", said, err)
	}
}

// Whatever a killed process has written of the changes, applying them again writes the rest.
func TestChangesThatWereWrittenInPart(t *testing.T) {
	t.Parallel()
	steps := []func(p *project){
		func(p *project) { check(p.t, os.Remove(filepath.Join(p.dir, "dir/b.txt"))) },
		func(p *project) { check(p.t, os.Remove(filepath.Join(p.dir, "gone.txt"))) },
		func(p *project) { p.write("a.txt", strings.NewReplacer("two", "TWO", "nine", "NINE").Replace(lines)) },
		func(p *project) { p.write("blob.bin", "\x00\x01\x02") },
		func(p *project) { p.write("dir/c.txt", lines) },
		func(p *project) { p.write("image.png", "\x89PNG\x00\x02\xff") },
		func(p *project) { p.write("new/file.txt", "new\n") },
	}
	for n := range len(steps) + 1 {
		t.Run(fmt.Sprint(n, " files"), func(t *testing.T) {
			t.Parallel()
			p, dir := worked(t)
			p.write("a.txt", strings.Replace(lines, "nine", "NINE", 1)) // not committed
			for _, step := range steps[:n] {
				step(p)
			}
			p.write(".git/arbe-staged/new/file.txt", "ne")
			if said, err := p.apply(dir); err != nil {
				t.Fatalf("it says %q, %v", said, err)
			}
			for name, want := range map[string]string{"a.txt": strings.NewReplacer("two", "TWO", "nine", "NINE").Replace(lines), "new/file.txt": "new\n", "image.png": "\x89PNG\x00\x02\xff",
				"blob.bin": "\x00\x01\x02", "gone.txt": "", "dir/b.txt": "", "dir/c.txt": lines, "tool.sh": "#!/bin/sh\n", ".git/arbe-staged/new/file.txt": ""} {
				if got := p.read(name); got != want {
					t.Errorf("%s is %q", name, got)
				}
			}
		})
	}
}

func TestChangesAreMergedWithLaterCommits(t *testing.T) {
	t.Parallel()
	p, dir := worked(t)
	p.write("a.txt", "zero\n"+lines)
	p.commit("later")
	if said, err := p.apply(dir); err != nil || p.read("a.txt") != "zero\n"+strings.Replace(lines, "two", "TWO", 1) {
		t.Errorf("it says %q, %v, and makes %q", said, err, p.read("a.txt"))
	}
}

// A conflict is reported by file, and changes nothing.
func TestChangesThatConflict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(p *project)
		says      string
	}{
		"with what is not committed":   {func(p *project) { p.write("a.txt", strings.Replace(lines, "two", "2", 1)) }, "conflict: a.txt\n"},
		"with a later commit":          {func(p *project) { p.write("a.txt", strings.Replace(lines, "two", "2", 1)); p.commit("later") }, "conflict: a.txt\n"},
		"with a file that was deleted": {func(p *project) { check(p.t, os.Remove(filepath.Join(p.dir, "image.png"))); p.commit("later") }, "image.png"},
		"with a file that is new":      {func(p *project) { p.write("new/file.txt", "another\n") }, "conflict: new/file.txt\n"},
		"with a binary file":           {func(p *project) { p.write("image.png", "\x89PNG\x00\x07") }, "conflict: image.png\n"},
		"with a file that is gone":     {func(p *project) { check(p.t, os.Remove(filepath.Join(p.dir, "a.txt"))) }, "a.txt"},
		"with a directory in its way":  {func(p *project) { p.write("blob.bin/x", "x\n") }, "blob.bin"},
		"with a link in its way":       {func(p *project) { check(p.t, os.Symlink("/tmp", filepath.Join(p.dir, "new"))) }, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, dir := worked(t)
			p.t = t
			c.meanwhile(p)
			before := p.state()
			said, err := p.apply(dir)
			if err == nil || !strings.Contains(err.Error(), c.says) || said != "" {
				t.Errorf("it says %q, %v", said, err)
			}
			if now := p.state(); now != before {
				t.Errorf("it leaves\n%s\nof\n%s", now, before)
			}
		})
	}
}

// A patch can come from anyone who worked in a sandbox.
func TestHostileChanges(t *testing.T) {
	t.Parallel()
	added := func(name, mode, text string) string {
		return fmt.Sprintf("diff --git a/%[1]s b/%[1]s\nnew file mode %[2]s\nindex 0000000..1111111\n--- /dev/null\n+++ b/%[1]s\n@@ -0,0 +1 @@\n+%[3]s\n", name, mode, text)
	}
	link := func(name, target string) string {
		return added(name, "120000", target) + "\\ No newline at end of file\n"
	}
	for name, patch := range map[string]string{
		"into .git":                 added(".git/hooks/post-checkout", "100755", "#!/bin/sh"),
		"into .git of a folder":     added("dir/.git/config", "100644", "[core]"),
		"into .GIT":                 added(".GIT/config", "100644", "[core]"),
		"upwards":                   added("../outside", "100644", "x"),
		"upwards within":            added("dir/../../outside", "100644", "x"),
		"to an absolute path":       added("/tmp/arbe-outside", "100644", "x"),
		"an absolute link":          link("link", "/etc"),
		"a link upwards":            link("dir/link", "../../x"),
		"a link into .git":          link("link", ".git/hooks"),
		"a link, and through it":    link("link", "dir") + added("link/x", "100644", "x"),
		"two links that lead out":   link("one", ".") + link("two", "one/../outside"),
		"… of which one is of dots": link("...", ".") + link("two", ".../../outside"),
		"a submodule":               added("sub", "160000", "Subproject commit 0123456789012345678901234567890123456789"),
		"nothing":                   "",
		"words":                     "hello\n",
		"half of a patch":           strings.TrimSuffix(added("x", "100644", "x"), "+x\n"),
		"more lines than there are": strings.Replace(added("x", "100644", "x"), "+1 @@", "+1,900000000 @@", 1),
		"a name with an escape":     strings.ReplaceAll(added("NAME", "100644", "x"), "a/NAME b/NAME", `"a/.git/\033[2J" "b/.git/\033[2J"`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			before := p.state()
			said, err := p.apply(with(t, patch))
			if err == nil {
				t.Errorf("it says %q", said)
			}
			if now := p.state(); now != before {
				t.Errorf("it leaves\n%s", now)
			}
			if err != nil && strings.Contains(err.Error(), "\x1b") {
				t.Errorf("it says %q", err)
			}
			for _, outside := range []string{filepath.Join(filepath.Dir(p.dir), "outside"), "/tmp/arbe-outside", filepath.Join(p.dir, ".git/hooks/post-checkout")} {
				if _, err := os.Lstat(outside); err == nil {
					t.Errorf("%s is there", outside)
				}
			}
		})
	}
}

// A repository's configuration can name programs. None of them runs.
func TestApplyingRunsNothing(t *testing.T) {
	t.Parallel()
	p, dir := worked(t)
	mark := filepath.Join(t.TempDir(), "ran")
	p.write(".gitattributes", "* filter=evil diff=evil merge=evil\n")
	p.commit("attributes")
	for _, name := range []string{"filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "diff.external", "merge.evil.driver", "core.fsmonitor", "core.sshCommand", "core.editor"} {
		p.git("config", name, "touch "+mark)
	}
	for _, hook := range []string{"post-checkout", "post-merge", "post-index-change", "pre-push", "pre-commit", "reference-transaction"} {
		check(t, os.MkdirAll(filepath.Join(p.dir, ".git/hooks"), 0o755))
		check(t, os.WriteFile(filepath.Join(p.dir, ".git/hooks", hook), []byte("#!/bin/sh\ntouch "+mark+"\n"), 0o755))
	}
	if said, err := p.apply(dir); err != nil {
		t.Fatalf("%q, %v", said, err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program of the repository ran")
	}
}

func TestApplyingOutsideARepository(t *testing.T) {
	t.Parallel()
	p, dir := worked(t)
	for name, where := range map[string]string{"in no repository": t.TempDir(), "in a folder of one": filepath.Join(p.dir, "dir")} {
		if _, err := (&project{t: t, dir: where}).apply(dir); err == nil {
			t.Errorf("%s, it is applied", name)
		}
	}
	if _, err := p.apply(t.TempDir()); err == nil || !strings.Contains(err.Error(), "The patch is missing") {
		t.Errorf("without a patch, it says %v", err)
	}
}

// hosted puts a project's repository on a host behind the server's door.
func hosted(t *testing.T, p *project) (bare *project, door string) {
	t.Helper()
	root := t.TempDir()
	bare = &project{t: t, dir: filepath.Join(root, "example.com/org/repo.git")}
	p.git("clone", "-q", "--bare", p.dir, bare.dir)
	bare.git("config", "http.receivepack", "true")
	backend := filepath.Join(strings.TrimSpace(p.git("--exec-path")), "git-http-backend")
	server := httptest.NewServer(http.StripPrefix("/git", &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}))
	t.Cleanup(server.Close)
	return bare, server.URL + "/git/"
}

func (p *project) push(dir string, b branch) (string, error) {
	p.t.Helper()
	c, err := openChanges(p.t.Context(), p.dir, dir, os.Environ())
	if err != nil {
		return "", err
	}
	defer c.close()
	var out bytes.Buffer
	err = c.push(p.t.Context(), b, &out)
	return out.String(), err
}

func TestChangesBecomeABranch(t *testing.T) {
	t.Parallel()
	p, dir := worked(t)
	bare, door := hosted(t, p)
	check(t, os.WriteFile(filepath.Join(dir, ChangesDoor), []byte(door+"\n"), 0o600))
	b := branch{name: "arbe/fix", remote: "https://example.com/org/repo.git", base: p.base, title: "Fix it", author: "Pi", date: "2026-11-26T04:00:00Z"}
	p.write("a.txt", "what the tree has meanwhile does not matter\n")
	before := p.state()
	said, err := p.push(dir, b)
	if err != nil || !strings.Contains(said, "Pushed the branch arbe/fix to https://example.com/org/repo.git") {
		t.Fatalf("it says %q, %v", said, err)
	}
	if got := bare.git("show", "--no-patch", "--format=%an|%s|%P", "arbe/fix"); got != "Pi|Fix it|"+p.base+"\n" {
		t.Errorf("the commit is %q", got)
	}
	if got := bare.git("show", "arbe/fix:a.txt"); got != strings.Replace(lines, "two", "TWO", 1) {
		t.Errorf("a.txt is %q", got)
	}
	if p.state() != before {
		t.Error("it changes the working tree")
	}
	pushed := bare.git("for-each-ref")
	if said, err = p.push(dir, b); err != nil || !strings.Contains(said, "already exists") || bare.git("for-each-ref") != pushed {
		t.Errorf("a second time, it says %q, %v", said, err)
	}

	for name, c := range map[string]struct {
		change func(*branch)
		says   string
	}{
		"to the default branch":         {func(b *branch) { b.name = "main" }, "main is the default branch"},
		"to a branch of somebody else":  {func(b *branch) { b.title = "Another" }, "already exists with other content"},
		"on a commit that is not there": {func(b *branch) { b.base = strings.Repeat("1", 40) }, "is not in the repository"},
		"on an option":                  {func(b *branch) { b.base = "--all" }, "has no base commit"},
		"to a host that is not there":   {func(b *branch) { b.remote = "https://example.com/org/none.git" }, "cannot be read"},
		"to a file":                     {func(b *branch) { b.remote = "file://" + bare.dir }, "is no repository at https://"},
	} {
		other := b
		c.change(&other)
		if said, err := p.push(dir, other); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: it says %q, %v", name, said, err)
		}
	}
	if bare.git("for-each-ref") != pushed {
		t.Error("what was refused changed the repository")
	}
}

// A shallow clone lacks the parents of its commit.
func TestABranchOfAShallowClone(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("a.txt", "zero\n"+lines)
	p.commit("second")
	bare, door := hosted(t, p)
	run := &project{t: t, dir: filepath.Join(t.TempDir(), "clone")}
	p.git("clone", "-q", "--depth=1", "file://"+bare.dir, run.dir)
	run.base = strings.TrimSpace(run.git("rev-parse", "HEAD"))
	run.write("a.txt", "changed\n")
	dir := run.saved()
	check(t, os.WriteFile(filepath.Join(dir, ChangesDoor), []byte(door), 0o600))
	said, err := run.push(dir, branch{name: "fix", remote: "https://example.com/org/repo.git", base: run.base, date: "2026-11-26T04:00:00Z"})
	if err != nil || bare.git("rev-list", "--count", "fix") != "3\n" {
		t.Errorf("it says %q, %v", said, err)
	}
}
