//go:build linux

package local_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

func TestProcessesSurviveADriverThatClosesAndOpensAgain(t *testing.T) {
	dir := t.TempDir()
	sandboxtest.RunSurvival(t, func(t *testing.T) sandbox.Driver {
		return newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	})
}

func TestLaunchedCommandsSurvive(t *testing.T) {
	dir := t.TempDir()
	sandboxtest.RunLaunches(t, func(t *testing.T) sandbox.Launcher {
		return newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	})
}

func TestALaunchedCommandOfABoxThatEndedReadsAsKilled(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir})
	ref := create(t, d, sandbox.Spec{ID: word("killed")})
	if err := d.Launch(t.Context(), ref, "one", sandbox.Command{Argv: []string{"sh", "-c", "echo begun; sleep 5000"}}); err != nil {
		t.Fatal(err)
	}
	follow := func(to func(sandbox.Record) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := d.Follow(ctx, ref, "one", 0, to); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}
	begun, ended := make(chan struct{}), make(chan int, 1)
	go func() {
		code := -1
		_ = d.Follow(context.Background(), ref, "one", 0, func(r sandbox.Record) error {
			if r.Kind == sandbox.RecordStdout {
				close(begun)
			}
			if r.Kind == sandbox.RecordExit {
				code = r.ExitCode
			}
			return nil
		})
		ended <- code
	}()
	<-begun
	closeDriver(t, d) // without a grace
	if code := <-ended; code != 137 {
		t.Errorf("while it was followed: exit code %d", code)
	}
	d = newDriver(t, local.Config{Dir: dir})
	defer closeDriver(t, d)
	follow(func(r sandbox.Record) error {
		if r.Kind == sandbox.RecordExit && (r.ExitCode != 137 || !r.BoxEnded) {
			t.Errorf("by the next driver: %+v", r)
		}
		return nil
	})
}

// halt closes a driver so that nothing goes on.
func halt(t *testing.T, d *local.Driver) {
	t.Helper()
	if err := d.Halt(context.Background()); err != nil {
		t.Errorf("halt: %s", fault.From(err).Detail())
	}
}

func TestProcessesSurviveAKilledServer(t *testing.T) {
	dir, id := t.TempDir(), word("survivor")
	t.Setenv("ARBE_TEST_GRACE", "1m")
	startAndKill(t, dir, id)
	// A server of another directory leaves alone what waits for its own.
	other := newDriver(t, local.Config{Dir: t.TempDir(), Grace: time.Minute})
	closeDriver(t, other)
	if running := traces(t, id); !strings.Contains(running, "process sh") {
		t.Fatalf("nothing survived:\n%s", running)
	}
	d := newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	ref := found(t, d, id)
	if got := sh(t, d, ref, "cat f; ps ax | grep -c 'sleep [5]000; :'"); got != "written\n1\n" {
		t.Errorf("in the box: %q", got)
	}
	if err := d.Destroy(t.Context(), ref); err != nil {
		t.Error(fault.From(err).Detail())
	}
	if left := traces(t, id); left != "" {
		t.Errorf("destroyed, and this is left:\n%s", left)
	}
	halt(t, d)
	if left := traces(t, filepath.Base(filepath.Dir(dir))); left != "" {
		t.Errorf("halted, and this is left:\n%s", left)
	}
}

func TestABoxDoesNotSurviveItsServerForEver(t *testing.T) {
	dir, id := t.TempDir(), word("forsaken")
	t.Setenv("ARBE_TEST_GRACE", "1s")
	startAndKill(t, dir, id)
	for deadline := time.Now().Add(patience); strings.Contains(traces(t, id), "process sh"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still running:\n%s", traces(t, id))
		}
	}
	d := newDriver(t, local.Config{Dir: dir, Grace: time.Second})
	if got := sh(t, d, found(t, d, id), "cat f; ps ax | grep -c '[s]leep 5000'"); got != "written\n0\n" {
		t.Errorf("in the box: %q", got)
	}
	halt(t, d)
}

func TestHaltingLeavesNothingRunning(t *testing.T) {
	dir, id := t.TempDir(), word("halted")
	d := newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	ref := create(t, d, sandbox.Spec{ID: id})
	if err := d.Start(t.Context(), ref, sandbox.Command{Argv: []string{"sleep", "5000"}}); err != nil {
		t.Fatal(err)
	}
	halt(t, d)
	if left := traces(t, id); left != "" {
		t.Errorf("halted, and this is left:\n%s", left)
	}
}
