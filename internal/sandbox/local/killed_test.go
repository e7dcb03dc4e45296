//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// creator is a server that creates boxes, fills and deletes them, until a test kills it.
func creator(dir string) {
	ctx := context.Background()
	d, err := local.New(ctx, local.Config{Dir: dir, FreeMB: 64})
	for n := 0; err == nil; n++ {
		var ref string
		if ref, err = d.Create(ctx, sandbox.Spec{ID: fmt.Sprint(os.Getenv("ARBE_TEST_BOX"), "-", n), Limits: sandbox.Limits{DiskMB: 1200}}); err == nil {
			_, err = d.Exec(ctx, ref, sandbox.Command{Argv: []string{"sh", "-c", "echo written > f; sync; " + os.Getenv("ARBE_TEST_LINE")}})
		}
		if err == nil {
			err = d.Destroy(ctx, ref)
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// killWhen starts a creator and kills it when a condition is true.
func killWhen(t *testing.T, dir, id, line string, ready func() bool) {
	t.Helper()
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), "ARBE_TEST_CREATOR_DIR="+dir, "ARBE_TEST_BOX="+id, "ARBE_TEST_LINE="+line)
	server.Stdout = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !ready(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Error("the moment does not come")
			break
		}
	}
	_ = server.Process.Kill()
	_ = server.Wait()
}

// some reports whether files of the creator's boxes are there.
func some(dir, id, pattern string) bool {
	found, _ := filepath.Glob(filepath.Join(dir, "boxes", id+"-"+pattern))
	return len(found) > 0
}

func whenSome(pattern string) func(dir, id string) func() bool {
	return func(dir, id string) func() bool { return func() bool { return some(dir, id, pattern) } }
}

// whenLarge waits until a disk is larger than its first window.
func whenLarge(dir, id string) func() bool {
	return func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "boxes", id+"-*", "disk.ext4"))
		var st unix.Stat_t
		return len(found) > 0 && unix.Stat(found[0], &st) == nil && st.Blocks*512 > 550<<20
	}
}

// whenDeleted waits until a box that was complete has no record any more.
func whenDeleted(dir, id string) func() bool {
	started := false
	return func() bool {
		started = started || some(dir, id, "*/box.json")
		return started && some(dir, id, "*/unfinished") && !some(dir, id, "*/box.json")
	}
}

func TestAServerThatIsKilledWhileItCreatesOrDeletesABox(t *testing.T) {
	needRoot(t)
	for n, c := range []struct {
		when  string
		ready func(dir, id string) func() bool
		line  string
	}{
		{"at its directory", whenSome("*"), ""},
		{"at its mark", whenSome("*/unfinished"), ""},
		{"at its disk", whenSome("*/disk.ext4"), ""},
		{"at its record", whenSome("*/box.json*"), ""},
		{"when it is complete", func(dir, id string) func() bool {
			return func() bool { return some(dir, id, "*/box.json") && !some(dir, id, "*/unfinished") }
		}, "sleep 1"},
		{"while its disk grows", whenLarge, "dd if=/dev/zero of=fill bs=1M count=900 2>/dev/null"},
		{"while it is deleted", whenDeleted, ""},
	} {
		t.Run(c.when, func(t *testing.T) {
			t.Parallel()
			dir, id := t.TempDir(), word(fmt.Sprint("torn", n))
			killWhen(t, dir, id, c.line, c.ready(dir, id))
			d := newDriver(t, local.Config{Dir: dir, FreeMB: 64})
			defer closeDriver(t, d)
			boxes, err := d.List(t.Context(), sandbox.Labels{})
			dirs, _ := filepath.Glob(filepath.Join(dir, "boxes", "*"))
			if err != nil || len(boxes) > 1 || len(dirs) != len(boxes) {
				t.Errorf("there are the boxes %v in %v (%v)", boxes, dirs, err)
			}
			if kept, _ := filepath.Glob(filepath.Join(dir, "quarantine", "*")); len(kept) > 0 {
				t.Errorf("in quarantine, where they stay, are %v", kept)
			}
			if left := traces(t, id); left != "" {
				t.Errorf("before anything runs, there is\n%s", left)
			}
			for _, b := range boxes {
				// Creating it again finds it, and it works, whatever part of its files is there.
				ref, err := d.Create(t.Context(), sandbox.Spec{ID: b.ID})
				if err != nil || ref != b.Ref {
					t.Errorf("created again, %s is %s (%v)", b.Ref, ref, err)
				}
				if got := sh(t, d, ref, "rm -f fill; echo more > g && sync && cat g"); got != "more\n" {
					t.Errorf("in it, a command prints %q", got)
				}
				if err := d.Destroy(t.Context(), ref); err != nil {
					t.Error(fault.From(err).Detail())
				}
			}
			if left := traces(t, id); left != "" {
				t.Errorf("deleted, and this is left:\n%s", left)
			}
		})
	}
}

// A server that is killed while it deletes a box leaves the mark that lets the next one go on, whatever it has deleted.
func TestAnInterruptedDeletionIsContinued(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir})
	ref := create(t, d, sandbox.Spec{ID: "busy"})
	// A file on which something is mounted cannot be deleted.
	busy := filepath.Join(dir, "boxes", "busy", "busy")
	if err := errors.Join(os.WriteFile(busy, nil, 0o600), unix.Mount("/dev/null", busy, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	unmount := func() { _ = unix.Unmount(busy, unix.MNT_DETACH) }
	t.Cleanup(unmount)
	if err := d.Destroy(t.Context(), ref); err == nil {
		t.Error("it was deleted completely")
	}
	closeDriver(t, d)
	unmount()
	d = newDriver(t, local.Config{Dir: dir})
	defer closeDriver(t, d)
	for _, folder := range []string{"boxes", "quarantine"} {
		if left, _ := filepath.Glob(filepath.Join(dir, folder, "*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
