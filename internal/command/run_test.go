//go:build linux

package command_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// One server runs the commands of these tests, each in a house of its own.
func TestCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, test := range map[string]func(*testing.T, *bench){
		"runs":                         testACommand,
		"asked for twice":              testTheSameCommandTwice,
		"in a fork":                    testCommandsInAFork,
		"live output":                  testLiveOutput,
		"large output":                 testLargeOutput,
		"complete output":              testCompleteOutput,
		"cancelled":                    testCancellingACommand,
		"that the queue has forgotten": testACommandThatTheQueueHasForgotten,
		"attached":                     testAnAttachedCommand,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b.in(t))
		})
	}
}

func testACommand(t *testing.T, b *bench) {
	th := b.Thread(sandbox.Recipe{})

	t.Run("is recorded with its exit code, its duration and both streams", func(t *testing.T) {
		id := b.Ask(th, "echo out; echo err >&2; sleep 0.01; exit 7")
		r := b.Result(th, id)
		said, _ := entry.As[entry.Command](b.Entries(th)[0])
		if said.Command == "" || b.Entries(th)[0].Author != b.Scope.Agent {
			t.Errorf("the log begins with %s", b.Story(th))
		}
		if r.ExitCode != 7 || r.SandboxID == "" || r.CommandID != id || r.Error != "" || r.DurationMS < 10 || r.OutputBytes != 8 ||
			r.Output != "out\nerr\n" {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("has its lines in the log in the order in which they were written", func(t *testing.T) {
		r := b.Sh(th, "i=0; while [ $i -lt 300 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done")
		var want strings.Builder
		for i := range 300 {
			fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
		}
		if r.Output != want.String() {
			t.Errorf("the output is %q", r.Output)
		}
	})
	t.Run("is a line for the shell, or a program with its arguments as they are", func(t *testing.T) {
		r := b.Result(th, b.AskFor(th, "", entry.Command{Argv: []string{"printf", "%s|", "a b", "$HOME", ""}}))
		if r.Output != "a b|$HOME||" {
			t.Errorf("it printed %q", r.Output)
		}
	})
	t.Run("finds the files of the previous one, unlike a command of another thread", func(t *testing.T) {
		b.Sh(th, "echo kept > file")
		if r := b.Sh(th, "cat file"); r.Output != "kept\n" {
			t.Errorf("it found %q", r.Output)
		}
		if r := b.Sh(b.Thread(sandbox.Recipe{}), "ls -A"); r.Output != "" || r.ExitCode != 0 {
			t.Errorf("the other thread finds %q", r.Output)
		}
	})
	t.Run("that does not exist has the shell's exit code", func(t *testing.T) {
		if r := b.Result(th, b.AskFor(th, "", entry.Command{Argv: []string{"nosuchprogram"}})); r.ExitCode != 127 || !strings.Contains(r.Output, "nosuchprogram") {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("may print what is not text", func(t *testing.T) {
		r := b.Sh(th, `printf 'a\377\376b\000c\033[1m'`)
		if r.Output != "a\uFFFD\uFFFDb\u2400c\x1b[1m" || r.OutputBytes != int64(len(r.Output)) {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("may kill its parent and everything it can, and the next command works", func(t *testing.T) {
		if r := b.Sh(th, "kill -9 $PPID; kill -9 1; kill -9 -1; kill -9 $$"); r.ExitCode != 137 {
			t.Errorf("the result is %+v", r)
		}
		if r := b.Sh(th, "echo works"); r.Output != "works\n" {
			t.Errorf("the result of the next command is %+v", r)
		}
	})
	t.Run("may fill the sandbox's disk, and the sandbox is usable afterwards", func(t *testing.T) {
		full := b.Thread(sandbox.Recipe{Limits: sandbox.Limits{DiskMB: 32}})
		r := b.Sh(full, "dd if=/dev/zero of=big bs=1M count=100; code=$?; rm big; exit $code")
		if r.ExitCode == 0 || !strings.Contains(r.Output, "No space left on device") {
			t.Errorf("the result is %+v", r)
		}
		if r := b.Sh(full, "echo works | tee file"); r.Output != "works\n" {
			t.Errorf("the result of the next command is %+v", r)
		}
	})
	t.Run("ends when it takes longer than its own limit or its environment's", func(t *testing.T) {
		limited := b.Thread(sandbox.Recipe{CommandTimeout: 3 * time.Second})
		b.Sh(limited, "true")
		for name, id := range map[string]string{
			"its own":           b.AskFor(th, "", entry.Command{Command: "echo begun; sleep 1000", TimeoutMS: 3000}),
			"its environment's": b.Ask(limited, "echo begun; sleep 1000"),
		} {
			where := th
			if name != "its own" {
				where = limited
			}
			r := b.Result(where, id)
			if r.ExitCode != 124 || !r.TimedOut || r.Output != "begun\n" || r.DurationMS < 3000 || r.Error != "" {
				t.Errorf("%s: the result is %+v", name, r)
			}
		}
	})
	t.Run("without an environment says how to set one", func(t *testing.T) {
		bare, err := b.Threads.Create(t.Context(), b.Scope, thread.Draft{})
		if err != nil {
			t.Fatal(err)
		}
		r := b.Sh(bare.ID, "true")
		if r.ExitCode != -1 || !strings.Contains(r.Error, "set the house's default environment") || r.SandboxID != "" {
			t.Errorf("the result is %+v", r)
		}
	})
	for name, c := range map[string]entry.Command{
		"nothing": {Command: "  "}, "a line and arguments": {Command: "a", Argv: []string{"b"}}, "a NUL byte": {Command: "a\x00"}, "a negative limit": {Command: "a", TimeoutMS: -1},
	} {
		t.Run("is refused as "+name+", and leaves no trace", func(t *testing.T) {
			before := len(b.Entries(th))
			_, err := b.Commands.Run(t.Context(), b.Scope, th, "", c)
			wantCode(t, err, fault.Invalid)
			if len(b.Entries(th)) != before {
				t.Error("the log has grown")
			}
		})
	}
	t.Run("is refused in a thread that does not exist or belongs to another house", func(t *testing.T) {
		_, err := b.Commands.Run(t.Context(), b.Scope, "nosuchthread", "", entry.Command{Command: "true"})
		wantCode(t, err, fault.NotFound)
		theirs := b.Scope
		theirs.House = "otherhouse"
		_, err = b.Commands.Run(t.Context(), theirs, th, "", entry.Command{Command: "true"})
		wantCode(t, err, fault.NotFound)
	})
}

func testTheSameCommandTwice(t *testing.T, b *bench) {
	th := b.Thread(sandbox.Recipe{})

	t.Run("runs once, also when both come at the same time", func(t *testing.T) {
		var both sync.WaitGroup
		for range 8 {
			both.Go(func() {
				if _, err := b.Commands.Run(t.Context(), b.Scope, th, "one", entry.Command{Command: "echo ran >> runs"}); err != nil {
					t.Error(detail(err))
				}
			})
		}
		both.Wait()
		b.Result(th, "one")
		b.AskFor(th, "one", entry.Command{Command: "echo ran >> runs"})
		if r := b.Sh(th, "cat runs"); r.Output != "ran\n" || b.Results(th, "one") != 1 {
			t.Errorf("the runs are %q and there are %d results, want one of each", r.Output, b.Results(th, "one"))
		}
	})
	t.Run("runs once in each thread", func(t *testing.T) {
		other := b.Thread(sandbox.Recipe{})
		if r := b.Result(other, b.AskFor(other, "one", entry.Command{Command: "echo other"})); r.Output != "other\n" {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("is refused when the id is that of something else", func(t *testing.T) {
		_, err := b.Commands.Run(t.Context(), b.Scope, th, "one", entry.Command{Command: "echo again >> runs"})
		wantCode(t, err, fault.Exists)
		if _, err := b.Log.Append(t.Context(), b.Ref(th), entry.NewDraft("chat", b.Scope.Agent, entry.Chat{Text: "hello"})); err != nil {
			t.Fatal(err)
		}
		_, err = b.Commands.Run(t.Context(), b.Scope, th, "chat", entry.Command{Command: "true"})
		wantCode(t, err, fault.Exists)
		wantCode(t, b.Commands.Cancel(t.Context(), b.Scope, th, "chat", command.Interrupt), fault.NotFound)
	})
}

func testCommandsInAFork(t *testing.T, b *bench) {
	source := b.Thread(sandbox.Recipe{})
	b.Result(source, b.AskFor(source, "ended", entry.Command{Command: "echo ran >> runs"}))
	b.AskFor(source, "going", entry.Command{Command: "echo begun; until test -e stop; do sleep 0.1; done; echo ended"})
	b.Printed(source, "going", "begun\n")
	fork := b.fork(source)

	t.Run("that were asked for in its source are answered there alone", func(t *testing.T) {
		b.Sh(source, "touch stop")
		if r := b.Result(source, "going"); r.Output != "begun\nended\n" {
			t.Errorf("there it is %+v", r)
		}
		if b.Results(fork, "ended") != 1 || b.Results(fork, "going") != 0 {
			t.Errorf("the fork's log says %s", b.Story(fork))
		}
	})
	t.Run("are not run again by their ids", func(t *testing.T) {
		for _, id := range []string{"ended", "going"} {
			_, err := b.Commands.Run(t.Context(), b.Scope, fork, id, entry.Command{Command: "echo ran >> runs"})
			wantCode(t, err, fault.Exists)
		}
		if r := b.Sh(source, "cat runs"); r.Output != "ran\n" {
			t.Errorf("they ran as %q", r.Output)
		}
	})
	t.Run("are cancelled where they run", func(t *testing.T) {
		wantCode(t, b.Commands.Cancel(t.Context(), b.Scope, fork, "going", command.Interrupt), fault.Precondition)
		b.Cancel(fork, "ended")
		if b.Results(fork, "ended") != 1 || b.Results(fork, "going") != 0 {
			t.Errorf("the fork's log says %s", b.Story(fork))
		}
	})
	t.Run("run on a sandbox of its own, made as its source's was", func(t *testing.T) {
		r := b.Sh(fork, "ls; echo mine > file")
		if r.ExitCode != 0 || r.Output != "" {
			t.Errorf("it finds %+v", r)
		}
		if there := b.Sh(source, "ls"); there.Output != "runs\nstop\n" || there.SandboxID == r.SandboxID {
			t.Errorf("its source finds %+v", there)
		}
	})
	t.Run("run on when the source was deleted, and what ran there ends with it", func(t *testing.T) {
		late := b.Ask(source, "echo begun; sleep 1000")
		b.Printed(source, late, "begun\n")
		b.deleteThread(source)
		if state := b.ended(late); state != "completed" {
			t.Errorf("what ran there is %s", state)
		}
		if r := b.Sh(fork, "cat file"); r.Output != "mine\n" {
			t.Errorf("the result is %+v", r)
		}
		wantCode(t, b.Commands.Cancel(t.Context(), b.Scope, fork, "going", command.Interrupt), fault.Precondition)
	})
}

// ended waits until the queue is done with a command, and returns the state of its job.
func (b *bench) ended(commandID string) (state string) {
	b.t.Helper()
	conn := b.Owner(b.t)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // the queue tells nobody
		err := conn.QueryRow(b.t.Context(), "select state from "+db.JobSchema+".river_job where args->>'command' = $1 and finalized_at is not null", commandID).Scan(&state)
		if err == nil {
			return state
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the job does not end (%v)", err)
		}
	}
}

// fork forks a thread at its end.
func (b *bench) fork(source string) string {
	b.t.Helper()
	made, err := b.Threads.Fork(b.t.Context(), b.Scope, source, thread.Fork{})
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return made.ID
}

func testLiveOutput(t *testing.T, b *bench) {
	th := b.Thread(sandbox.Recipe{})
	id := b.Ask(th, "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo ended")
	b.Printed(th, id, "begun\n") // while it runs: it waits for the file
	b.Ask(th, "touch go")

	var last *stream.Event
	for _, ev := range b.Follow(th, func(ev stream.Event) bool { return ev.Entry != nil && ev.Entry.ID == entry.ResultID(id) }) {
		last = &ev
	}
	if r, _ := entry.As[entry.CommandResult](*last.Entry); r.Output != "begun\nended\n" {
		t.Errorf("the result holds %q, want all of it", r.Output)
	}
	t.Run("does not come after the result", func(t *testing.T) {
		after := b.Ask(th, "echo next")
		done := entry.ResultID(after)
		ended := false
		for _, ev := range b.Follow(th, func(ev stream.Event) bool { return ev.Entry != nil && ev.Entry.ID == done }) {
			ended = ended || ev.Entry != nil && ev.Entry.ID == entry.ResultID(id)
			if ended && ev.Delta != nil && ev.Delta.EntryID == entry.ResultID(id) {
				t.Errorf("%q came after the result", ev.Delta.Data)
			}
		}
	})
}

func testLargeOutput(t *testing.T, b *bench) {
	th := b.Thread(sandbox.Recipe{})

	t.Run("of 200 MB has its exact head and tail, states what is omitted, and takes limited memory", func(t *testing.T) {
		const line, lines = 100, 2_000_000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := b.Sh(th, fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) printf "%%0%dd\n", i }'`, lines, line-1))
		runtime.ReadMemStats(&after)
		head, tail := fmt.Sprintf("%0*d\n%0*d\n", line-1, 1, line-1, 2), fmt.Sprintf("%0*d\n", line-1, lines)
		if r.ExitCode != 0 || r.OutputBytes != line*lines || !r.Truncated ||
			len(r.Output) != 64<<10 || !strings.HasPrefix(r.Output, head) || len(r.OutputTail) != 64<<10 || !strings.HasSuffix(r.OutputTail, tail) {
			t.Errorf("exit code %d, %d bytes, head of %d, tail of %d that ends %q (%s)", r.ExitCode, r.OutputBytes, len(r.Output), len(r.OutputTail), r.OutputTail[max(0, len(r.OutputTail)-100):], r.Error)
		}
		if want := int64(line*lines - 128<<10); r.Omitted() != want {
			t.Errorf("%d bytes are said to be left out, want %d", r.Omitted(), want)
		}
		if grown := int64(after.Sys) - int64(before.Sys); grown > 128<<20 { // other tests take memory, too
			t.Errorf("the server has grown by %d MiB", grown>>20)
		}
	})
	t.Run("that just fits is whole", func(t *testing.T) {
		r := b.Sh(th, "head -c 131072 /dev/zero | tr '\\0' x")
		if r.Truncated || len(r.Output) != 128<<10 || r.OutputTail != "" || r.Omitted() != 0 {
			t.Errorf("%d bytes and %d, %d omitted", len(r.Output), len(r.OutputTail), r.Omitted())
		}
	})
	t.Run("is not cut within a character", func(t *testing.T) {
		r := b.Sh(th, "printf xx; yes '€' | tr -d '\\n' | head -c 300000; printf xx")
		if !r.Truncated || strings.ContainsRune(r.Output+r.OutputTail, '\uFFFD') || strings.Trim(r.Output, "x€") != "" ||
			r.Omitted() != r.OutputBytes-int64(len(r.Output)+len(r.OutputTail)) || len(r.Output) < 64<<10-3 || len(r.OutputTail) < 64<<10-3 {
			t.Errorf("a head of %d that ends %q, a tail of %d that starts %q", len(r.Output), r.Output[len(r.Output)-4:], len(r.OutputTail), r.OutputTail[:4])
		}
	})
}

func testCancellingACommand(t *testing.T, b *bench) {
	th := b.Thread(sandbox.Recipe{})

	t.Run("ends it with everything it started, and what it printed stays", func(t *testing.T) {
		word := fmt.Sprint("7", time.Now().UnixNano()) // a sleep that no other test uses
		id := b.Ask(th, "trap '' TERM INT HUP; (setsid sleep "+word+" &); sleep "+word+" & echo begun; wait; sleep "+word)
		b.Printed(th, id, "begun\n")
		if !runs(t, "sleep "+word) {
			t.Fatal("the test cannot find what the command started")
		}
		b.Cancel(th, id)
		b.Cancel(th, id)
		r := b.Result(th, id)
		if !r.Cancelled || r.Error != "" || r.Output != "begun\n" || r.SandboxID == "" || r.ExitCode == 0 {
			t.Errorf("the result is %+v", r)
		}
		if runs(t, "sleep "+word) {
			t.Error("a process of the command still runs")
		}
		b.Cancel(th, id)
		if n := b.Results(th, id); n != 1 {
			t.Errorf("the log has %d results of the command, want 1", n)
		}
	})
	t.Run("interrupts it, and the log says who did it and how it ended", func(t *testing.T) {
		word := fmt.Sprint("8", time.Now().UnixNano())
		// A process that a shell without job control starts in the background ignores SIGINT.
		id := b.Ask(th, "trap 'echo interrupted; exit 7' INT; sleep "+word+" & echo begun; while :; do sleep 0.05; done")
		b.Printed(th, id, "begun\n")
		b.Cancel(th, id)
		r := b.Result(th, id)
		if !r.Cancelled || r.CancelledBy != b.Scope.Agent || r.Signal != "SIGINT" || r.ExitCode != 7 || r.Output != "begun\ninterrupted\n" || r.Error != "" {
			t.Errorf("the result is %+v", r)
		}
		if runs(t, "sleep "+word) {
			t.Error("a process of the command still runs")
		}
	})
	t.Run("sends a stronger signal at once", func(t *testing.T) {
		for want, c := range map[command.Signal]struct {
			line string
			code int
		}{
			command.Terminate: {"trap '' INT; trap 'exit 9' TERM; echo begun; while :; do sleep 0.05; done", 9},
			command.Kill:      {"trap '' INT TERM; echo begun; while :; do sleep 0.05; done", 137},
		} {
			id := b.Ask(th, c.line)
			b.Printed(th, id, "begun\n")
			for _, with := range []command.Signal{command.Interrupt, want, command.Interrupt} {
				if err := b.Commands.Cancel(t.Context(), b.Scope, th, id, with); err != nil {
					t.Fatal(detail(err))
				}
			}
			if r := b.Result(th, id); !r.Cancelled || r.Signal != string(want) || r.ExitCode != c.code {
				t.Errorf("with %s the result is %+v", want, r)
			}
		}
	})
	t.Run("may be for all commands of a thread", func(t *testing.T) {
		many := b.Thread(sandbox.Recipe{})
		running := b.Ask(many, "echo begun; sleep 1000")
		b.Printed(many, running, "begun\n")
		asked := []string{running, b.Ask(many, "sleep 1000"), b.Ask(many, "sleep 1000")}
		found, err := b.Commands.CancelAll(t.Context(), b.Scope, many, command.Interrupt)
		slices.Sort(asked)
		slices.Sort(found)
		if err != nil || !slices.Equal(found, asked) {
			t.Errorf("%v of %v are cancelled (%v)", found, asked, err)
		}
		for _, id := range asked {
			if r := b.Result(many, id); !r.Cancelled || r.CancelledBy != b.Scope.Agent {
				t.Errorf("the result is %+v", r)
			}
		}
		if found, err := b.Commands.CancelAll(t.Context(), b.Scope, many, command.Interrupt); err != nil || len(found) > 0 {
			t.Errorf("then %v are cancelled (%v)", found, err)
		}
	})
	t.Run("that has ended is no error and changes nothing", func(t *testing.T) {
		id := b.Ask(th, "echo done")
		b.Result(th, id)
		b.Cancel(th, id)
		if r := b.Result(th, id); r.Cancelled || r.Output != "done\n" || b.Results(th, id) != 1 {
			t.Errorf("the result is %+v, and there are %d results, want 1", r, b.Results(th, id))
		}
	})
	t.Run("is not found if it does not exist", func(t *testing.T) {
		wantCode(t, b.Commands.Cancel(t.Context(), b.Scope, th, "nosuchcommand", command.Interrupt), fault.NotFound)
		wantCode(t, b.Commands.Cancel(t.Context(), b.Scope, "nosuchthread", "nosuchcommand", command.Interrupt), fault.NotFound)
		other := b.Thread(sandbox.Recipe{})
		id := b.Ask(th, "true")
		wantCode(t, b.Commands.Cancel(t.Context(), b.Scope, other, id, command.Interrupt), fault.NotFound)
	})
	t.Run("while its sandbox is built leaves no sandbox", func(t *testing.T) {
		slow := b.Thread(sandbox.Recipe{Setup: "echo preparing; sleep 1000"})
		id := b.Ask(slow, "true")
		b.preparing(slow)
		b.Cancel(slow, id)
		if r := b.Result(slow, id); !r.Cancelled || r.SandboxID != "" {
			t.Errorf("the result is %+v", r)
		}
		if th, err := b.Threads.Get(t.Context(), b.Scope, slow); err != nil || th.Sandbox != "" {
			t.Errorf("the thread is on %q (%v)", th.Sandbox, err)
		}
	})
	t.Run("many at once that have ended does not exhaust the connections", func(t *testing.T) {
		id := b.Ask(th, "true")
		b.Result(th, id)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				if err := b.Commands.Cancel(ctx, b.Scope, th, id, command.Interrupt); err != nil {
					t.Error(detail(err))
				}
			})
		}
		all.Wait()
	})
}

// preparing waits until a thread's sandbox exists, even if it is not ready yet.
func (b *bench) preparing(thread string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if there, err := b.driver.List(b.t.Context(), sandbox.Labels{Thread: thread}); err != nil || len(there) > 0 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatal("there is no sandbox")
		}
	}
}

// The queue forgets a job a day after its end, and then takes a repeated request for a new one.
func testACommandThatTheQueueHasForgotten(t *testing.T, b *bench) {
	th := b.Thread(sandbox.Recipe{})
	c := entry.Command{Command: "echo ran >> runs"}
	b.Result(th, b.AskFor(th, "old", c))
	owner := b.Owner(t)
	ofIt := db.JobSchema + ".river_job where kind = 'run_command' and args->>'command' = 'old' and state = 'completed'"
	completed := func() (n int) {
		if err := owner.QueryRow(t.Context(), "select count(*) from "+ofIt).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	await := func() {
		t.Helper()
		for deadline := time.Now().Add(patience); completed() == 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the job does not end")
			}
		}
	}
	await()
	if _, err := owner.Exec(t.Context(), "delete from "+ofIt); err != nil {
		t.Fatal(err)
	}
	b.AskFor(th, "old", c)
	await() // a new job
	if r := b.Sh(th, "cat runs"); r.Output != "ran\n" || b.Results(th, "old") != 1 {
		t.Errorf("the runs are %q and there are %d results, want one of each", r.Output, b.Results(th, "old"))
	}
}

// neverStarts is a driver in whose boxes commands do not start.
type neverStarts struct{ *commandtest.OwnBoxes }

func (neverStarts) Launch(ctx context.Context, _, _ string, _ sandbox.Command) error {
	<-ctx.Done()
	return fault.From(ctx.Err())
}

func TestTheTimeLimitHoldsDuringTheStart(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = neverStarts{commandtest.RealBoxes(t)}
	b.use(b.serve())
	th := b.Thread(sandbox.Recipe{})
	r := b.Result(th, b.AskFor(th, "never", entry.Command{Command: "true", TimeoutMS: 1000}))
	if r.ExitCode != 124 || !r.TimedOut || r.Error != "" || r.DurationMS < 1000 || r.SandboxID == "" {
		t.Errorf("the result is %+v", r)
	}
}
