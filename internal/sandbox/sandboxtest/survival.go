//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// RunSurvival checks that processes in a box continue when its driver is closed, and that the next driver adopts them.
// Each call of open opens a driver over the same boxes.
func RunSurvival(t *testing.T, open func(t *testing.T) sandbox.Driver) {
	s := &suite{driver: open(t)}
	closeDriver := func() {
		t.Helper()
		if err := s.driver.Close(context.Background()); err != nil {
			t.Errorf("close: %s", fault.From(err).Detail())
		}
	}
	id := freshID()
	ref, err := s.driver.Create(t.Context(), sandbox.Spec{ID: id, Limits: small})
	if err != nil {
		t.Fatalf("create: %s", fault.From(err).Detail())
	}
	b := &box{suite: s, ref: ref}
	idle, err := s.driver.Create(t.Context(), sandbox.Spec{ID: freshID(), Limits: small})
	if err != nil {
		t.Fatalf("create: %s", fault.From(err).Detail())
	}
	b.sh(t, `sh -c 'echo $$ > pid; n=0; while :; do n=$((n+1)); echo $n > count.new; mv count.new count; sleep 0.05; done' &
		sleep 4901 & until test -s count; do sleep 0.05; done; echo temporary > /tmp/f`)
	pid := strings.TrimSpace(b.sh(t, "cat pid").stdout)
	count := func() int {
		n, err := strconv.Atoi(strings.TrimSpace(b.sh(t, "cat count").stdout))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range 2 { // twice: a driver that adopted a process must also leave it to the next one
		before := count()
		closeDriver()
		s.driver = open(t)
		b.suite = s
		if live, err := s.driver.Probe(t.Context(), ref); err != nil || live != sandbox.Live {
			t.Fatalf("%s, %v", live, err)
		}
		for deadline := time.Now().Add(patience); count() <= before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the process does not go on")
			}
		}
		if got := b.sh(t, "cat pid /tmp/f; kill -0 $(cat pid) && cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]901'"); got.stdout != pid+"\ntemporary\n1\n" {
			t.Errorf("%+v, want the process %s", got, pid)
		}
	}
	if got := b.sh(t, "kill "+pid+"; for i in $(seq 600); do kill -0 "+pid+" || exit 1; sleep 0.05; done"); got.ExitCode == 0 {
		t.Error("a survivor cannot be ended")
	}
	if got, err := s.driver.Exec(t.Context(), idle, sandbox.Command{Argv: []string{"true"}}); err != nil || got.ExitCode != 0 {
		t.Errorf("a box in which nothing ran: %+v, %v", got, err)
	}
	for _, ref := range []string{ref, idle} {
		if err := s.driver.Destroy(t.Context(), ref); err != nil {
			t.Errorf("destroy: %s", fault.From(err).Detail())
		}
	}
	closeDriver()
}

// RunLaunches checks the promises about launched commands. Each call of open opens a driver over the same boxes.
func RunLaunches(t *testing.T, open func(t *testing.T) sandbox.Launcher) {
	d := open(t)
	s := &suite{driver: d}
	reopen := func() {
		t.Helper()
		if err := d.Close(context.Background()); err != nil {
			t.Errorf("close: %s", fault.From(err).Detail())
		}
		d = open(t)
		s.driver = d
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Errorf("close: %s", fault.From(err).Detail())
		}
	})
	b := s.newBox(t, small)
	launch := func(t *testing.T, id, script string) {
		t.Helper()
		if err := d.Launch(t.Context(), b.ref, id, sandbox.Command{Argv: []string{"sh", "-c", script}}); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}
	// follow collects the record from a position on, until the command's end or until enough returns true.
	follow := func(t *testing.T, id string, from int64, enough func(stdout string) bool) (stdout, stderr string, last sandbox.Record) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		stop := errors.New("enough")
		err := d.Follow(ctx, b.ref, id, from, func(r sandbox.Record) error {
			switch r.Kind {
			case sandbox.RecordStdout:
				stdout += string(r.Data)
			case sandbox.RecordStderr:
				stderr += string(r.Data)
			}
			if last = r; enough != nil && enough(stdout) {
				return stop
			}
			return nil
		})
		if err != nil && err != stop {
			t.Fatalf("follow: %s", fault.From(err).Detail())
		}
		return stdout, stderr, last
	}
	t.Run("one that has ended delivers everything", func(t *testing.T) {
		launch(t, "ended", `printf 'a\000b\377'; echo error >&2; exit 7`)
		stdout, stderr, last := follow(t, "ended", 0, nil)
		if stdout != "a\x00b\xff" || stderr != "error\n" || last.Kind != sandbox.RecordExit || last.ExitCode != 7 || last.OutOfMemory {
			t.Errorf("%q, %q, %+v", stdout, stderr, last)
		}
	})
	t.Run("one begins with its start", func(t *testing.T) {
		launch(t, "starting", "sleep 0.2")
		var kinds []sandbox.RecordKind
		var times []time.Time
		if err := d.Follow(t.Context(), b.ref, "starting", 0, func(r sandbox.Record) error {
			kinds, times = append(kinds, r.Kind), append(times, r.Time)
			return nil
		}); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if len(kinds) != 2 || kinds[0] != sandbox.RecordStart || kinds[1] != sandbox.RecordExit || times[1].Sub(times[0]) < 200*time.Millisecond {
			t.Errorf("%v at %v", kinds, times)
		}
	})
	t.Run("one that continues over two drivers loses nothing", func(t *testing.T) {
		launch(t, "counting", `n=0; until test -e go; do n=$((n+1)); echo $n; sleep 0.01; done; echo end; exit 9`)
		var all string
		var at int64
		for range 2 {
			piece, _, last := follow(t, "counting", at, func(s string) bool { return strings.Count(s, "\n") > 20 })
			all, at = all+piece, last.Next
			reopen()
		}
		b.sh(t, "touch go")
		piece, _, last := follow(t, "counting", at, nil)
		lines := strings.Fields(all + piece)
		for i, line := range lines[:len(lines)-1] {
			if line != strconv.Itoa(i+1) {
				t.Fatalf("line %d is %q", i+1, line)
			}
		}
		if lines[len(lines)-1] != "end" || last.ExitCode != 9 {
			t.Errorf("it ended with %q, %+v", lines[len(lines)-1], last)
		}
	})
	t.Run("one that ends while there is no driver is delivered by the next", func(t *testing.T) {
		launch(t, "alone", `echo begun; sleep 0.5; echo end; exit 5`)
		reopen()
		stdout, _, last := follow(t, "alone", 0, nil)
		if stdout != "begun\nend\n" || last.ExitCode != 5 {
			t.Errorf("%q, %+v", stdout, last)
		}
	})
	t.Run("an id is launched once", func(t *testing.T) {
		launch(t, "once", "echo once >> ran")
		follow(t, "once", 0, nil)
		launch(t, "once", "echo twice >> ran")
		reopen()
		launch(t, "once", "echo thrice >> ran")
		if got := b.sh(t, "cat ran"); got.stdout != "once\n" {
			t.Errorf("%q", got.stdout)
		}
		if err := d.Forget(t.Context(), b.ref, "once"); err != nil {
			t.Error(err)
		}
		launch(t, "once", "echo again >> ran")
		follow(t, "once", 0, nil)
		if got := b.sh(t, "cat ran"); got.stdout != "once\nagain\n" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("one is ended with all that it started", func(t *testing.T) {
		launch(t, "ending", "echo; sleep 4911 & trap '' TERM; sleep 4911")
		follow(t, "ending", 0, func(s string) bool { return s == "\n" })
		reopen()
		for range 2 {
			if err := d.End(t.Context(), b.ref, "ending", 0); err != nil {
				t.Fatal(fault.From(err).Detail())
			}
		}
		if _, _, last := follow(t, "ending", 0, nil); last.ExitCode != 137 {
			t.Errorf("%+v", last)
		}
		if got := b.sh(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]911'"); got.stdout != "0\n" {
			t.Errorf("%q processes are left", got.stdout)
		}
	})
	t.Run("what it leaves in the background does not hold its end", func(t *testing.T) {
		launch(t, "leaving", "sleep 4912 & echo end")
		if stdout, _, last := follow(t, "leaving", 0, nil); stdout != "end\n" || last.ExitCode != 0 {
			t.Errorf("%q, %+v", stdout, last)
		}
	})
	t.Run("what one left that has ended is ended with it", func(t *testing.T) {
		launch(t, "left", "sleep 4915 & echo")
		follow(t, "left", 0, nil)
		if err := d.End(t.Context(), b.ref, "left", 0); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if got := b.sh(t, "for i in $(seq 600); do cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'sleep [4]915' || exit 0; sleep 0.05; done; exit 1"); got.ExitCode != 0 {
			t.Error("it runs on")
		}
	})
	t.Run("one that is asked to end may end by itself", func(t *testing.T) {
		launch(t, "asked", "trap 'echo asked; exit 3' TERM; echo; while :; do sleep 0.05; done")
		follow(t, "asked", 0, func(s string) bool { return s == "\n" })
		reopen()
		if err := d.End(t.Context(), b.ref, "asked", patience); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if stdout, _, last := follow(t, "asked", 0, nil); stdout != "\nasked\n" || last.ExitCode != 3 {
			t.Errorf("%q, %+v", stdout, last)
		}
	})
	t.Run("one that does not end when it is asked is killed", func(t *testing.T) {
		launch(t, "deaf", "trap '' TERM; echo; while :; do sleep 0.05; done")
		follow(t, "deaf", 0, func(s string) bool { return s == "\n" })
		if err := d.End(t.Context(), b.ref, "deaf", 50*time.Millisecond); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if _, _, last := follow(t, "deaf", 0, nil); last.ExitCode != 137 {
			t.Errorf("%+v", last)
		}
	})
	t.Run("of more output than is kept the beginning and the end are there, and the rest is counted", func(t *testing.T) {
		const lines, long = 500_000, 100 // bytes each: three times as much as is kept
		launch(t, "much", fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) printf "%%099d\n", i }'; exit 3`, lines))
		// The first follower may or may not keep up. The second comes after the end, so it sees only the kept output.
		for range 2 {
			var kept, dropped int64
			var wrong int
			var last sandbox.Record
			var line []byte
			err := d.Follow(t.Context(), b.ref, "much", 0, func(r sandbox.Record) error {
				if r.Kind == sandbox.RecordGap {
					dropped += r.Dropped
					line = nil // its beginning is missing
				}
				for rest := r.Data; len(rest) > 0; {
					end := bytes.IndexByte(rest, '\n') + 1
					if end == 0 {
						line, kept = append(line, rest...), kept+int64(len(rest))
						break
					}
					line, rest, kept = append(line, rest[:end]...), rest[end:], kept+int64(end)
					if n, err := strconv.ParseInt(string(line[:len(line)-1]), 10, 64); (err != nil || n*long != kept+dropped) && len(line) == long {
						wrong++
					}
					line = line[:0]
				}
				last = r
				return nil
			})
			if err != nil || wrong > 0 || kept < 8<<20 || kept+dropped != lines*long || last.ExitCode != 3 || strings.TrimLeft(string(line), "0") != "" {
				t.Errorf("%d bytes are kept, %d dropped, %d lines are wrong: %+v, %v", kept, dropped, wrong, last, err)
			}
		}
		if err := d.Forget(t.Context(), b.ref, "much"); err != nil {
			t.Error(err)
		}
	})
	t.Run("merged outputs keep the order in which they were written", func(t *testing.T) {
		cmd := sandbox.Command{Argv: []string{"sh", "-c", "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"}, Merged: true}
		if err := d.Launch(t.Context(), b.ref, "merged", cmd); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		var want strings.Builder
		for i := range 500 {
			fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
		}
		if stdout, stderr, last := follow(t, "merged", 0, nil); stdout != want.String() || stderr != "" || last.ExitCode != 0 {
			t.Errorf("stdout %q, stderr %q, %+v", stdout, stderr, last)
		}
	})
	t.Run("a complete one waits for its reader and loses nothing, over two drivers", func(t *testing.T) {
		const lines, long = 400_000, 100 // bytes each: more than any driver keeps, so that the command must wait
		cmd := sandbox.Command{
			Argv:     []string{"sh", "-c", fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) printf "%%099d\n", i }'; echo written > written; echo end >&2; exit 3`, lines)},
			Complete: true,
		}
		if err := d.Launch(t.Context(), b.ref, "complete", cmd); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		var at, read, released int64
		var stderr string
		var last sandbox.Record
		stop := errors.New("stop")
		for restarts := 0; last.Kind != sandbox.RecordExit; restarts++ {
			most := read + 12<<20
			err := d.Follow(t.Context(), b.ref, "complete", at, func(r sandbox.Record) error {
				switch r.Kind {
				case sandbox.RecordGap:
					t.Errorf("%d bytes are missing at %d", r.Dropped, read)
				case sandbox.RecordStderr:
					stderr += string(r.Data)
				case sandbox.RecordStdout:
					for rest := r.Data; len(rest) > 0; {
						want := fmt.Sprintf("%099d\n", read/long+1)[read%long:]
						piece := rest[:min(len(rest), len(want))]
						if string(piece) != want[:len(piece)] {
							t.Fatalf("at byte %d is %q, want %q", read, piece, want)
						}
						rest, read = rest[len(piece):], read+int64(len(piece))
					}
				}
				last, at = r, r.Next
				if restarts == 0 && read < 12<<20 && r.Kind == sandbox.RecordStdout && read > 10<<20 {
					if got := b.sh(t, "test -e written"); got.ExitCode == 0 {
						t.Error("it did not wait")
					}
				}
				if read >= released+4<<20 || r.Kind == sandbox.RecordExit { // not each time, because a provider takes a while
					if err := d.Release(t.Context(), b.ref, "complete", at); err != nil {
						t.Fatal(fault.From(err).Detail())
					}
					released = read
				}
				if restarts < 2 && read > most {
					return stop
				}
				return nil
			})
			if err != nil && err != stop {
				t.Fatal(fault.From(err).Detail())
			}
			if err == stop {
				reopen()
			}
		}
		if read != lines*long || stderr != "end\n" || last.ExitCode != 3 {
			t.Errorf("%d bytes, stderr %q, %+v", read, stderr, last)
		}
	})
	t.Run("a complete one prints on without a reader as far as its record may grow, and nothing of that is lost", func(t *testing.T) {
		const size = 28 << 20
		cmd := sandbox.Command{Argv: []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo > printed; exit 3", size)}, Complete: true}
		if err := d.Launch(t.Context(), b.ref, "extended", cmd); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		for _, limit := range []int64{32 << 20, 20 << 20} { // the second limit is lower and has no effect
			if err := d.Extend(t.Context(), b.ref, "extended", limit); err != nil {
				t.Fatal(fault.From(err).Detail())
			}
		}
		if got := b.sh(t, "for i in $(seq 500); do test -e printed && exit; sleep 0.05; done; exit 1"); got.ExitCode != 0 {
			t.Error("it waits")
		}
		reopen()
		printed := int64(0)
		var last sandbox.Record
		if err := d.Follow(t.Context(), b.ref, "extended", 0, func(r sandbox.Record) error {
			if r.Kind == sandbox.RecordGap {
				t.Errorf("%d bytes are missing", r.Dropped)
			}
			printed += int64(len(r.Data))
			last = r
			return nil
		}); err != nil || printed != size || last.ExitCode != 3 {
			t.Errorf("%d bytes, %+v: %v", printed, last, err)
		}
		for _, id := range []string{"extended", "unknown"} {
			if err := errors.Join(d.Extend(t.Context(), b.ref, id, 1<<30), d.Forget(t.Context(), b.ref, id)); err != nil {
				t.Error(fault.From(err).Detail())
			}
		}
	})
	t.Run("one reads its input to the end", func(t *testing.T) {
		if err := d.Launch(t.Context(), b.ref, "reading", sandbox.Command{Argv: []string{"sh", "-c", "wc -c; exit 4"}, Input: true}); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		in, err := d.Input(t.Context(), b.ref, "reading")
		if err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		n, err := io.Copy(in, io.LimitReader(endless{}, 3_000_000))
		if err := errors.Join(err, in.Close()); err != nil || n != 3_000_000 {
			t.Errorf("%d bytes, %v", n, err)
		}
		if stdout, _, last := follow(t, "reading", 0, nil); strings.TrimSpace(stdout) != "3000000" || last.ExitCode != 4 {
			t.Errorf("%q, %+v", stdout, last)
		}
		_, err = d.Input(t.Context(), b.ref, "reading")
		wantCode(t, err, fault.Precondition)
	})
	t.Run("one that does not read its input blocks nobody", func(t *testing.T) {
		if err := d.Launch(t.Context(), b.ref, "ignoring", sandbox.Command{Argv: []string{"true"}, Input: true}); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		in, err := d.Input(t.Context(), b.ref, "ignoring")
		if err == nil {
			if _, err := io.Copy(in, endless{}); err == nil {
				t.Error("it read endless input")
			}
			in.Close()
		} else {
			wantCode(t, err, fault.Precondition) // it has ended
		}
		if _, _, last := follow(t, "ignoring", 0, nil); last.ExitCode != 0 {
			t.Errorf("%+v", last)
		}
	})
	t.Run("one whose driver is closed sees no end of its input", func(t *testing.T) {
		cmd := sandbox.Command{Argv: []string{"sh", "-c", "read line; echo $line; cat; echo taken for all"}, Input: true}
		if err := d.Launch(t.Context(), b.ref, "cut", cmd); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		in, err := d.Input(t.Context(), b.ref, "cut")
		if err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if _, err := io.WriteString(in, "one\ntwo"); err != nil {
			t.Fatal(err)
		}
		follow(t, "cut", 0, func(s string) bool { return s == "one\ntwo" })
		reopen()
		_, err = d.Input(t.Context(), b.ref, "cut")
		wantCode(t, err, fault.Precondition)
		if err := d.End(t.Context(), b.ref, "cut", 0); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if stdout, _, last := follow(t, "cut", 0, nil); stdout != "one\ntwo" || last.ExitCode != 137 {
			t.Errorf("%q, %+v", stdout, last)
		}
	})
	t.Run("one is interrupted with its process group", func(t *testing.T) {
		launch(t, "interrupted", "trap 'echo interrupted; exit 6' INT; (trap 'echo child >&2; exit' INT; echo; while :; do sleep 0.05; done)")
		follow(t, "interrupted", 0, func(s string) bool { return s == "\n" })
		reopen()
		if err := d.Interrupt(t.Context(), b.ref, "interrupted"); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if stdout, stderr, last := follow(t, "interrupted", 0, nil); stdout != "\ninterrupted\n" || stderr != "child\n" || last.ExitCode != 6 {
			t.Errorf("%q, %q, %+v", stdout, stderr, last)
		}
		if err := d.Interrupt(t.Context(), b.ref, "interrupted"); err != nil {
			t.Error(fault.From(err).Detail())
		}
	})
	t.Run("one that does not exist has ended as a shell says it", func(t *testing.T) {
		for program, code := range map[string]int{"no-such-program": 127, "/etc/passwd": 126} {
			id := fmt.Sprint("missing-", code)
			if err := d.Launch(t.Context(), b.ref, id, sandbox.Command{Argv: []string{program}}); err != nil {
				t.Fatal(fault.From(err).Detail())
			}
			if _, stderr, last := follow(t, id, 0, nil); last.ExitCode != code || !strings.Contains(stderr, program) {
				t.Errorf("%q, %+v", stderr, last)
			}
		}
	})
	t.Run("one that cannot run is an error, and its id is free", func(t *testing.T) {
		wantCode(t, d.Launch(t.Context(), b.ref, "nowhere", sandbox.Command{Argv: []string{"true"}, Dir: "/no/such/directory"}), fault.Invalid)
		wantCode(t, d.Follow(t.Context(), b.ref, "nowhere", 0, func(sandbox.Record) error { return nil }), fault.NotFound)
		launch(t, "nowhere", "true")
	})
	t.Run("one that uses up the memory says so", func(t *testing.T) {
		launch(t, "hungry", "head -c 400000000 /dev/zero | tail -c 400000000 | wc -c; exit 4")
		if _, _, last := follow(t, "hungry", 0, nil); last.ExitCode != 4 || !last.OutOfMemory {
			t.Skipf("there is no memory limit here: %+v", last)
		}
	})
	t.Run("one that another command may have killed still has an end", func(t *testing.T) {
		launch(t, "steady", "echo begun; until test -e stop; do sleep 0.05; done; echo end")
		follow(t, "steady", 0, func(s string) bool { return s != "" })
		reopen()
		b.sh(t, "kill -9 -1") // kills everything that it can, perhaps the launched command too
		b.sh(t, "touch stop")
		if _, _, last := follow(t, "steady", 0, nil); last.Kind != sandbox.RecordExit {
			t.Errorf("its record ends with %+v", last)
		}
	})
	t.Run("an id that is none is refused", func(t *testing.T) {
		for _, id := range []string{"", "..", "a/b", "A", strings.Repeat("x", 65)} {
			wantCode(t, d.Launch(t.Context(), b.ref, id, sandbox.Command{Argv: []string{"true"}}), fault.Invalid)
		}
	})
	t.Run("a follower's context ends its following", func(t *testing.T) {
		launch(t, "silent", "sleep 4913")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if err := d.Follow(ctx, b.ref, "silent", 0, func(sandbox.Record) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a deleted box takes its records with it", func(t *testing.T) {
		other := s.newBox(t, small)
		if err := d.Launch(t.Context(), other.ref, "gone", sandbox.Command{Argv: []string{"sleep", "4914"}}); err != nil {
			t.Fatal(err)
		}
		if err := d.Destroy(t.Context(), other.ref); err != nil {
			t.Fatal(err)
		}
		wantCode(t, d.Follow(t.Context(), other.ref, "gone", 0, func(sandbox.Record) error { return nil }), fault.NotFound)
	})
}
