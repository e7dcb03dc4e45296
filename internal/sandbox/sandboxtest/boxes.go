//go:build linux

package sandboxtest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// boxes: creating, finding and deleting boxes.
func boxes(s *suite, t *testing.T) {
	d := s.driver
	t.Run("an id makes one box, however often and however many ask", func(t *testing.T) {
		id := freshID()
		t.Cleanup(func() { _ = d.Destroy(context.Background(), id) })
		refs := make([]string, 5)
		var wg sync.WaitGroup
		for i := range refs {
			wg.Go(func() {
				ref, err := d.Create(t.Context(), sandbox.Spec{ID: id, Limits: small})
				if err != nil {
					t.Errorf("create: %s", fault.From(err).Detail())
				}
				refs[i] = ref
			})
		}
		wg.Wait()
		for _, ref := range refs {
			if ref != refs[0] || ref == "" {
				t.Fatalf("different references: %q", refs)
			}
		}
		if err := d.Destroy(t.Context(), refs[0]); err != nil {
			t.Error(err)
		}
	})
	t.Run("an id that is none is refused", func(t *testing.T) {
		for _, id := range []string{"", "UPPER", "a/b", "..", "a b", strings.Repeat("x", 41), "ümlaut"} {
			_, err := d.Create(t.Context(), sandbox.Spec{ID: id})
			wantCode(t, err, fault.Invalid)
		}
	})
	t.Run("a creation that is cancelled leaves nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		id := freshID()
		if ref, err := d.Create(ctx, sandbox.Spec{ID: id}); err == nil {
			_ = d.Destroy(t.Context(), ref)
			t.Skip("the driver was faster")
		}
		found, err := d.List(t.Context(), sandbox.Labels{})
		if err != nil {
			t.Fatal(err)
		}
		for _, box := range found {
			if box.ID == id {
				t.Error("it is listed")
			}
		}
	})
	t.Run("they are found by their labels", func(t *testing.T) {
		house := freshID()
		for i := range 3 {
			labels := sandbox.Labels{House: house, Thread: fmt.Sprint("thread", i), Environment: "e"}
			ref, err := d.Create(t.Context(), sandbox.Spec{ID: freshID(), Labels: labels, Limits: small})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Destroy(context.Background(), ref) })
		}
		for want, n := range map[sandbox.Labels]int{
			{House: house}:                                        3,
			{House: house, Environment: "e"}:                      3,
			{House: house, Thread: "thread1"}:                     1,
			{House: house, Thread: "thread1", Environment: "e"}:   1,
			{House: house, Thread: "thread1", Environment: "not"}: 0,
			{House: "somebody else's"}:                            0,
		} {
			found, err := d.List(t.Context(), want)
			if err != nil || len(found) != n {
				t.Errorf("%+v: %d boxes, want %d (%v)", want, len(found), n, err)
			}
			for _, b := range found {
				if b.Ref == "" || b.ID == "" || b.Labels.House != house || time.Since(b.CreatedAt) > time.Hour || time.Until(b.CreatedAt) > time.Hour {
					t.Errorf("incomplete: %+v", b)
				}
			}
		}
	})
	t.Run("a quarantined one is listed as such and keeps its files, until its next use", func(t *testing.T) {
		labels := sandbox.Labels{Installation: freshID()}
		ref, err := d.Create(t.Context(), sandbox.Spec{ID: freshID(), Labels: labels, Limits: small})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Destroy(context.Background(), ref) })
		if err := d.Upload(t.Context(), ref, "f", 0o644, strings.NewReader("kept")); err != nil {
			t.Fatal(err)
		}
		for range 2 { // repeating it is harmless, because every start of a server does so
			if place, err := d.Quarantine(t.Context(), ref); err != nil || place == "" {
				t.Errorf("quarantined at %q: %v", place, err)
			}
		}
		for _, quarantined := range []bool{true, false} {
			found, err := d.List(t.Context(), labels)
			if err != nil || len(found) != 1 || found[0].Ref != ref || found[0].Quarantined != quarantined {
				t.Errorf("listed: %+v, %v", found, err)
			}
			if live, err := d.Probe(t.Context(), ref); live != sandbox.Live || err != nil {
				t.Errorf("probe: %s, %v", live, err)
			}
			if result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"test", "-s", "f"}}); err != nil || result.ExitCode != 0 {
				t.Errorf("a command in it ends with %+v, %v", result, err)
			}
		}
	})
	t.Run("a deleted one is gone", func(t *testing.T) {
		b := s.newBox(t, small)
		if live, err := d.Probe(t.Context(), b.ref); err != nil || live != sandbox.Live {
			t.Errorf("before: %s, %v", live, err)
		}
		for range 2 { // deleting again succeeds, so a caller may repeat it after a lost answer
			if err := d.Destroy(t.Context(), b.ref); err != nil {
				t.Fatal(err)
			}
		}
		if live, err := d.Probe(t.Context(), b.ref); err != nil || live != sandbox.Gone {
			t.Errorf("after: %s, %v", live, err)
		}
		_, err := d.Exec(t.Context(), b.ref, sandbox.Command{Argv: []string{"true"}})
		wantCode(t, err, fault.NotFound)
		wantCode(t, d.Upload(t.Context(), b.ref, "f", 0o644, strings.NewReader("")), fault.NotFound)
		_, err = d.Download(t.Context(), b.ref, "f")
		wantCode(t, err, fault.NotFound)
	})
	t.Run("one is deleted whatever it left", func(t *testing.T) {
		for name, script := range map[string]string{
			"a directory that nobody may enter":    "mkdir -p closed/below && touch closed/below/f && chmod 000 closed/below closed",
			"a tree that nobody may write":         "mkdir -p tree/a/b tree/c && touch tree/f tree/a/f tree/a/b/f && chmod -R a-w tree",
			"its working tree closed":              "touch f && chmod 000 /workspace",
			"its home read-only":                   "mkdir -p ~/.cache/mod && touch ~/.cache/mod/f && chmod -R a-w ~",
			"a tree deeper than files can be open": `perl -e 'for (1 .. 30000) { mkdir "d" or last; chdir "d" or last } mkdir "last"; chmod 0, "last"'`,
			"links that lead out and in circles":   "mkdir closed && ln -s / closed/root && ln -s . closed/circle && ln -s /etc etc && chmod 000 closed",
			"names of its own for what is moved":   "mkdir -p closed/.moved-0/.moved-1/.moved-2 && touch .moved-0 closed/.moved-3 && chmod 000 closed/.moved-0/.moved-1",
		} {
			b := s.newBox(t, small)
			if got := b.sh(t, script); got.ExitCode != 0 {
				t.Fatalf("%s: %+v", name, got)
			}
			if err := d.Destroy(t.Context(), b.ref); err != nil {
				t.Errorf("%s: %s", name, fault.From(err).Detail())
			}
			if live, err := d.Probe(t.Context(), b.ref); err != nil || live != sandbox.Gone {
				t.Errorf("%s: after: %s, %v", name, live, err)
			}
		}
	})
	t.Run("a reference that is none is an error", func(t *testing.T) {
		for _, ref := range []string{"", "../../etc", "no such\x00"} {
			if _, err := d.Probe(t.Context(), ref); err == nil {
				t.Errorf("%q: no error", ref)
			}
		}
	})
}

// neighbours: two boxes share nothing, and many commands fit into one box. A box must not use up the machine's
// limited resources, because its neighbours would then fail.
func neighbours(s *suite, t *testing.T) {
	a, b := s.newBox(t, small), s.newBox(t, small)
	t.Run("neither sees the other's files", func(t *testing.T) {
		for _, dir := range []string{"/workspace", "/home/agent", "/tmp", "/dev/shm"} {
			a.sh(t, "echo mine > "+dir+"/of-a && chmod 777 "+dir+"/of-a")
			if got := b.sh(t, "ls -A "+dir); strings.Contains(got.stdout, "of-a") {
				t.Errorf("%s shows %q", dir, got.stdout)
			}
		}
		// Nobody in a sandbox may write below the directories that are left out, and they are too large to search.
		const find = `find / \( -path /usr -o -path /proc -o -path /sys \) -prune -o -name of-a -print 2>/dev/null`
		if got := b.sh(t, find); got.stdout != "" {
			t.Errorf("found %q", got.stdout)
		}
	})
	t.Run("neither sees the other's processes", func(t *testing.T) {
		a.sh(t, "sleep 4501 &")
		if got := b.sh(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]501'"); got.stdout != "0\n" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("neither takes what the machine has only so much of", func(t *testing.T) {
		need(t, s.guarantees.OwnShare, "a share of the machine of its own")
		if runtime.GOARCH != "amd64" {
			t.Skip("the numbers of the system calls are another processor's")
		}
		for what, take := range map[string]string{
			"pseudo-terminals":      `open($f[$n], "+<", "/dev/ptmx")`,
			"inotify instances":     `syscall(294, 0) >= 0`,
			"message queues":        `syscall(240, "queue" . $n, 0102, 0600, 0) >= 0`,
			"asynchronous requests": `syscall(206, 1000, $zeros) == 0`,
			"pending signals":       `syscall(222, 1, 0, $zeros) == 0`, // a timer reserves one
		} {
			all := `perl -e '$n = 0; $zeros = "\0" x 64; $n++ while ` + take + `; print "$n, then ", $! + 0, "\n"; close STDOUT; sleep $ARGV[0]' `
			first := a.sh(t, "mkfifo told; "+all+"4502 > told & cat told; rm told").stdout
			second := b.sh(t, all+"0").stdout
			var n, m, end, other int
			_, err := fmt.Sscanf(first, "%d, then %d\n", &n, &end)
			_, err2 := fmt.Sscanf(second, "%d, then %d\n", &m, &other)
			// Not equal: another process of the box may hold one, such as a signal on its way.
			if err != nil || err2 != nil || end != other || m < n-n/10-1 {
				t.Errorf("%s: one box gets %q, the next %q", what, first, second)
			}
			a.sh(t, "pkill perl")
		}
	})
	t.Run("a second command finds the first one's files", func(t *testing.T) {
		a.sh(t, "echo first > shared")
		if got := a.sh(t, "cat shared"); got.stdout != "first\n" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("twenty commands at once keep their outputs apart", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				want := strings.Repeat(fmt.Sprintf("line of %d\n", i), 500)
				got := a.sh(t, fmt.Sprintf("for i in $(seq 1 500); do echo line of %d; done; exit %d", i, i))
				if got.stdout != want || got.ExitCode != i {
					t.Errorf("command %d: exit code %d, %d bytes", i, got.ExitCode, len(got.stdout))
				}
			})
		}
		wg.Wait()
	})
	t.Run("a box that dies under twenty commands serves the next", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { a.sh(t, "kill -9 -1; kill -9 1; sleep 0.05") })
		}
		wg.Wait()
		if got := a.sh(t, "cat shared"); got.stdout != "first\n" {
			t.Errorf("%+v", got)
		}
	})
}
