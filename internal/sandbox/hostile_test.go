//go:build linux

package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// lfsPointer is what a repository has instead of a file that LFS keeps elsewhere.
const lfsPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

// commitAll commits everything in a working tree as it is.
func commitAll(t *testing.T, dir string) {
	t.Helper()
	run(t, dir, "git", "-c", "core.hooksPath=/dev/null", "-c", "filter.lfs.required=false", "-c", "filter.x.required=false", "add", "--force", ".")
	run(t, dir, "git", "-c", "core.hooksPath=/dev/null", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "-m", "hostile")
}

// A repository comes with files of every kind that git acts on. In a sandbox they are files, and on the server nothing acts on them.
func TestAHostileRepositoryIsFilesOnly(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	repo, trace := filepath.Join(root, "repo"), filepath.Join(outside, "ran")
	repository(t, repo)
	for name, content := range map[string]string{
		".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\nx filter=x diff=x merge=x\n* export-subst ident\n",
		".lfsconfig":     "[lfs]\n\turl = https://collects.example.com/lfs\n\tfetchinclude = *\n",
		"large.bin":      lfsPointer, "x": "$Id$\n",
		// A repository inside the tree, whose configuration applies to git that is run in its folder.
		"inner/HEAD": "ref: refs/heads/main\n", "inner/config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = /workspace\n\tfsmonitor = touch /tmp/ran\n",
		"inner/objects/keep": "", "inner/refs/keep": "",
		".devcontainer/keep": "", "git": "#!/bin/sh\ntouch /tmp/ran\n", "tar": "#!/bin/sh\ntouch /tmp/ran\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(repo, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(repo, name), content)
	}
	commitAll(t, repo)
	for name, value := range map[string]string{
		"filter.lfs.smudge": "touch " + trace, "filter.lfs.clean": "touch " + trace, "filter.lfs.process": "touch " + trace, "filter.lfs.required": "true",
		"filter.x.smudge": "touch " + trace, "filter.x.process": "touch " + trace, "diff.x.textconv": "touch " + trace, "merge.x.driver": "touch " + trace,
		"core.fsmonitor": "touch " + trace, "core.hooksPath": filepath.Join(repo, ".git", "hooks"), "uploadpack.packObjectsHook": "touch " + trace,
		"core.alternateRefsCommand": "touch " + trace, "lfs.url": "https://collects.example.com/lfs", "credential.helper": "!touch " + trace,
		"alias.bundle": "!touch " + trace, "alias.rev-parse": "!touch " + trace, "include.path": filepath.Join(outside, "more"), "pack.windowMemory": "100g", "pack.window": "1000000",
	} {
		run(t, repo, "git", "config", name, value)
	}
	write(t, filepath.Join(outside, "more"), "[core]\n\tsshCommand = touch "+trace+"\n")
	for _, hook := range []string{"post-checkout", "pre-push", "post-index-change", "reference-transaction", "pre-auto-gc", "post-merge", "pre-receive", "update", "post-update"} {
		path := filepath.Join(repo, ".git", "hooks", hook)
		write(t, path, "#!/bin/sh\ntouch "+trace+" /tmp/ran\n")
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(trace); err != nil { // this test's own git may have run something
		t.Fatal(err)
	}

	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newLocal(t)}, root)
	th := b.thread(b.environment(sandbox.Recipe{Driver: "local", Repo: repo}))
	const look = "cat large.bin; git config --list | grep -c -e filter -e hook -e fsmonitor -e lfs; ls .git/hooks | grep -v sample; ls -d /tmp/ran 2>/dev/null; true"
	old, got := b.sh(th, look)
	if want := lfsPointer + "0\n"; got != want {
		t.Errorf("the sandbox has\n%s\nwant\n%s", got, want)
	}
	b.sh(th, "echo mine >> x; echo kept > kept; cd inner && echo more > objects/keep")
	b.boxes.SaveIdle(t.Context())
	b.destroy(old.ID)
	box, got := b.sh(th, "cat kept; tail -n 1 x; "+look)
	if want := "kept\nmine\n" + lfsPointer + "0\n"; box.ID == old.ID || got != want {
		t.Errorf("the new sandbox has\n%s\nwant\n%s", got, want)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("a program was run on the server")
	}
}

// Git refuses names with which a tree would write into its own folder.
func TestARepositoryThatWritesIntoGitsFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newLocal(t)}, root)
	for _, name := range []string{".git", ".GIT", "git~1", ".."} {
		repo := filepath.Join(root, "repo"+strconv.Itoa(len(name))+name[:2])
		repository(t, repo)
		sh := fmt.Sprintf(`set -e; cd %s
			blob=$(printf '#!/bin/sh\ntouch /tmp/ran\n' | git hash-object -w --stdin)
			hooks=$(printf "100755 blob $blob\tpost-checkout\n" | git mktree)
			inner=$(printf "040000 tree $hooks\thooks\n" | git mktree)
			tree=$(printf "40000 %s\0$(echo $inner | sed 's/../\\x&/g')" | git hash-object -t tree -w --literally --stdin)
			git update-ref refs/heads/main $(git -c user.name=A -c user.email=a@b commit-tree -m x $tree)`, repo, name)
		if out, err := exec.Command("bash", "-c", sh).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		r := b.try(b.thread(b.environment(sandbox.Recipe{Driver: "local", Repo: repo})), "ls .git/hooks/post-checkout ../hooks /tmp/ran 2>/dev/null")
		if fault.CodeOf(r.err) != fault.Precondition || !strings.Contains(detail(r.err), "invalid path '"+name+"/hooks/post-checkout'") {
			t.Errorf("%s: the sandbox has %q (%s)", name, r.output, detail(r.err))
		}
	}
}

// largeMB returns the sizes of the repositories of the test below, of text and of noise. CI uses small ones, because large ones take
// minutes. The variable ARBE_TEST_REPOSITORY_MB sets another size, such as 2048.
func largeMB(t *testing.T) (text, noise int) {
	t.Helper()
	set := os.Getenv("ARBE_TEST_REPOSITORY_MB")
	if set == "" {
		return 240, 64
	}
	mb, err := strconv.Atoi(set)
	if err != nil || mb < 240 {
		t.Fatal("ARBE_TEST_REPOSITORY_MB: write a number from 240")
	}
	return mb, mb
}

// large makes a bare repository with six files that have size MB together.
func large(t *testing.T, repo string, size, compression int, content string) string {
	t.Helper()
	const files = 6
	run(t, "", "bash", "-c", fmt.Sprintf(`set -e; git init --quiet --bare --initial-branch=main %s; cd %[1]s; git config core.compression %d
		for i in $(seq %d); do
			blob=$({ echo $i; %s | head -c %d; } | git hash-object -w --stdin); printf "100644 blob $blob\tfile$i\n"; done > list
		git update-ref refs/heads/main $(git -c user.name=A -c user.email=a@b commit-tree -m large $(git mktree < list))`, repo, compression, files, content, size/files<<20))
	return repo
}

// A repository that is larger than the disk of its sandbox fills this disk, and nothing else: not the server's memory, and not its disk.
func TestARepositoryThatIsLargerThanTheDisk(t *testing.T) {
	// Not parallel: it looks at the memory of this process, and sets the environment.
	root := t.TempDir()
	text, noise := largeMB(t)
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newLocal(t, func(c *local.Config) { c.Limits = sandbox.Limits{DiskMB: 48, MemoryMB: 512} })}, root)
	// The repository of text is small until it is checked out. That of noise does not get that far.
	ofText, ofNoise := large(t, filepath.Join(root, "text"), text, 1, "yes arbe"), large(t, filepath.Join(root, "noise"), noise, 0, "cat /dev/urandom")
	small := filepath.Join(root, "small")
	repository(t, small)
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	// The server's git gets little memory.
	shim := filepath.Join(t.TempDir(), "git")
	write(t, shim, "#!/bin/sh\nulimit -d 196608 && exec "+real+" \"$@\"\n")
	if err := os.Chmod(shim, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(shim)+":"+os.Getenv("PATH"))
	for _, c := range []struct{ name, repo, want, next string }{
		{"when it is checked out", ofText, "its disk is too full for the files of clone", "raise the disk limit of the environment"},
		{"when it arrives", ofNoise, "the sandbox's disk is full", "raise the environment's disk limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := b.thread(b.environment(sandbox.Recipe{Driver: "local", Repo: c.repo}))
			before, rows := allocated(), b.rows()
			r := b.try(th, "true")
			if said := fault.From(r.err); r.err == nil || !strings.Contains(said.Message, c.want) || !strings.Contains(said.Next, c.next) {
				t.Errorf("it says %s", detail(r.err))
			}
			if got := (allocated() - before) >> 20; got > 32 {
				t.Errorf("the server has taken %d MiB of memory", got)
			}
			if b.rows() != rows {
				t.Error("a sandbox is left")
			}
		})
	}
	if _, got := b.sh(b.thread(b.environment(sandbox.Recipe{Driver: "local", Repo: small})), "cat file"); got != "latest\n" {
		t.Errorf("afterwards, a small repository has %q", got)
	}
}

// allocated returns how many bytes this process has ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
