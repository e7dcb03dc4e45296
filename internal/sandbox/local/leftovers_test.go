//go:build linux

package local_test

import (
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// TestWhatCommandsLeaveCostsTheServerLittle is not parallel: it measures this process.
func TestWhatCommandsLeaveCostsTheServerLittle(t *testing.T) {
	needRoot(t)
	const (
		left      = 200
		waitedFor = 8
		mostFiles = 300
		mostTime  = 1500 * time.Millisecond // of processor time in 3 seconds
	)
	d := newDriver(t, local.Config{Dir: t.TempDir()})
	defer closeDriver(t, d)
	ref := create(t, d, sandbox.Spec{ID: word("left"), Limits: sandbox.Limits{PIDs: 512}})
	together := func(n int, argv ...string) {
		t.Helper()
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				if r, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: argv}); err != nil || r.ExitCode != 0 {
					t.Errorf("%q: %+v, %v", argv, r, err)
				}
			})
		}
		all.Wait()
	}
	files := func() int {
		list, _ := os.ReadDir("/proc/self/fd")
		return len(list)
	}
	before := files()
	for range left / 20 {
		together(20, "sh", "-c", "sleep 1000 &")
	}
	if n := files() - before; n > mostFiles {
		t.Errorf("%d leftovers take %d files", left, n)
	}
	begin := processorTime(t)
	together(waitedFor, "sleep", "3")
	if spent := processorTime(t) - begin; spent > mostTime {
		t.Errorf("%d leftovers and %d commands took %v of the processor", left, waitedFor, spent)
	}
	if out := sh(t, d, ref, "pgrep -c sleep; pkill sleep"); out != "200\n" {
		t.Errorf("of %d leftovers there are %s", left, out)
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
