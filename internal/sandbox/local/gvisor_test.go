//go:build linux

package local_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

// newGVisor opens a driver that uses gVisor, if gVisor is installed.
func newGVisor(t *testing.T) *local.Driver {
	t.Helper()
	needRoot(t)
	runsc, err := exec.LookPath("runsc")
	if err != nil {
		t.Skip("gVisor's runsc is not installed")
	}
	d, err := local.New(t.Context(), local.Config{Dir: t.TempDir(), Runtime: runsc, Limits: sandbox.Limits{DiskMB: 96}})
	if err != nil && strings.Contains(err.Error(), "install a newer one") {
		t.Skip(fault.From(err).Detail())
	}
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return d
}

func TestConformanceOfGVisor(t *testing.T) {
	d := newGVisor(t)
	sandboxtest.Run(t, true, func(*testing.T) sandbox.Driver { return d })
}

func TestFilesOutliveAServerWithGVisor(t *testing.T) {
	d, dir := newGVisor(t), t.TempDir()
	closeDriver(t, d)
	open := func() *local.Driver { return newDriver(t, local.Config{Dir: dir, Runtime: "runsc"}) }
	d = open()
	id := word("kept-apart")
	ref := create(t, d, sandbox.Spec{ID: id})
	sh(t, d, ref, "echo workspace > f; echo temporary > /tmp/f; "+named(id)+" &")
	closeDriver(t, d)
	if left := traces(t, id); left != "" {
		t.Errorf("closed, and this is left:\n%s", left)
	}
	d = open()
	if got := sh(t, d, ref, "cat f; ls /tmp"); got != "workspace\n" {
		t.Errorf("found %q", got)
	}
	if err := d.Destroy(t.Context(), ref); err != nil {
		t.Error(fault.From(err).Detail())
	}
	closeDriver(t, d)
	if left := traces(t, id); left != "" {
		t.Errorf("deleted, and this is left:\n%s", left)
	}
}

func TestAKilledServerWithGVisor(t *testing.T) {
	closeDriver(t, newGVisor(t))
	dir, id := t.TempDir(), word("victim-apart")
	t.Setenv("ARBE_TEST_RUNTIME", "runsc")
	startAndKill(t, dir, id)
	d := newDriver(t, local.Config{Dir: dir, Runtime: "runsc"})
	if left := traces(t, id); left != "" {
		t.Errorf("the next server leaves:\n%s", left)
	}
	if got := sh(t, d, found(t, d, id), "cat f"); got != "written\n" {
		t.Errorf("found %q", got)
	}
	if err := d.Destroy(t.Context(), found(t, d, id)); err != nil {
		t.Error(fault.From(err).Detail())
	}
	closeDriver(t, d)
}

func TestARuntimeThatTheMachineDoesNotSuitIsNamed(t *testing.T) {
	needRoot(t)
	crun, err := exec.LookPath("crun")
	if err != nil {
		t.Skip("crun is not installed")
	}
	if _, err := os.Stat("/sys/fs/cgroup/unified/cgroup.procs"); err != nil {
		t.Skip("crun refuses hybrid control groups only, and this machine has others")
	}
	_, err = local.New(t.Context(), local.Config{Dir: t.TempDir(), Runtime: crun})
	if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), crun) || !strings.Contains(err.Error(), "hybrid") {
		t.Errorf("%v", err)
	}
}
