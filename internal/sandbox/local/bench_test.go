//go:build linux

package local_test

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// firstOutput is the command of the benchmarks.
var firstOutput = []string{"/bin/echo", "output"}

func bare(b *testing.B) {
	for b.Loop() {
		if _, err := exec.Command(firstOutput[0], firstOutput[1:]...).Output(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCreateToFirstOutput compares a command in a box that has to be made with the bare command.
func BenchmarkCreateToFirstOutput(b *testing.B) {
	b.Run("bare", bare)
	b.Run("box", func(b *testing.B) {
		d := newDriver(b, local.Config{Dir: b.TempDir()})
		defer closeDriver(b, d)
		n := 0
		for b.Loop() {
			n++
			ref, err := d.Create(b.Context(), sandbox.Spec{ID: fmt.Sprint("bench-", n)})
			if err != nil {
				b.Fatal(err)
			}
			execOnce(b, d, ref)
			b.StopTimer()
			if err := d.Destroy(b.Context(), ref); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

// BenchmarkExec compares a command in a box that runs with the bare command.
func BenchmarkExec(b *testing.B) {
	b.Run("bare", bare)
	b.Run("box", func(b *testing.B) {
		d := newDriver(b, local.Config{Dir: b.TempDir()})
		defer closeDriver(b, d)
		ref := create(b, d, sandbox.Spec{ID: "bench"})
		for b.Loop() {
			execOnce(b, d, ref)
		}
	})
}

func execOnce(b *testing.B, d *local.Driver, ref string) {
	b.Helper()
	if result, err := d.Exec(b.Context(), ref, sandbox.Command{Argv: firstOutput}); err != nil || result.ExitCode != 0 {
		b.Fatal(result, err)
	}
}
