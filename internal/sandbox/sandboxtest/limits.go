//go:build linux

package sandboxtest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// limits: a box's resources are limited, reaching a limit is an error inside, and the box works afterwards.
func limits(s *suite, t *testing.T) {
	b := s.newBox(t, sandbox.Limits{MemoryMB: 128, DiskMB: 32, PIDs: 64, CPUs: 0.5})
	usable := func(t *testing.T) {
		t.Helper()
		if got := b.sh(t, "/bin/echo usable | cat"); got.stdout != "usable\n" {
			t.Errorf("the box is not usable afterwards: %+v", got)
		}
	}
	t.Run("a fork bomb ends with its time limit", func(t *testing.T) {
		need(t, s.guarantees.MemoryLimit, "process limit")
		got := b.run(t, sandbox.Command{Argv: []string{"perl", "-e", "while (1) { fork }"}, Timeout: time.Second / 2})
		if !got.TimedOut || got.ExitCode != 124 {
			t.Errorf("%+v, want a time-out", got.Result)
		}
		usable(t)
	})
	t.Run("a fork bomb left in the background does not lock anyone out", func(t *testing.T) {
		need(t, s.guarantees.MemoryLimit, "process limit")
		need(t, s.guarantees.OutlastsLeftovers, "a box outlasts what is left in it")
		b.run(t, sandbox.Command{Argv: []string{"perl", "-e", "exit if fork; while (1) { fork }"}})
		b.sh(t, "kill -9 -1")
		usable(t)
	})
	t.Run("a memory bomb is killed and reported", func(t *testing.T) {
		need(t, s.guarantees.MemoryLimit, "memory limit")
		got := b.sh(t, `exec perl -e 'while (1) { push @a, "x" x (1 << 20) }'`)
		if got.ExitCode != 137 || !got.OutOfMemory {
			t.Errorf("%+v, want exit code 137 for want of memory", got.Result)
		}
		usable(t)
	})
	t.Run("an ordinary failure is not reported as want of memory", func(t *testing.T) {
		if got := b.sh(t, "kill -9 $$"); got.OutOfMemory {
			t.Errorf("%+v", got.Result)
		}
	})
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		t.Run(dir+" fills up", func(t *testing.T) {
			need(t, s.guarantees.MemoryLimit, "memory limit")
			got := b.sh(t, "head -c 256M /dev/zero > "+dir+"/big; code=$?; rm "+dir+"/big; exit $code")
			if got.ExitCode == 0 {
				t.Error("256 MiB fit into a box of 128")
			}
			usable(t)
		})
	}
	t.Run("what fills memory without a process leaves room for commands", func(t *testing.T) {
		need(t, s.guarantees.MemoryLimit, "memory limit")
		need(t, s.guarantees.OutlastsLeftovers, "a box outlasts what is left in it")
		fill := map[string]string{
			"/tmp and /dev/shm":         "cat /dev/zero > /tmp/big; cat /dev/zero > /dev/shm/big; true",
			"empty files":               `perl -e 'for my $d ("/tmp/many", "/dev/shm/many") { mkdir $d; $n = 0; while (open my $f, ">", "$d/" . ("x" x 200) . $n++) {} }'`,
			"System V shared memory":    `perl -e 'while (defined(my $id = shmget(0, 1 << 20, 0600))) { shmwrite($id, "x" x (1 << 20), 0, 1 << 20) or last }'`,
			"System V message queues":   `perl -e 'while (defined(my $id = msgget(0, 0600))) { 1 while msgsnd($id, pack("l! a*", 1, "x" x 8000), 04000) }'`,
			"System V semaphores":       `perl -e 'while (defined(my $id = semget(0, 30000, 0600))) {} while (defined(my $id = semget(0, 1, 0600))) {}'`,
			"extended attributes":       fmt.Sprintf(`perl -e 'open F, ">", "/tmp/attributed"; for (1 .. 100000) { syscall(%d, my $p = "/tmp/attributed", my $n = "user.$_", my $v = "x" x 60000, 60000, 0) == 0 or last }'`, unix.SYS_SETXATTR),
			"and a process on top then": `perl -e 'my $x = "x" x (16 << 20); print length $x'`,
		}
		for _, name := range slices.Sorted(maps.Keys(fill)) {
			t.Run(name, func(t *testing.T) {
				b.run(t, sandbox.Command{Argv: []string{"sh", "-c", fill[name]}, Timeout: 20 * time.Second})
				usable(t)
			})
		}
		got := b.sh(t, `perl -e 'my $x = "x" x (8 << 20); print length $x'`)
		if got.stdout != fmt.Sprint(8<<20) || got.OutOfMemory {
			t.Errorf("a process of 8 MiB: %+v", got)
		}
		b.sh(t, "ipcrm -a; rm -rf /tmp/* /dev/shm/*")
	})
	t.Run("the disk fills up with a clear error", func(t *testing.T) {
		need(t, s.guarantees.DiskLimit, "disk limit")
		got := b.sh(t, "head -c 256M /dev/zero > /workspace/big")
		if got.ExitCode == 0 || !strings.Contains(got.stderr, "No space left on device") {
			t.Errorf("exit code %d, stderr %q", got.ExitCode, got.stderr)
		}
		err := b.driver.Upload(t.Context(), b.ref, "more", 0o644, strings.NewReader(strings.Repeat("x", 1<<20)))
		wantCode(t, err, fault.Exhausted)
		if got := b.sh(t, "rm big && echo room > f && cat f"); got.stdout != "room\n" {
			t.Errorf("after deleting: %+v", got)
		}
	})
	t.Run("the disk runs out of files", func(t *testing.T) {
		need(t, s.guarantees.DiskLimit, "disk limit")
		got := b.sh(t, "mkdir many && cd many && for i in $(seq 1 20000); do : > $i || exit 1; done")
		if got.ExitCode == 0 {
			t.Error("20,000 files fit onto a disk of 32 MiB")
		}
		b.sh(t, "rm -rf many")
		usable(t)
	})
	t.Run("descriptors run out inside only", func(t *testing.T) {
		got := b.sh(t, `perl -e 'while (open my $f, "<", "/dev/null") { push @f, $f } print "stopped\n"'`)
		if got.stdout != "stopped\n" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a busy loop gets its share of a core", func(t *testing.T) {
		need(t, s.guarantees.MemoryLimit, "limit of cores")
		got := b.sh(t, `perl -e '$end = time + 2; 1 while time < $end; print int(100 * (times)[0] / 2)'`)
		percent, err := strconv.Atoi(got.stdout)
		if err != nil || percent > 80 {
			t.Errorf("%q percent of a core (%v), want about 50", got.stdout, err)
		}
	})
	t.Run("no core dumps", func(t *testing.T) {
		if got := b.sh(t, "ulimit -c"); got.stdout != "0\n" {
			t.Errorf("limit %q", got.stdout)
		}
	})
	t.Run("a limit of zero is the driver's default, not none", func(t *testing.T) {
		need(t, s.guarantees.DiskLimit, "disk limit")
		d := s.newBox(t, sandbox.Limits{})
		if got := d.sh(t, "df -m --output=size /workspace | tail -1"); strings.TrimSpace(got.stdout) == "" || got.ExitCode != 0 {
			t.Errorf("%+v", got)
		} else if host := fmt.Sprint(1 << 20); len(strings.TrimSpace(got.stdout)) >= len(host) {
			t.Errorf("the working tree has %s MiB", got.stdout)
		}
	})
}
