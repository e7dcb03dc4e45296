//go:build linux

package local_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

// firstOutput is the command of the benchmarks.
var firstOutput = []string{"/bin/echo", "output"}

// compare measures a box and bare runc in turns. It reports both medians in milliseconds, and their ratio.
func compare(b *testing.B, ours, bare func(turn int) time.Duration) {
	b.Helper()
	compareAs(b, "box", "runc", ours, bare)
}

// compareAs is like compare, for any two things.
func compareAs(b *testing.B, one, other string, ours, bare func(turn int) time.Duration) {
	b.Helper()
	var mine, theirs []float64
	for turn := 0; b.Loop(); turn++ {
		mine = append(mine, ours(turn).Seconds()*1000)
		theirs = append(theirs, bare(turn).Seconds()*1000)
	}
	slices.Sort(mine)
	slices.Sort(theirs)
	m, t := mine[len(mine)/2], theirs[len(theirs)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(m, one+"-ms")
	b.ReportMetric(t, other+"-ms")
	b.ReportMetric(m/t, one+"/"+other)
}

func timed(do func()) time.Duration {
	begin := time.Now()
	do()
	return time.Since(begin)
}

// BenchmarkCreateToFirstOutput compares a command in a new box with runc's create, start and exec.
func BenchmarkCreateToFirstOutput(b *testing.B) {
	bundle := sandboxtest.BareRunc(b)
	for _, kind := range benched {
		b.Run(kind.name, func(b *testing.B) {
			d := kind.open(b, local.Config{Dir: b.TempDir()})
			defer closeDriver(b, d)
			createToFirstOutput(b, bundle, d, kind.spec)
		})
	}
}

// benched are boxes of a driver without a way out, and with one and the server's door.
var benched = []struct {
	name string
	open func(*testing.B, local.Config) *local.Driver
	spec sandbox.Spec
}{
	{"closed", func(b *testing.B, cfg local.Config) *local.Driver { return newDriver(b, cfg) }, sandbox.Spec{}},
	{"egress", reaching, sandbox.Spec{Egress: listed}},
}

// reaching opens a driver whose boxes can reach hosts and the server's door.
func reaching(b *testing.B, cfg local.Config) *local.Driver {
	cfg.Door = func(conn net.Conn, _ sandbox.Labels) { conn.Close() }
	return networked(b, cfg)
}

func createToFirstOutput(b *testing.B, bundle string, d *local.Driver, spec sandbox.Spec) {
	compare(b, func(turn int) time.Duration {
		var ref string
		took := timed(func() {
			var err error
			spec.ID = fmt.Sprint("bench-", turn)
			if ref, err = d.Create(b.Context(), spec); err != nil {
				b.Fatal(err)
			}
			execOnce(b, d, ref)
		})
		if err := d.Destroy(b.Context(), ref); err != nil {
			b.Fatal(err)
		}
		return took
	}, func(turn int) time.Duration {
		id := word(fmt.Sprint("bare-", turn))
		took := timed(func() {
			sandboxtest.Runc(b, "create", "--bundle", bundle, id)
			sandboxtest.Runc(b, "start", id)
			sandboxtest.Runc(b, append([]string{"exec", id}, firstOutput...)...)
		})
		sandboxtest.Runc(b, "delete", "--force", id)
		return took
	})
}

// BenchmarkExec compares a command in a running box with runc's exec: once a command that ends with its server, and
// once one that outlives it.
func BenchmarkExec(b *testing.B) {
	bundle, id := sandboxtest.BareRunc(b), word("bare")
	sandboxtest.Runc(b, "create", "--bundle", bundle, id)
	defer sandboxtest.Runc(b, "delete", "--force", id)
	sandboxtest.Runc(b, "start", id)
	bare := func(int) time.Duration {
		return timed(func() { sandboxtest.Runc(b, append([]string{"exec", id}, firstOutput...)...) })
	}
	for _, kind := range benched {
		d := kind.open(b, local.Config{Dir: b.TempDir()})
		defer closeDriver(b, d)
		kind.spec.ID = kind.name
		ref := create(b, d, kind.spec)
		b.Run("exec/"+kind.name, func(b *testing.B) {
			compare(b, func(int) time.Duration { return timed(func() { execOnce(b, d, ref) }) }, bare)
		})
		b.Run("launch/"+kind.name, func(b *testing.B) {
			compare(b, func(turn int) time.Duration {
				return timed(func() { launchOnce(b, d, ref, fmt.Sprint("bench-", turn)) })
			}, bare)
		})
	}
}

// launchOnce runs a command that outlives its server, and then forgets it.
func launchOnce(b *testing.B, d *local.Driver, ref, id string) {
	b.Helper()
	code, output := -1, ""
	err := d.Launch(b.Context(), ref, id, sandbox.Command{Argv: firstOutput})
	if err == nil {
		err = d.Follow(b.Context(), ref, id, 0, func(r sandbox.Record) error {
			output += string(r.Data)
			if r.Kind == sandbox.RecordExit {
				code = r.ExitCode
			}
			return nil
		})
	}
	if err = errors.Join(err, d.Forget(b.Context(), ref, id)); err != nil || code != 0 || output != "output\n" {
		b.Fatal(code, output, err)
	}
}

func execOnce(b *testing.B, d *local.Driver, ref string) {
	b.Helper()
	if result, err := d.Exec(b.Context(), ref, sandbox.Command{Argv: firstOutput}); err != nil || result.ExitCode != 0 {
		b.Fatal(result, err)
	}
}

// BenchmarkIdleBox measures the private memory of the processes of an idle box.
func BenchmarkIdleBox(b *testing.B) {
	const boxes = 10
	d := newDriver(b, local.Config{Dir: b.TempDir()})
	defer closeDriver(b, d)
	for b.Loop() {
		before := map[int]bool{}
		for _, pid := range pids(b) {
			before[pid] = true
		}
		var refs []string
		for i := range boxes {
			ref := create(b, d, sandbox.Spec{ID: fmt.Sprint("idle-", i)})
			execOnce(b, d, ref) // measure a box that was used, because the memory of a new one was never touched
			refs = append(refs, ref)
		}
		private, processes := 0, 0
		for _, pid := range pids(b) {
			if kb, ok := privateMemory(pid); ok && !before[pid] && isInBox(pid) {
				private, processes = private+kb, processes+1
			}
		}
		if processes < boxes {
			b.Fatalf("%d boxes have %d processes", boxes, processes)
		}
		b.ReportMetric(float64(private)/boxes, "private-KiB/box")
		b.ReportMetric(float64(processes)/boxes, "processes/box")
		for _, ref := range refs {
			if err := d.Destroy(b.Context(), ref); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// pids returns the processes of this machine.
func pids(b *testing.B) (list []int) {
	b.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// isInBox reports whether a process is in a different process namespace from this one.
func isInBox(pid int) bool {
	ours, err := os.Readlink("/proc/self/ns/pid")
	theirs, other := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err == nil && other == nil && ours != theirs
}

// privateMemory returns the memory that a process shares with no other, in KiB. ok is false if the process has ended.
func privateMemory(pid int) (kb int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		var n int
		for _, name := range []string{"Private_Clean:", "Private_Dirty:"} {
			if _, err := fmt.Sscanf(line, name+" %d kB", &n); err == nil {
				kb += n
			}
		}
	}
	return kb, err == nil && len(text) > 0
}
