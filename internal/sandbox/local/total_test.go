//go:build linux

package local_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

func TestAllBoxesTogetherHaveLimits(t *testing.T) {
	// pair makes two boxes. Each has limits close to the total for both together.
	pair := func(t *testing.T, total sandbox.Limits) (boxes []string, try func(ref, script string) string) {
		t.Helper()
		d := newDriver(t, local.Config{Dir: t.TempDir(), Total: total})
		t.Cleanup(func() { closeDriver(t, d) })
		if !d.Capabilities().MemoryLimit {
			t.Skip("this machine has no control groups for it")
		}
		for i := range 2 {
			boxes = append(boxes, create(t, d, sandbox.Spec{
				ID: word(fmt.Sprint("total-", i)), Limits: sandbox.Limits{MemoryMB: 180, PIDs: 110, CPUs: 2},
			}))
		}
		// A box without room for the script prints nothing.
		return boxes, func(ref, script string) string {
			var out bytes.Buffer
			_, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", script}, Stdout: &out, Timeout: time.Minute})
			if err != nil && fault.CodeOf(err) != fault.Exhausted {
				t.Errorf("%s", fault.From(err).Detail())
			}
			return out.String()
		}
	}
	t.Run("of memory", func(t *testing.T) {
		boxes, try := pair(t, sandbox.Limits{MemoryMB: 128})
		whole := 0 // one box can have 80 MB, but not both
		for _, ref := range boxes {
			try(ref, "head -c 80M /dev/zero > /dev/shm/f")
		}
		for _, ref := range boxes {
			whole += strings.Count(try(ref, "wc -c < /dev/shm/f"), "83886080")
		}
		if whole > 1 {
			t.Error("both got all they wanted")
		}
	})
	t.Run("of processes", func(t *testing.T) {
		boxes, try := pair(t, sandbox.Limits{PIDs: 130})
		const script = "for i in $(seq 80); do sleep 60 & done; echo started"
		if first, second := try(boxes[0], script), try(boxes[1], script); first != "started\n" || second == first {
			t.Errorf("the first started 80 processes: %q; the second started 80 more, of 130 together: %q", first, second)
		}
	})
	t.Run("of cores", func(t *testing.T) {
		boxes, try := pair(t, sandbox.Limits{CPUs: 0.5})
		begin := time.Now()
		said := make([]string, 2)
		var both sync.WaitGroup
		for i, ref := range boxes {
			both.Go(func() {
				said[i] = try(ref, "timeout 2 sh -c 'while :; do :; done'; cat /proc/$$/stat | cut -d' ' -f16,17")
			})
		}
		both.Wait()
		took, used := time.Since(begin), time.Duration(0)
		for _, text := range said {
			var user, system int
			if _, err := fmt.Sscan(text, &user, &system); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			used += time.Duration(user+system) * 10 * time.Millisecond
		}
		if used > took*8/10 {
			t.Errorf("they used %v of processor time in %v, with half a core", used, took)
		}
	})
}

func TestABoxStartsWhenAllBoxesMayHaveLessThanItHad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := newDriver(t, local.Config{Dir: dir, Total: sandbox.Limits{CPUs: 2, MemoryMB: 1024, PIDs: 1024}})
	ref := create(t, before, sandbox.Spec{ID: word("less"), Limits: sandbox.Limits{CPUs: 2, MemoryMB: 512, PIDs: 512}})
	closeDriver(t, before)
	after := newDriver(t, local.Config{Dir: dir, Total: sandbox.Limits{CPUs: 0.25, MemoryMB: 256, PIDs: 128}})
	defer closeDriver(t, after)
	if result, err := after.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"true"}}); err != nil || result.ExitCode != 0 {
		t.Errorf("a command in it: %+v, %v", result, err)
	}
}

// TestSocketsOfABoxHaveALimit is not parallel: it measures the machine.
func TestSocketsOfABoxHaveALimit(t *testing.T) {
	needRoot(t)
	d := newDriver(t, local.Config{Dir: t.TempDir()})
	defer closeDriver(t, d)
	if !d.Capabilities().MemoryLimit {
		t.Skip("the machine limits no memory")
	}
	ref := create(t, d, sandbox.Spec{ID: word("sockets"), Limits: sandbox.Limits{MemoryMB: 256}})
	const script = `
use Socket; $text = "x" x 8000;
for (1 .. 4000) {
	socket(my $to, PF_INET, SOCK_DGRAM, 0); bind($to, sockaddr_in(0, INADDR_LOOPBACK)); push @all, $to;
	socket(my $from, PF_INET, SOCK_DGRAM, 0);
	send($from, $text, 0, getsockname $to) for 1 .. 25;
}
open my $f, "<", "/proc/net/sockstat"; print /mem (\d+)/ for grep /^UDP:/, <$f>;`
	out := sh(t, d, ref, "perl -e '"+script+"'")
	pages, err := strconv.Atoi(out)
	if held := pages * os.Getpagesize() >> 20; err != nil || held > 256 {
		t.Errorf("unread messages take %d MiB of a box with 256 MiB (%q, %v)", held, out, err)
	}
}
