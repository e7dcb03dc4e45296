package server_test

import (
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// newRepository returns counters that work in clones of a repository at a host of git. The thread above them has a clone, too.
func newRepository(t *testing.T) (*counters, *gitHost) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it looks into sandboxes from outside, as root")
	}
	host := newGitHost(t, "one")
	host.token.Store("token-of-the-host")
	authorities := filepath.Join(t.TempDir(), "authorities.pem")
	if err := os.WriteFile(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: host.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ARBE_GIT_AUTHORITIES", authorities)
	t.Setenv("ARBE_SANDBOX_PRIVATE_HOSTS", host.name)
	c := newCountersIn(t, served(t), &arbev1.EnvironmentConfig{
		Repo: host.URL + "/one.git", Git: []*arbev1.GitCredential{{Host: host.name, Secret: "GIT_TOKEN"}},
		Setup: counter + "printf 'steps-*\\ngo-*\\nmade\\n' >> /workspace/.git/info/exclude\n",
	})
	if _, err := c.client().Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: c.parent.HouseId, Name: "GIT_TOKEN", Value: []byte("token-of-the-host")}); err != nil {
		t.Fatal(err)
	}
	if got := output(t, c.cfg, c.parent.Id, "grep -c nameserver /etc/resolv.conf; true"); !strings.HasSuffix(got, "1\n") {
		t.Skip("this machine cannot redirect the connections of sandboxes")
	}
	return c.above(t), host
}

// above returns counters whose runs are below a new thread. That thread has a tree of its own.
func (c *counters) above(t *testing.T) *counters {
	t.Helper()
	made, err := c.client().Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: c.parent.HouseId, EnvironmentId: c.env})
	if err != nil {
		t.Fatal(err)
	}
	below := *c
	below.parent = made.Thread
	if got := output(t, c.cfg, below.parent.Id, "cat file"); got != "one\n" {
		t.Fatalf("the tree above has %q", got)
	}
	return &below
}

// changes is a finished run that changed its tree with a line of shell.
func (c *counters) changes(t *testing.T, sandbox, line string) *counting {
	t.Helper()
	r := c.count(t, sandbox)
	if got := output(t, c.cfg, r.thread, line); got != "" {
		t.Fatalf("changing the tree prints %q", got)
	}
	r.goes()
	r.ends("completed")
	return r
}

// box returns the sandbox of a thread.
func (c *counters) box(t *testing.T, thread string) string {
	t.Helper()
	got, err := c.client().Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
	if err != nil {
		t.Fatal(err)
	}
	return got.Thread.SandboxId
}

// apply applies the changes of a run, and returns the result.
func (r *counting) apply(t *testing.T) entry.CommandResult {
	t.Helper()
	used, err := r.client().Runs.ApplyChanges(t.Context(), &arbev1.ApplyChangesRequest{ThreadId: r.thread})
	if err != nil {
		t.Fatal(err)
	}
	return decode[entry.CommandResult](t, awaitEntry(t, r.client(), used.ThreadId, entry.ResultID(used.Command.Id)))
}

// last returns the last run.
func (r *counting) last(t *testing.T) *arbev1.Run {
	t.Helper()
	list, err := r.client().Runs.ListRuns(t.Context(), &arbev1.ListRunsRequest{ThreadId: r.thread})
	if err != nil || len(list.Runs) != 1 || list.Runs[0].PatchArtifactId == "" {
		t.Fatalf("the runs are %v: %v", list.GetRuns(), err)
	}
	return list.Runs[0]
}

// What a run changed in a real sandbox is applied to the files above, or refused by the names of the files in the way, and is
// pushed to a real host as a branch.
func TestTheChangesOfARunAreAppliedAndPushed(t *testing.T) {
	c, host := newRepository(t)
	r := c.changes(t, "", "echo better > file; echo new > new; mkdir dir; echo deep > dir/deep")
	if got := r.last(t).BranchRepository; got != host.URL+"/one.git" {
		t.Errorf("a branch can be pushed to %q", got)
	}
	if got := r.apply(t); got.ExitCode != 0 || !strings.Contains(got.Output, "3 files applied.") {
		t.Errorf("applying ends with %+v", got)
	}
	if got := output(t, c.cfg, c.parent.Id, "cat file new dir/deep; git rev-list --count HEAD"); got != "better\nnew\ndeep\n2\n" {
		t.Errorf("the tree above has %q", got)
	}
	if got := r.apply(t); got.ExitCode != 0 || !strings.Contains(got.Output, "These changes have already been applied.") {
		t.Errorf("applying again ends with %+v", got)
	}

	mine := c.above(t)
	output(t, c.cfg, mine.parent.Id, "echo mine > file")
	theirs := mine.changes(t, c.box(t, r.thread), "echo best > file")
	if got := theirs.apply(t); got.ExitCode != 1 || !strings.Contains(got.Output, "conflict: file\n") || !strings.Contains(got.Output, "Nothing was changed") {
		t.Errorf("applying what conflicts ends with %+v", got)
	}
	if got := output(t, c.cfg, mine.parent.Id, "cat file; git status --porcelain"); got != "mine\n M file\n" {
		t.Errorf("after a conflict, the tree above has %q", got)
	}

	for range 2 { // the second does nothing
		used, err := c.client().Runs.OpenBranch(t.Context(), &arbev1.OpenBranchRequest{ThreadId: r.thread, Name: "fix/it"})
		if err != nil {
			t.Fatal(err)
		}
		if got := decode[entry.CommandResult](t, awaitEntry(t, c.client(), used.ThreadId, entry.ResultID(used.Command.Id))); got.ExitCode != 0 || !strings.Contains(got.Output, "the branch fix/it") && !strings.Contains(got.Output, "The branch fix/it already exists.") {
			t.Errorf("opening a branch ends with %+v", got)
		}
	}
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", filepath.Join(host.root, "one.git")}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	if got := git("log", "--format=%an: %s", "main..fix/it") + git("diff", "--name-status", "main", "fix/it") + git("show", "fix/it:file"); got != "pi: Count.\nA\tdir/deep\nM\tfile\nA\tnew\nbetter\n" {
		t.Errorf("the branch has %q", got)
	}
	if got := git("for-each-ref", "--format=%(refname)"); got != "refs/heads/fix/it\nrefs/heads/main\n" {
		t.Errorf("the repository has %q", got)
	}

	plain, err := c.client().Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: c.parent.HouseId, Name: "no remote",
		Config: &arbev1.EnvironmentConfig{Setup: counter + "cd /workspace && git init -q && echo one > file && git add file && git -c user.name=A -c user.email=a@example.com commit -qm first\n"}})
	if err != nil {
		t.Fatal(err)
	}
	alone := *c
	alone.env = plain.Environment.Id
	local := alone.changes(t, "", "echo better > file")
	if got := local.last(t).BranchRepository; got != "" {
		t.Errorf("without a remote, a branch can be pushed to %q", got)
	}
	if _, err := c.client().Runs.OpenBranch(t.Context(), &arbev1.OpenBranchRequest{ThreadId: local.thread}); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "has no repository") {
		t.Errorf("without a remote, opening a branch: %v", err)
	}
}

// many is how many files a large change has, so that writing them takes a while.
const many = 2000

// Something dies while changes are written to the files above. If the server dies, the sandbox goes on writing. If the writing
// program dies, the thread says so, and a retry writes the rest. Further retries change nothing.
func TestApplyingIsWholeWhateverDies(t *testing.T) {
	c, _ := newRepository(t)
	large := c.changes(t, "", fmt.Sprintf("echo better > file; mkdir many; for i in $(seq %d); do echo $i > many/$i; done", many))
	child := c.box(t, large.thread)
	for name, kill := range map[string]struct {
		what func(t *testing.T, c *counters, in *counting)
		// code is the exit code of the command.
		code int
	}{
		"the server": {func(t *testing.T, c *counters, _ *counting) {
			c.server.Process.Kill()
			c.server.Wait()
			c.server = startProcess(c.t, c.cfg)
		}, 0},
		"the program that writes": {func(t *testing.T, _ *counters, in *counting) {
			for _, pid := range in.writers() {
				dies(t, pid)
			}
		}, 137},
	} {
		t.Run(name, func(t *testing.T) {
			c := c.above(t)
			r := c.changes(t, child, "true")
			watch := c.count(t, c.box(t, c.parent.Id)) // a process in the sandbox shows its files from outside
			used, err := c.client().Runs.ApplyChanges(t.Context(), &arbev1.ApplyChangesRequest{ThreadId: r.thread})
			if err != nil {
				t.Fatal(err)
			}
			written := fmt.Sprintf("/proc/%d/root/workspace/many", watch.runner)
			for deadline := time.Now().Add(2 * time.Minute); ; {
				if _, err := os.Stat(written); err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("nothing is written")
				}
			}
			kill.what(t, c, watch)
			left, _ := os.ReadDir(written)
			t.Logf("%d of %d files are written", len(left), many)
			got := decode[entry.CommandResult](t, awaitEntry(t, c.client(), used.ThreadId, entry.ResultID(used.Command.Id)))
			t.Logf("the command ends with %d after %d ms: %s", got.ExitCode, got.DurationMS, entry.Clip(got.Output+got.Error, 500))
			if got.ExitCode != kill.code {
				t.Errorf("the command ends with %d, want %d", got.ExitCode, kill.code)
			}
			if kill.code != 0 {
				if again := r.apply(t); again.ExitCode != 0 {
					t.Errorf("the retry ends with %+v", again)
				}
			}
			if got := output(t, c.cfg, c.parent.Id, "ls many | wc -l; cat many/* | sort -n | md5sum; cat file"); got != output(t, c.cfg, c.parent.Id, fmt.Sprintf("echo %d; seq %d | md5sum; echo better", many, many)) {
				t.Errorf("the tree above has %q", got)
			}
			if again := r.apply(t); again.ExitCode != 0 || !strings.Contains(again.Output, "already been applied") {
				t.Errorf("a further retry ends with %+v", again)
			}
			watch.goes()
			watch.ends("completed")
		})
	}
}

// writers returns the processes in the sandbox of a run that write changes.
func (r *counting) writers() (list []int) {
	own, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", r.runner))
	paths, _ := filepath.Glob("/proc/[0-9]*/ns/mnt")
	for _, path := range paths {
		if in, err := os.Readlink(path); err != nil || in != own {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if line := strings.Join(commandLine(pid), " "); strings.Contains(line, "/arbe-runner apply ") || strings.Contains(line, " read-tree ") {
			list = append(list, pid)
		}
	}
	return list
}
