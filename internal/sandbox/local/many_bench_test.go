//go:build linux

package local_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

// large is the disk of an environment without limits, and modest one that holds less of the machine's disk while it runs.
var large, modest = sandbox.Limits{DiskMB: 10_240}, sandbox.Limits{DiskMB: 64}

// BenchmarkStoppedBox measures what a box costs while it runs idle and after it was stopped, and how long its next command takes,
// beside a new container of bare runc. It also reports how many such boxes run at once on 30 GB of free disk.
func BenchmarkStoppedBox(b *testing.B) {
	needRoot(b)
	const boxes = 5
	bundle := sandboxtest.BareRunc(b)
	var starts, bare []float64
	var running, stopped int64
	turns := 0
	for b.Loop() {
		cfg := local.Config{Dir: b.TempDir(), FreeMB: 64}
		d := reaching(b, cfg)
		haltIfFailed(b, d)
		for i := range boxes {
			ref := create(b, d, sandbox.Spec{ID: fmt.Sprint("box-", i), Limits: large, Egress: listed})
			if got := sh(b, d, ref, "echo work > f; cat f"); got != "work\n" {
				b.Fatal(got)
			}
		}
		running += blocks(b, cfg.Dir, boxes)
		if err := d.Halt(context.Background()); err != nil {
			b.Fatal(err)
		}
		stopped += blocks(b, cfg.Dir, boxes)
		d = reaching(b, cfg)
		for i := range boxes {
			ref := found(b, d, fmt.Sprint("box-", i))
			starts = append(starts, timed(func() { execOnce(b, d, ref) }).Seconds()*1000)
			id := word(fmt.Sprint("bare-", i))
			bare = append(bare, timed(func() {
				sandboxtest.Runc(b, "create", "--bundle", bundle, id)
				sandboxtest.Runc(b, "start", id)
				sandboxtest.Runc(b, append([]string{"exec", id}, firstOutput...)...)
			}).Seconds()*1000)
			sandboxtest.Runc(b, "delete", "--force", id)
		}
		if err := d.Halt(context.Background()); err != nil {
			b.Fatal(err)
		}
		turns++
	}
	b.ReportMetric(0, "ns/op")
	held := float64(running) / float64(turns*boxes)
	b.ReportMetric(held/1024, "running-KiB/box")
	b.ReportMetric((30e9-2048<<20)/held, "running-boxes/30GB")
	b.ReportMetric(float64(stopped)/float64(turns*boxes)/1024, "stopped-KiB/box")
	b.ReportMetric(median(starts), "start-ms")
	b.ReportMetric(median(bare), "runc-ms")
	b.ReportMetric(median(starts)/median(bare), "start/runc")
}

// haltIfFailed ends the boxes of a benchmark that fails, because they hold much of the machine's disk.
func haltIfFailed(b *testing.B, d *local.Driver) {
	b.Cleanup(func() {
		if b.Failed() {
			_ = d.Halt(context.Background()) // it may have been halted
		}
	})
}

// blocks returns the bytes that the disks of boxes take up together.
func blocks(b *testing.B, dir string, boxes int) (sum int64) {
	b.Helper()
	for i := range boxes {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "boxes", fmt.Sprint("box-", i), "disk.ext4"), &st); err != nil {
			b.Skip("boxes have no disks here: ", err)
		}
		sum += st.Blocks * 512
	}
	return sum
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkHundredBoxes runs 100 boxes with modest disks side by side, each with a process in the background. It measures how long each takes to
// create, how long a command takes in one of them beside a command in a single box, and how much of the machine's free disk each
// takes: while all run, and after they were stopped.
func BenchmarkHundredBoxes(b *testing.B) {
	needRoot(b)
	const boxes = 100
	dir := ""
	free := func() int64 {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			b.Fatal(err)
		}
		return int64(st.Bavail) * st.Bsize
	}
	for b.Loop() {
		dir = b.TempDir()
		if free() < 10<<30 {
			b.Skip("this machine has less than 10 GiB of free disk")
		}
		d := reaching(b, local.Config{Dir: dir, FreeMB: 2048, Running: boxes})
		haltIfFailed(b, d)
		single := create(b, d, sandbox.Spec{ID: "single", Limits: modest, Egress: listed})
		execs := func(refs ...string) (list []float64) {
			for range 20 {
				for _, ref := range refs {
					list = append(list, timed(func() { execOnce(b, d, ref) }).Seconds()*1000)
				}
			}
			return list
		}
		alone := execs(single)
		if err := d.Destroy(b.Context(), single); err != nil {
			b.Fatal(err)
		}
		before := free()
		refs := make([]string, boxes)
		var all sync.WaitGroup
		took := timed(func() {
			for i := range refs {
				all.Go(func() {
					refs[i] = create(b, d, sandbox.Spec{ID: fmt.Sprint("box-", i), Limits: modest, Egress: listed})
					sh(b, d, refs[i], "sleep 1000 >/dev/null 2>&1 & echo work > f")
				})
			}
			all.Wait()
		})
		if n := d.Running(); n != boxes {
			b.Fatalf("%d run", n)
		}
		running := before - free()
		together := execs(refs[:5]...)
		if err := d.Halt(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(took.Seconds()*1000/boxes, "create-ms/box")
		b.ReportMetric(float64(running)/boxes/(1<<20), "running-disk-MiB/box")
		b.ReportMetric(float64(blocks(b, dir, boxes))/boxes/(1<<20), "stopped-disk-MiB/box")
		b.ReportMetric(median(together), "exec-ms")
		b.ReportMetric(median(together)/median(alone), "exec/exec-in-one")
	}
	b.ReportMetric(0, "ns/op")
}
