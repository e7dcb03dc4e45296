//go:build linux

package command_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

func TestThisProjectInASandbox(t *testing.T) {
	t.Parallel()
	root := filepath.Dir(output(t, "go", "env", "GOMOD"))
	roots := t.TempDir()
	repo := filepath.Join(roots, "arbe.git")
	if out, err := exec.Command("git", "-c", "safe.directory=*", "clone", "--quiet", "--bare", "--no-local", root, repo).CombinedOutput(); err != nil {
		t.Skipf("this project is not in a git repository here: %s", out)
	}
	b := setup(t, roots)
	th := b.Thread(sandbox.Recipe{Repo: repo, Setup: "test -f go.mod", Limits: sandbox.Limits{MemoryMB: 2048, DiskMB: 1024}})
	goroot := output(t, "go", "env", "GOROOT")
	if !strings.HasPrefix(goroot, "/usr/") {
		t.Skip("boxes see the host's /usr, and Go is not installed there but at " + goroot)
	}
	env := "PATH=$PATH:" + goroot + "/bin GOTOOLCHAIN=local GOPROXY=off GOFLAGS= "
	// A package that imports little, because the box has nothing compiled, not even the standard library.
	if r := b.Sh(th, env+"go build ./internal/wait"); r.ExitCode != 0 || r.Error != "" {
		t.Errorf("go build: %+v", r)
	}
	if r := b.Sh(th, env+"go list ./internal/logging"); r.Output != "github.com/arbe-dev/arbe/internal/logging\n" {
		t.Errorf("go list: %+v", r)
	}
	if r := b.Sh(th, "git log -1 --format=%H"); strings.TrimSpace(r.Output) != output(t, "git", "-c", "safe.directory=*", "-C", repo, "rev-parse", "HEAD") {
		t.Errorf("git log: %+v", r)
	}
	prepared, ok := entry.As[entry.EnvironmentPrepared](b.Entries(th)[1])
	if !ok || len(prepared.Steps) != 2 || prepared.Steps[0].Name != "clone" || prepared.Steps[1].Name != "setup" {
		t.Errorf("the log has %s", b.Story(th))
	}
}

func output(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return strings.TrimSpace(string(out))
}
