//go:build linux

package local_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// smallDisk returns the directory of a new file system with size MiB.
func smallDisk(t *testing.T, size int64) (dir string) {
	t.Helper()
	needRoot(t)
	dir = t.TempDir()
	image, target := filepath.Join(dir, "image"), filepath.Join(dir, "mounted")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size<<20), os.Mkdir(target, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, target}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("this machine has no loop devices for the test: %v: %s", err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", target).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return target
}

// taken returns the space that a box's disk uses on the machine's disk, in MiB.
func taken(t *testing.T, dir, id string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "boxes", id, "disk.ext4"), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512 >> 20
}

func TestBoxesCannotHurtEachOtherThroughTheDisk(t *testing.T) {
	disk := smallDisk(t, 600)
	dir := filepath.Join(disk, "data")
	d := newDriver(t, local.Config{Dir: dir, FreeMB: 64})
	defer func() { closeDriver(t, d) }()
	if !d.Capabilities().DiskLimit {
		t.Skip("boxes have no disks here")
	}
	limits := sandbox.Limits{DiskMB: 200}
	boxes := []string{create(t, d, sandbox.Spec{ID: "a", Limits: limits}), create(t, d, sandbox.Spec{ID: "b", Limits: limits})}

	t.Run("a third one that does not fit is refused while commands run in the others", func(t *testing.T) {
		ready, end := make(chan struct{}, 2), make(chan struct{})
		var running sync.WaitGroup
		for _, ref := range boxes {
			running.Go(func() {
				_, err := d.Exec(t.Context(), ref, sandbox.Command{
					Argv: []string{"sh", "-c", "echo ready; read x"}, Stdin: newGate(end), Stdout: &signalWriter{ready},
				})
				if err != nil {
					t.Errorf("%s", fault.From(err).Detail())
				}
			})
		}
		<-ready
		<-ready
		_, err := d.Create(t.Context(), sandbox.Spec{ID: "c", Limits: limits})
		if fault.CodeOf(err) != fault.Exhausted || fault.From(err).Next == "" || !strings.Contains(err.Error(), "free space") {
			t.Errorf("%v", err)
		}
		close(end)
		running.Wait()
	})
	t.Run("on a machine whose disk is full, each can use all of its own", func(t *testing.T) {
		ballast := filepath.Join(disk, "ballast")
		if err := exec.Command("dd", "if=/dev/zero", "of="+ballast, "bs=1M").Run(); err == nil {
			t.Fatal("the machine's disk is not full")
		}
		var both sync.WaitGroup
		for _, ref := range boxes {
			both.Go(func() {
				if got := sh(t, d, ref, "dd if=/dev/zero of=fill bs=1M; sync"); !strings.Contains(got, "No space left on device") {
					t.Errorf("filling a box's disk: %q", got)
				}
			})
		}
		both.Wait()
		for _, ref := range boxes {
			if got := sh(t, d, ref, "head -c 160M fill | tr -d '\\0' | wc -c; rm fill; echo works > f; sync; cat f"); got != "0\nworks\n" {
				t.Errorf("afterwards: %q", got)
			}
		}
		// The boxes can use the space of deleted files again.
		for _, ref := range boxes {
			if got := sh(t, d, ref, "dd if=/dev/zero of=fill bs=1M count=150 2>/dev/null && sync && wc -c < fill; rm fill"); got != "157286400\n" {
				t.Errorf("filling it again: %q", got)
			}
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("one that is idle gives its reserve to another, and keeps its files", func(t *testing.T) {
		third := create(t, d, sandbox.Spec{ID: "c", Limits: limits})
		if a, b := taken(t, dir, "a"), taken(t, dir, "b"); a > 50 || b < 200 {
			t.Errorf("the box that was idle longest takes %d MiB, the other one %d MiB", a, b)
		}
		for _, ref := range boxes {
			if got := sh(t, d, ref, "cat f"); got != "works\n" {
				t.Errorf("%q", got)
			}
		}
		sh(t, d, third, "true")
	})
	t.Run("boxes of a machine that was turned off give back what they do not use", func(t *testing.T) {
		closeDriver(t, d)
		for _, id := range []string{"a", "b"} { // as after a crash, before the space was released
			f, err := os.OpenFile(filepath.Join(dir, "boxes", id, "disk.ext4"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, 200<<20), f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		d = newDriver(t, local.Config{Dir: dir, FreeMB: 64})
		sh(t, d, found(t, d, "c"), "true")
		if a, b := taken(t, dir, "a"), taken(t, dir, "b"); a > 50 || b > 50 {
			t.Errorf("they take %d and %d MiB", a, b)
		}
		for _, id := range []string{"a", "b"} {
			if got := sh(t, d, found(t, d, id), "cat f"); got != "works\n" {
				t.Errorf("%q", got)
			}
		}
	})
}

// TestADriverStartsWhileTheDiskIsShort checks that only creating is refused, with the true cause, and only while the
// disk is short of space.
func TestADriverStartsWhileTheDiskIsShort(t *testing.T) {
	disk := smallDisk(t, 400)
	cfg := local.Config{Dir: filepath.Join(disk, "data"), FreeMB: 64}
	limits := sandbox.Limits{DiskMB: 50}
	d := newDriver(t, cfg)
	create(t, d, sandbox.Spec{ID: "old", Limits: limits})
	closeDriver(t, d)
	filler := filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := errors.Join(unix.Statfs(disk, &st), unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-40<<20), f.Close()); err != nil {
		t.Fatal(err)
	}

	d = newDriver(t, cfg)
	defer func() { closeDriver(t, d) }()
	_, err = d.Create(t.Context(), sandbox.Spec{ID: "new", Limits: limits})
	if fault.CodeOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "free space") {
		t.Errorf("creating one ends with %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{create(t, d, sandbox.Spec{ID: "old", Limits: limits}), create(t, d, sandbox.Spec{ID: "new", Limits: limits})} {
		if _, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"true"}}); err != nil {
			t.Errorf("%s", fault.From(err).Detail())
		}
	}
}

// TestADriverStartsWhileTheDiskIsFull starts a driver on a disk without a free byte.
func TestADriverStartsWhileTheDiskIsFull(t *testing.T) {
	disk := smallDisk(t, 400)
	cfg := local.Config{Dir: filepath.Join(disk, "data"), FreeMB: 64}
	limits := sandbox.Limits{DiskMB: 50}
	d := newDriver(t, cfg)
	ref := create(t, d, sandbox.Spec{ID: "old", Limits: limits})
	sh(t, d, ref, "echo works > f; sync")
	closeDriver(t, d)
	filler := filepath.Join(disk, "filler")
	if err := exec.Command("dd", "if=/dev/zero", "of="+filler, "bs=1M").Run(); err == nil {
		t.Fatal("the disk is not full")
	}
	_ = exec.Command("dd", "if=/dev/zero", "of="+filler+"2", "bs=512").Run()

	d = newDriver(t, cfg)
	defer func() { closeDriver(t, d) }()
	_, err := d.Create(t.Context(), sandbox.Spec{ID: "new", Limits: limits})
	if fault.CodeOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "free space") {
		t.Errorf("creating one ends with %v", err)
	}
	if !d.Capabilities().DiskLimit {
		t.Error("sandboxes have no disk limit for as long as this driver runs")
	}
	// A stopped box needs room to run. The error says so, and does not advise giving the box up.
	if _, err := d.Exec(t.Context(), found(t, d, "old"), sandbox.Command{Argv: []string{"true"}}); fault.CodeOf(err) != fault.Exhausted || strings.Contains(fault.From(err).Next, "delete") || strings.Contains(fault.From(err).Next, "destroy") {
		t.Errorf("a sandbox that is stopped says %v", err)
	}
	if d.Short() == nil {
		t.Error("it does not say that it is short of space")
	}
	if err := errors.Join(os.Remove(filler), os.Remove(filler+"2")); err != nil {
		t.Fatal(err)
	}
	if err := d.Short(); err != nil {
		t.Errorf("with space again it is short: %v", err)
	}
	sh(t, d, create(t, d, sandbox.Spec{ID: "new", Limits: limits}), "true")
	if got := sh(t, d, found(t, d, "old"), "cat f"); got != "works\n" {
		t.Errorf("a sandbox that existed has %q", got)
	}
}
