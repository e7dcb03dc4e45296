//go:build linux

package local_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// The tests in this file write a gigabyte each. They run one after another, so that a machine with little free disk has
// room.

// withDisks opens a driver whose boxes have disks.
func withDisks(t *testing.T, cfg local.Config) *local.Driver {
	t.Helper()
	d := newDriver(t, cfg)
	if !d.Capabilities().DiskLimit {
		closeDriver(t, d)
		t.Skip("boxes have no disks here")
	}
	return d
}

// A box with a large disk uses only the space of its files and a window. It can fill its whole disk.
func TestALargeDiskTakesWhatIsInIt(t *testing.T) {
	needRoot(t)
	cfg := local.Config{Dir: t.TempDir(), FreeMB: 64}
	d := withDisks(t, cfg)
	defer func() { halt(t, d) }()
	box := create(t, d, sandbox.Spec{ID: "large", Limits: sandbox.Limits{DiskMB: 20_000}})
	if mb := taken(t, cfg.Dir, "large"); mb > 700 {
		t.Errorf("an empty one takes %d MiB", mb)
	}
	if got := sh(t, d, box, "dd if=/dev/zero of=f bs=1M count=600 2>&1 | tail -n1; wc -c < f; ls"); !strings.Contains(got, "629145600\nf\n") {
		t.Errorf("the command printed %q", got)
	}
	if mb := taken(t, cfg.Dir, "large"); mb < 600 || mb > 2500 {
		t.Errorf("with 600 MiB in it, it takes %d MiB", mb)
	}
	sh(t, d, box, "rm f")
	halt(t, d)
	if mb := taken(t, cfg.Dir, "large"); mb > 30 {
		t.Errorf("stopped and empty, it takes %d MiB", mb)
	}
	d = withDisks(t, cfg)
	box = found(t, d, "large")
	if got := sh(t, d, box, "dd if=/dev/zero of=g bs=1M count=300 2>/dev/null; wc -c < g; echo kept > h; sync"); got != "314572800\n" {
		t.Errorf("started again, the command printed %q", got)
	}
	halt(t, d)
	d = withDisks(t, cfg)
	if got := sh(t, d, found(t, d, "large"), "tr -d '\\0' < g | wc -c; wc -c < g; cat h"); got != "0\n314572800\nkept\n" {
		t.Errorf("after a stop, the command printed %q", got)
	}
}

func TestABoxFillsItsOwnDisk(t *testing.T) {
	needRoot(t)
	d := withDisks(t, local.Config{Dir: t.TempDir(), FreeMB: 64})
	defer func() { halt(t, d) }()
	box := create(t, d, sandbox.Spec{ID: "filled", Limits: sandbox.Limits{DiskMB: 1200}})
	for range 2 { // again after it was emptied
		got := sh(t, d, box, "dd if=/dev/zero of=f bs=1M 2>&1 | grep -o 'No space left on device'; expr $(wc -c < f) / 1048576; rm f")
		var mb int
		if _, err := fmt.Sscanf(got, "No space left on device\n%d\n", &mb); err != nil || mb < 1100 {
			t.Errorf("it fills %d MiB of 1,200: %q", mb, got)
		}
	}
	if got := sh(t, d, box, "perl -e 'open F, \">p\"; $r = syscall(285, fileno(F), 0, 0, 1 << 30); print $!'; python3 -c 'import os; f = os.open(\"q\", os.O_CREAT | os.O_RDWR); os.posix_fallocate(f, 0, 1 << 30)' && wc -c < q"); !strings.Contains(got, "not supported") || !strings.Contains(got, "1073741824") {
		t.Errorf("allocating ahead printed %q", got)
	}
}

// Another program fills the machine's disk. A box can still write as much as its file system reports as free. Then its
// disk is full, and it gets no other error.
func TestNoBoxBreaksOnAFullMachine(t *testing.T) {
	disk := smallDisk(t, 1800)
	dir := filepath.Join(disk, "data")
	d := withDisks(t, local.Config{Dir: dir, FreeMB: 64})
	defer func() { halt(t, d) }()
	limits := sandbox.Limits{DiskMB: 8000}
	boxes := []string{create(t, d, sandbox.Spec{ID: "a", Limits: limits}), create(t, d, sandbox.Spec{ID: "b", Limits: limits})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	printed := make(chan string, len(boxes))
	// Each file is its number and the same noise, because new noise for each would take longer than all writing.
	const write = `head -c 16M /dev/urandom > /tmp/noise; file() { echo $1; cat /tmp/noise; }
		i=0; while file $i | dd of=f$i bs=1M iflag=fullblock conv=fsync 2>err; do i=$((i+1)); done; cat err; rm -f f$i
		sync; for n in $(seq 0 $((i-1))); do file $n | cmp - f$n || exit; done; test $i -gt 10 && echo whole`
	for _, box := range boxes { // they write while the machine's disk is filled
		go func() {
			printed <- sh(t, d, box, write)
		}()
	}
	var st unix.Statfs_t
	for unix.Statfs(disk, &st) == nil && int64(st.Bavail)*st.Bsize > 500<<20 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	filler, err := os.Create(filepath.Join(disk, "filler")) // all at once
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Statfs(disk, &st)
	_ = unix.Fallocate(int(filler.Fd()), 0, 0, int64(st.Bavail)*st.Bsize)
	filler.Close()
	_ = exec.Command("dd", "if=/dev/zero", "of="+filler.Name()+"2", "bs=1M").Run()
	for range boxes {
		got := <-printed
		if !strings.Contains(got, "No space left on device") || strings.Contains(got, "Input/output error") || !strings.HasSuffix(got, "whole\n") {
			t.Errorf("the command printed %q", got)
		}
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	for _, box := range boxes { // and each continues when there is space again
		if got := sh(t, d, box, "for i in 1 2 3 4 5 6 7 8 9 10; do dd if=/dev/zero of=more bs=1M count=300 2>/dev/null && break; sleep 1; done; wc -c < more; rm -f more f*"); got != "314572800\n" {
			t.Errorf("afterwards, the command printed %q", got)
		}
	}
}

// On a machine with 3 GB free and the default floor of 2 GiB, a box runs and fills its disk. The free space of the machine never
// falls below the floor, however fast boxes grow.
func TestTheFloorOfTheMachineIsKept(t *testing.T) {
	disk := smallDisk(t, 3000)
	const floor = 2048 << 20
	d := withDisks(t, local.Config{Dir: filepath.Join(disk, "data")})
	defer func() { halt(t, d) }()
	free := func() int64 {
		var st unix.Statfs_t
		if err := unix.Statfs(disk, &st); err != nil {
			t.Error(err)
		}
		return int64(st.Bavail) * st.Bsize
	}
	first := create(t, d, sandbox.Spec{ID: "first", Limits: sandbox.Limits{DiskMB: 10_240}})
	if got := sh(t, d, first, "echo hi; echo hi > f && cat f"); got != "hi\nhi\n" {
		t.Fatalf("the command printed %q", got)
	}
	second := create(t, d, sandbox.Spec{ID: "second"})
	done := make(chan struct{})
	least := make(chan int64)
	go func() {
		low := free()
		for look := time.NewTicker(time.Millisecond); ; {
			select {
			case <-done:
				look.Stop()
				least <- low
				return
			case <-look.C:
				low = min(low, free())
			}
		}
	}()
	const fill = "dd if=/dev/zero of=f bs=1M 2>&1 | grep -o 'No space left on device'; expr $(wc -c < f) / 1048576"
	printed := make(chan string)
	go func() { printed <- sh(t, d, second, fill) }()
	var mb int
	got := sh(t, d, first, fill)
	if _, err := fmt.Sscanf(got, "No space left on device\n%d\n", &mb); err != nil || mb < 100 {
		t.Errorf("the large box printed %q", got)
	}
	if got := <-printed; !strings.HasPrefix(got, "No space left on device\n") {
		t.Errorf("the small box printed %q", got)
	}
	close(done)
	if low := <-least; low < floor {
		t.Errorf("the machine's free space fell to %d MiB, and %d MiB must stay free", low>>20, floor>>20)
	}
	if _, err := d.Create(t.Context(), sandbox.Spec{ID: "third", Limits: sandbox.Limits{DiskMB: 10_240}}); fault.CodeOf(err) != fault.Exhausted {
		t.Errorf("another box: %v", err)
	}
}

// Many boxes run on a machine without enough space for all that they may use.
func TestManyBoxesRunOnLittleDisk(t *testing.T) {
	disk := smallDisk(t, 6000)
	dir := filepath.Join(disk, "data")
	d := withDisks(t, local.Config{Dir: dir, FreeMB: 64})
	defer func() { halt(t, d) }()
	for i := range 12 { // a background process keeps each from being stopped
		box, err := d.Create(t.Context(), sandbox.Spec{ID: fmt.Sprint("box", i)})
		if err != nil {
			t.Fatalf("the box %d of 10 GiB: %s", i, fault.From(err).Detail())
		}
		sh(t, d, box, "sleep 1000 >/dev/null 2>&1 & echo hi > f")
	}
	if n := d.Running(); n != 12 {
		t.Errorf("%d run", n)
	}
}

// The window of a box that outlives its server is widened ahead, and later by the next server.
func TestAWindowOutlivesTheServer(t *testing.T) {
	needRoot(t)
	cfg := local.Config{Dir: t.TempDir(), FreeMB: 64, Grace: patience}
	d := withDisks(t, cfg)
	box := create(t, d, sandbox.Spec{ID: "kept", Limits: sandbox.Limits{DiskMB: 8000}})
	sh(t, d, box, "mkfifo /tmp/go; (read x < /tmp/go; dd if=/dev/zero of=f bs=1M count=500 2>/dev/null; touch done; sleep 1000) > /dev/null 2>&1 &")
	files := filepath.Join(cfg.Dir, "boxes", "kept", "disk.ext4")
	var before, after unix.Stat_t
	if err := unix.Stat(files, &before); err != nil {
		t.Fatal(err)
	}
	closeDriver(t, d)
	if err := unix.Stat(files, &after); err != nil || after.Blocks-before.Blocks < 900<<20/512 {
		t.Errorf("without a server, %d more bytes are held (%v)", (after.Blocks-before.Blocks)*512, err)
	}
	d = withDisks(t, cfg)
	defer func() { halt(t, d) }()
	if got := sh(t, d, box, "echo > /tmp/go; until test -e done; do sleep 0.1; done; wc -c < f; dd if=/dev/zero of=g bs=1M count=700 2>/dev/null; wc -c < g"); got != "524288000\n734003200\n" {
		t.Errorf("the command printed %q", got)
	}
}

// A box that fragments its free space costs the server little time, and continues to work.
func TestATornDisk(t *testing.T) {
	needRoot(t)
	cfg := local.Config{Dir: t.TempDir(), FreeMB: 64}
	d := withDisks(t, cfg)
	defer func() { halt(t, d) }()
	box := create(t, d, sandbox.Spec{ID: "torn", Limits: sandbox.Limits{DiskMB: 1200}})
	// Every second file is deleted. Each has one block.
	sh(t, d, box, `perl -e 'for $i (0..40_000) { mkdir int($i / 1000) if $i % 1000 == 0; open F, ">", int($i / 1000)."/$i"; print F "x" x 4096; close F } for $i (0..40_000) { unlink int($i / 1000)."/$i" if $i % 2 }'; sync; dd if=/dev/zero of=rest bs=1M 2>/dev/null; rm rest; sync`)
	halt(t, d)
	began := time.Now()
	d = withDisks(t, cfg)
	if got := sh(t, d, found(t, d, "torn"), "ls 0 | wc -l; dd if=/dev/zero of=more bs=1M count=300 2>/dev/null; wc -c < more"); got != "500\n314572800\n" {
		t.Errorf("the command printed %q", got)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("that took %s", took)
	}
}
