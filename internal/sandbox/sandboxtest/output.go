//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// output: output is exact and arrives as it is written, however much there is.
func output(s *suite, t *testing.T) {
	b := s.newBox(t, small)
	t.Run("NUL and invalid UTF-8 arrive as they are", func(t *testing.T) {
		if got := b.sh(t, `printf 'a\000b\377\376\303(\r\n'`); got.stdout != "a\x00b\xff\xfe\xc3(\r\n" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("every byte arrives as it is, however it is cut", func(t *testing.T) {
		var want []byte
		for i := range 1024 {
			want = append(want, byte(i*7))
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				got := b.sh(t, fmt.Sprintf(`perl -e '$| = 1; for (0 .. 1023) { syswrite(STDOUT, chr(($_ * 7) %% 256)); syswrite(STDERR, chr(255 - ($_ * 7) %% 256)) } exit %d'`, i))
				if got.stdout != string(want) || len(got.stderr) != len(want) || got.ExitCode != i {
					t.Errorf("%+v", got)
				}
			})
		}
		all.Wait()
	})
	t.Run("the two outputs are separate", func(t *testing.T) {
		if got := b.sh(t, "echo out; echo err >&2"); got.stdout != "out\n" || got.stderr != "err\n" {
			t.Errorf("stdout %q, stderr %q", got.stdout, got.stderr)
		}
	})
	t.Run("merged, they keep the order in which they were written", func(t *testing.T) {
		const script = "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; echo end > /dev/stderr"
		var want strings.Builder
		for i := range 500 {
			fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
		}
		want.WriteString("end\n")
		var got bytes.Buffer
		result, err := s.driver.Exec(t.Context(), b.ref, sandbox.Command{Argv: []string{"sh", "-c", script}, Stdout: &got, Merged: true})
		if err != nil || result.ExitCode != 0 || got.String() != want.String() {
			t.Errorf("%+v, %v: %q", result, err, got.String())
		}
		got.Reset()
		result, err = s.driver.Exec(t.Context(), b.ref, sandbox.Command{Argv: []string{"no-such-program"}, Stdout: &got, Merged: true})
		if err != nil || result.ExitCode != 127 || !strings.Contains(got.String(), "no-such-program") {
			t.Errorf("%+v, %v: %q", result, err, got.String())
		}
	})
	t.Run("the outputs can be opened by name", func(t *testing.T) {
		if got := b.sh(t, "echo out > /dev/stdout; echo err > /dev/stderr"); got.stdout != "out\n" || got.stderr != "err\n" {
			t.Errorf("stdout %q, stderr %q", got.stdout, got.stderr)
		}
	})
	t.Run("it arrives while the command runs", func(t *testing.T) {
		answer, question := io.Pipe()
		heard := writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte("question")) {
				go func() { _, _ = question.Write([]byte("answer\n")); question.Close() }()
			}
			return len(p), nil
		})
		got := b.run(t, sandbox.Command{Argv: []string{"sh", "-c", `echo question; read a; test "$a" = answer`}, Stdin: answer, Stdout: heard, Timeout: patience})
		if got.ExitCode != 0 {
			t.Errorf("%+v: the command waited although nobody reads its output", got.Result)
		}
	})
	t.Run("100 MB pass through bounded memory", func(t *testing.T) {
		var count, most int64
		counter := writerFunc(func(p []byte) (int, error) {
			if count += int64(len(p)); count>>24 != (count-int64(len(p)))>>24 { // every 16 MiB
				// What is garbage does not count, because tests beside this one make some.
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, int64(m.HeapAlloc))
			}
			return len(p), nil
		})
		got := b.run(t, sandbox.Command{Argv: []string{"head", "-c", "100000000", "/dev/zero"}, Stdout: counter})
		if got.ExitCode != 0 || count != 100_000_000 {
			t.Errorf("exit code %d, %d bytes", got.ExitCode, count)
		}
		if most > 64<<20 {
			t.Errorf("%d MiB of memory in use", most>>20)
		}
	})
	t.Run("a line without an end is no problem", func(t *testing.T) {
		if got := b.sh(t, "head -c 3000000 /dev/zero | tr '\\0' x"); len(got.stdout) != 3_000_000 || strings.Trim(got.stdout, "x") != "" {
			t.Errorf("%d bytes", len(got.stdout))
		}
	})
	t.Run("a writer that fails stops receiving and does not stop the command", func(t *testing.T) {
		calls := 0
		failing := writerFunc(func([]byte) (int, error) { calls++; return 0, errors.New("gone") })
		got := b.run(t, sandbox.Command{Argv: []string{"sh", "-c", "head -c 1000000 /dev/zero; echo done >&2"}, Stdout: failing})
		if got.ExitCode != 0 || got.stderr != "done\n" || calls != 1 {
			t.Errorf("%+v, %d writes", got, calls)
		}
	})
	t.Run("nobody has to read it", func(t *testing.T) {
		result, err := s.driver.Exec(t.Context(), b.ref, sandbox.Command{Argv: []string{"sh", "-c", "head -c 1000000 /dev/zero; exit 5"}})
		if err != nil || result.ExitCode != 5 {
			t.Errorf("%+v, %v", result, err)
		}
	})
	t.Run("a slow listener loses nothing", func(t *testing.T) {
		var all bytes.Buffer
		slow := writerFunc(func(p []byte) (int, error) {
			time.Sleep(20 * time.Millisecond) // slowness is what is tested
			return all.Write(p)
		})
		// This takes longer than any grace period, while a process holds the pipe open to the end. A driver that cuts the
		// output off after a grace period would lose some.
		b.run(t, sandbox.Command{Argv: []string{"sh", "-c", "sleep 100 & head -c 300000 /dev/zero"}, Stdout: slow})
		if all.Len() != 300_000 {
			t.Errorf("%d of 300,000 bytes", all.Len())
		}
	})
}

// input: the command reads its input to the end, or not at all.
func input(s *suite, t *testing.T) {
	b := s.newBox(t, small)
	t.Run("none is an empty one", func(t *testing.T) {
		if got := b.sh(t, "cat; echo end"); got.stdout != "end\n" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("it arrives whole", func(t *testing.T) {
		data := strings.Repeat("0123456789abcde\x00", 1<<18)
		if got := b.run(t, sandbox.Command{Argv: []string{"cat"}, Stdin: strings.NewReader(data)}); got.stdout != data {
			t.Errorf("%d of %d bytes came back", len(got.stdout), len(data))
		}
	})
	t.Run("a command may leave an endless one unread", func(t *testing.T) {
		if got := b.run(t, sandbox.Command{Argv: []string{"true"}, Stdin: endless{}}); got.ExitCode != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("one that never answers does not hold the command's end", func(t *testing.T) {
		silent, never := io.Pipe()
		defer never.Close()
		if got := b.run(t, sandbox.Command{Argv: []string{"true"}, Stdin: silent}); got.ExitCode != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// lifecycle: a command's processes end with it when they must, and Exec always returns promptly. The processes hide in
// every way available to a program, because a driver that follows only its children would miss some.
func lifecycle(s *suite, t *testing.T) {
	b := s.newBox(t, small)
	// sleepers counts the processes that sleep for n seconds, a number that only one check uses.
	sleepers := func(t *testing.T, n string) string {
		t.Helper()
		return b.sh(t, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'sleep [4]"+n+"' | wc -l").stdout
	}
	t.Run("a background process neither holds its command nor dies with it", func(t *testing.T) {
		if got := b.sh(t, "sleep 4001 & echo started"); got.stdout != "started\n" {
			t.Errorf("%+v", got)
		}
		if n := sleepers(t, "001"); n != "1\n" {
			t.Errorf("%s processes are left, want 1", n)
		}
	})
	t.Run("a background process may continue to write without a reader", func(t *testing.T) {
		b.sh(t, `(while :; do echo noise; done; echo) & echo $! > /workspace/noisy`)
		if got := b.sh(t, "sleep 0.3; kill -0 $(cat noisy) && kill -9 $(cat noisy) && echo alive"); got.stdout != "alive\n" {
			t.Errorf("it died of its output: %+v", got)
		}
	})
	hiding := map[string]string{
		"in the background":         "sleep 4101 & wait",
		"in a new session":          "setsid sleep 4102 & sleep 4102",
		"behind two forks":          "(setsid sh -c 'sleep 4103 &' &) ; sleep 4103",
		"behind ignored signals":    "trap '' TERM INT HUP QUIT; nohup sleep 4104 & sleep 4104",
		"stopped":                   "sleep 4105 & kill -STOP $!; sleep 4105",
		"forking while it is ended": "while :; do sleep 4106 & sleep 0.02; kill $!; done",
	}
	for name, script := range hiding {
		n := script[strings.Index(script, "sleep 4")+7:][:3]
		hard := strings.Contains(script, "setsid")
		t.Run("the time limit ends what hides "+name, func(t *testing.T) {
			need(t, s.guarantees.KillsAll || !hard, "everything is killed")
			got := b.run(t, sandbox.Command{Argv: []string{"sh", "-c", "echo begun; " + script}, Timeout: 3 * time.Second}) // it takes a while to begin
			if !got.TimedOut || got.ExitCode != 124 || got.stdout != "begun\n" {
				t.Errorf("%+v", got)
			}
			if left := sleepers(t, n); left != "0\n" {
				t.Errorf("%s processes are left", left)
			}
		})
	}
	t.Run("a cancelled command ends with all it started, and its output until then is delivered", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var heard bytes.Buffer
		listen := writerFunc(func(p []byte) (int, error) { cancel(); return heard.Write(p) })
		_, err := s.driver.Exec(ctx, b.ref, sandbox.Command{Argv: []string{"sh", "-c", "echo begun; sleep 4201 & wait"}, Stdout: listen})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if heard.String() != "begun\n" {
			t.Errorf("heard %q", heard.String())
		}
		if left := sleepers(t, "201"); left != "0\n" {
			t.Errorf("%s processes are left", left)
		}
	})
	t.Run("a command of a context that has ended does not run", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.driver.Exec(ctx, b.ref, sandbox.Command{Argv: []string{"touch", "ran"}})
		if !errors.Is(err, context.Canceled) || b.sh(t, "test -e ran").ExitCode == 0 {
			t.Errorf("error %v, or it ran", err)
		}
	})
	t.Run("deleting the box ends what runs in it", func(t *testing.T) {
		d := s.newBox(t, small)
		running := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			_, err := s.driver.Exec(context.Background(), d.ref, sandbox.Command{
				Argv:   []string{"sh", "-c", "echo; trap '' TERM; sleep 4401"},
				Stdout: writerFunc(func(p []byte) (int, error) { close(running); return len(p), nil }),
			})
			ended <- err
		}()
		<-running
		if err := s.driver.Destroy(t.Context(), d.ref); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the command outlives its box")
		}
	})
}

// writerFunc makes a function a writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// endless is an input that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
