//go:build linux

package sandbox_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// newLocal returns a driver of real boxes on this machine.
func newLocal(t *testing.T, change ...func(*local.Config)) *local.Driver {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("real boxes need root on a machine that has no other user set up for them")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("runc is not installed")
	}
	config := local.Config{Dir: t.TempDir(), Limits: sandbox.Limits{DiskMB: 128, MemoryMB: 512}}
	for _, c := range change {
		c(&config)
	}
	d, err := local.New(t.Context(), config)
	if err != nil {
		t.Fatal(detail(err))
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Errorf("closing the driver: %s", detail(err))
		}
	})
	return d
}

// repository makes a git repository at dir with two commits, a branch and a tag, and returns the first commit.
func repository(t *testing.T, dir string) (first string) {
	t.Helper()
	run(t, "", "git", "init", "--quiet", "--initial-branch=main", dir)
	commit := func(content string) string {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, dir, "git", "add", "file")
		run(t, dir, "git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "-m", content)
		return run(t, dir, "git", "rev-parse", "HEAD")
	}
	first = commit("first")
	run(t, dir, "git", "tag", "v1")
	run(t, dir, "git", "checkout", "--quiet", "-b", "feature/x")
	commit("on the branch")
	run(t, dir, "git", "checkout", "--quiet", "main")
	commit("latest")
	return first
}

func run(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestARepositoryOfThisMachine(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	repo := filepath.Join(root, "repo")
	first := repository(t, repo)
	b := setupWith(t, nil, map[string]sandbox.Driver{"local": newLocal(t)}, filepath.Join(root, "nosuchroot"), root)
	with := func(path, ref string) string {
		return b.thread(b.environment(sandbox.Recipe{Driver: "local", Repo: path, Ref: ref}))
	}

	for _, c := range []struct{ name, path, ref, want string }{
		{"is cloned at its default branch", repo, "", "latest\n"},
		{"is named by a file URL as well", "file://" + repo, "", "latest\n"},
		{"is checked out at a branch", repo, "feature/x", "on the branch\n"},
		{"is checked out at a tag", repo, "v1", "first\n"},
		{"is checked out at a commit", repo, first, "first\n"},
		{"may be the root itself, and bare", bare(t, repo, filepath.Join(root, "bare.git")), "", "latest\n"},
		{"may be a worktree of one that is allowed", worktree(t, repo, filepath.Join(root, "worktree")), "", "first\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := with(c.path, c.ref)
			if _, got := b.sh(th, "cat file"); got != c.want {
				t.Errorf("the file says %q, want %q", got, c.want)
			}
			if _, got := b.sh(th, "git status --porcelain; git remote get-url origin; ls -A ~"); !strings.HasPrefix(got, c.path+"\n") || strings.Contains(got, "bundle") {
				t.Errorf("the working tree is not clean, its origin not the repository, or something was left: %q", got)
			}
			entries := logged[entry.EnvironmentPrepared](b, th)
			if len(entries) != 1 || len(entries[0].Steps) != 1 || entries[0].Steps[0].Name != "clone" || entries[0].Steps[0].ExitCode != 0 {
				t.Errorf("the log has %+v", entries)
			}
		})
	}
	t.Run("has no such ref: the log shows what git said, and nothing is left", func(t *testing.T) {
		th := with(repo, "nosuchref")
		before := b.rows()
		wantCode(t, b.try(th, "true").err, fault.Precondition)
		step, failed := logged[entry.EnvironmentPrepared](b, th)[0].Failed()
		if !failed || step.Name != "clone" || !strings.Contains(step.Output, "nosuchref") || b.rows() != before {
			t.Errorf("the log has %+v, and %d rows were left", step, b.rows()-before)
		}
	})

	repository(t, filepath.Join(outside, "secret"))
	inside := func(name string, make func(path string)) string {
		path := filepath.Join(root, name)
		make(path)
		return path
	}
	mkdir := func(path string) {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, path string
		code       fault.Code
		want       string
	}{
		{"outside the roots", filepath.Join(outside, "secret"), fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"outside the roots that is not there", filepath.Join(outside, "nothing"), fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"outside by its dots", root + "/../" + filepath.Base(outside) + "/secret", fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"behind a link that leads out", inside("link", func(p string) { os.Symlink(filepath.Join(outside, "secret"), p) }), fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"whose .git is a link that leads out", inside("gitlink", func(p string) {
			mkdir(p)
			os.Symlink(filepath.Join(outside, "secret", ".git"), filepath.Join(p, ".git"))
		}), fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"whose .git is a file that leads out", inside("gitfile", func(p string) {
			mkdir(p)
			os.WriteFile(filepath.Join(p, ".git"), []byte("gitdir: "+filepath.Join(outside, "secret", ".git")+"\n"), 0o644)
		}), fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"that borrows objects from outside", inside("alternates", func(p string) {
			repository(t, p)
			commit := run(t, filepath.Join(outside, "secret"), "git", "rev-parse", "HEAD")
			write(t, filepath.Join(p, ".git/objects/info/alternates"), filepath.Join(outside, "secret/.git/objects")+"\n")
			write(t, filepath.Join(p, ".git/refs/heads/stolen"), commit+"\n")
		}), fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"that borrows from one that borrows from outside", inside("borrower", func(p string) {
			repository(t, p)
			write(t, filepath.Join(p, ".git/objects/info/alternates"), "../../../alternates/.git/objects\n")
		}), fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"whose objects are linked from outside", inside("objects", func(p string) {
			repository(t, p)
			tree := run(t, filepath.Join(outside, "secret"), "git", "rev-parse", "HEAD^{tree}")
			link(t, filepath.Join(outside, "secret/.git/objects", tree[:2]), filepath.Join(p, ".git/objects/aa-"+tree[:2]))
		}), fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"that makes git complain of a file outside", inside("refs", func(p string) {
			repository(t, p)
			write(t, filepath.Join(outside, "password"), "root:hunter2\n")
			link(t, filepath.Join(outside, "password"), filepath.Join(p, ".git/packed-refs"))
		}), fault.Forbidden, "ARBE_REPO_ROOTS"},
		{"that is a directory of one", inside("repo/below", mkdir), fault.Precondition, "check that it is a git repository"},
		{"that is none", inside("plain", mkdir), fault.Precondition, "check that it is a git repository"},
		{"that is not there", filepath.Join(root, "missing"), fault.Precondition, "there is no repository at " + root + "/missing"},
		{"that is empty", inside("empty", func(p string) { run(t, "", "git", "init", "--quiet", p) }), fault.Precondition, "at least one commit"},
	} {
		t.Run("cannot be one "+c.name, func(t *testing.T) {
			th := with(c.path, "")
			r := b.try(th, "true")
			wantCode(t, r.err, c.code)
			if !strings.Contains(detail(r.err), c.want) || strings.Contains(fault.From(r.err).Error(), "hunter2") || b.on(th) != "" {
				t.Errorf("it says %s, want %q; the thread is on %q", detail(r.err), c.want, b.on(th))
			}
		})
	}
	t.Run("runs nothing on this machine", func(t *testing.T) {
		evil, trace := filepath.Join(root, "evil"), filepath.Join(outside, "ran")
		repository(t, evil)
		// Every way in which a repository can make git start a program when it is read. The last ones make git fetch
		// missing objects.
		for name, value := range map[string]string{
			"core.fsmonitor": "touch " + trace, "core.pager": "touch " + trace, "core.hooksPath": evil, "core.sshCommand": "touch " + trace,
			"core.repositoryformatversion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
			"remote.origin.url": evil, "remote.origin.uploadpack": "touch " + trace + ";",
			"core.alternateRefsCommand": "touch " + trace + ";", "uploadpack.packObjectsHook": "touch " + trace + ";", "core.gitProxy": "touch " + trace,
			"core.editor": "touch " + trace, "core.askPass": "touch " + trace, "credential.helper": "!touch " + trace, "gpg.program": "touch " + trace,
			"log.showSignature": "true", "diff.external": "touch " + trace, "filter.x.smudge": "touch " + trace, "filter.x.process": "touch " + trace,
			"protocol.allow": "always", "protocol.ext.allow": "always", "url.ext::touch " + trace + " .insteadOf": evil,
		} {
			run(t, evil, "git", "config", name, value)
		}
		lost := run(t, evil, "git", "rev-parse", "HEAD:file")
		if err := os.Remove(filepath.Join(evil, ".git", "objects", lost[:2], lost[2:])); err != nil {
			t.Fatal(err)
		}
		wantCode(t, b.try(with(evil, ""), "true").err, fault.Precondition)
		if _, err := os.Stat(trace); err == nil {
			t.Error("it ran a program")
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func bare(t *testing.T, repo, path string) string {
	run(t, "", "git", "clone", "--quiet", "--bare", repo, path)
	return path
}

func worktree(t *testing.T, repo, path string) string {
	run(t, repo, "git", "worktree", "add", "--quiet", "--detach", path, "v1")
	return path
}
