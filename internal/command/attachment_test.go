//go:build linux

package command_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// read reads the output of a command from a position to its end.
func (b *bench) read(thread, commandID string, position int64, to ...io.Writer) int64 {
	b.t.Helper()
	for {
		r, err := b.Commands.Read(b.t.Context(), b.Scope, thread, commandID, position, command.Reader{Intent: command.ReadOn})
		if err != nil {
			b.t.Fatalf("after byte %d: %s", position, detail(err))
		}
		for _, p := range r.Pieces {
			if _, err := to[int(p.Channel)%len(to)].Write(p.Data); err != nil {
				b.t.Fatal(err)
			}
			position += int64(len(p.Data))
		}
		if position != r.Position {
			b.t.Fatalf("the next position is %d, want %d", r.Position, position)
		}
		if r.Ended {
			return position
		}
	}
}

// write writes the input of a command, and its end.
func (b *bench) write(thread, commandID string, input []byte) {
	b.t.Helper()
	for position := int64(0); ; {
		rest := input[position:]
		rest = rest[:min(len(rest), 100_000)]
		end := position+int64(len(rest)) == int64(len(input))
		w, err := b.Commands.Write(b.t.Context(), b.Scope, thread, commandID, command.Keys{Position: position, Data: rest, End: end})
		if fault.CodeOf(err) == fault.Unavailable {
			continue // it has not begun
		}
		if err != nil {
			b.t.Errorf("after byte %d: %s", position, detail(err))
			return
		}
		if position = w.Position; w.Closed || end && position == int64(len(input)) {
			return
		}
	}
}

func testAnAttachedCommand(t *testing.T, b *bench) {
	th := b.Thread(sandbox.Recipe{})
	separate := func(line string) string {
		return b.AskFor(th, "", entry.Command{Command: line, Separate: true})
	}
	t.Run("has two separate outputs, byte for byte", func(t *testing.T) {
		id := separate(`printf 'a\000\377'; echo error >&2; printf b; exit 7`)
		var stdout, stderr bytes.Buffer
		n := b.read(th, id, 0, &stdout, &stderr)
		if stdout.String() != "a\x00\xffb" || stderr.String() != "error\n" || n != 10 {
			t.Errorf("stdout %q, stderr %q, %d bytes", stdout.String(), stderr.String(), n)
		}
		if r := b.Result(th, id); r.ExitCode != 7 || r.RawBytes != 10 {
			t.Errorf("the result is %+v", r)
		}
		t.Run("a repeated read at the end returns the end again", func(t *testing.T) {
			if r, err := b.Commands.Read(t.Context(), b.Scope, th, id, 10, command.Reader{Intent: command.ReadOn}); err != nil || !r.Ended {
				t.Errorf("got %+v, %v, want the end", r, err)
			}
		})
		t.Run("reading what is no longer kept is an error", func(t *testing.T) {
			_, err := b.Commands.Read(t.Context(), b.Scope, th, id, 3, command.Reader{Intent: command.ReadOn})
			wantCode(t, err, fault.OutOfRange)
		})
	})
	t.Run("has standard output only for its reader, if it is not to be logged", func(t *testing.T) {
		const size = 300_000 // more than a result holds
		line := fmt.Sprintf("echo before >&2; head -c %d /dev/zero; echo after >&2", size)
		id := b.AskFor(th, "", entry.Command{Command: line, Separate: true, Unlogged: true})
		var stdout, stderr bytes.Buffer
		if n := b.read(th, id, 0, &stdout, &stderr); n != size+13 || !bytes.Equal(stdout.Bytes(), make([]byte, size)) || stderr.String() != "before\nafter\n" {
			t.Errorf("%d bytes, %d of stdout, stderr %q", n, stdout.Len(), stderr.String())
		}
		r := b.Result(th, id)
		if r.Output != "before\nafter\n" || r.OutputBytes != 13 || r.RawBytes != size+13 || r.Truncated || r.ArtifactID != "" {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("waits for a slow reader, which gets every byte", func(t *testing.T) {
		const lines = 500_000 // of 100 bytes: more than any buffer holds
		id := separate(fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) printf "%%099d\n", i }'; echo > written`, lines))
		b.Readable(th, id)
		if r := b.Sh(th, "test -e written"); r.ExitCode == 0 {
			t.Error("the command has ended before its output was read")
		}
		check := &counted{}
		if n := b.read(th, id, 0, check); n != lines*100 || check.wrong != "" {
			t.Errorf("%d bytes: %s", n, check.wrong)
		}
		if r := b.Result(th, id); r.ExitCode != 0 || r.RawBytes != lines*100 || !r.Truncated {
			t.Errorf("the exit code is %d, and the output has %d bytes", r.ExitCode, r.RawBytes)
		}
	})
	t.Run("ends if it is cancelled while it waits for its reader", func(t *testing.T) {
		id := separate("yes")
		b.Readable(th, id)
		b.Cancel(th, id)
		b.read(th, id, 0, io.Discard)
		if r := b.Result(th, id); !r.Cancelled {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("does not wait for a reader that has left", func(t *testing.T) {
		id := separate("head -c 50000000 /dev/zero; exit 4")
		b.Readable(th, id)
		if _, err := b.Commands.Read(t.Context(), b.Scope, th, id, 0, command.Reader{Intent: command.Leave}); err != nil {
			t.Fatal(detail(err))
		}
		if r := b.Result(th, id); r.ExitCode != 4 || r.RawBytes != 50_000_000 {
			t.Errorf("the exit code is %d, and the output has %d bytes", r.ExitCode, r.RawBytes)
		}
		_, err := b.Commands.Read(t.Context(), b.Scope, th, id, 0, command.Reader{Intent: command.ReadOn})
		wantCode(t, err, fault.OutOfRange)
	})
	t.Run("has no output if it cannot run", func(t *testing.T) {
		broken := b.Thread(sandbox.Recipe{Setup: "exit 1"})
		id := b.AskFor(broken, "", entry.Command{Command: "true", Separate: true})
		if n := b.read(broken, id, 0, io.Discard); n != 0 {
			t.Errorf("the output has %d bytes, want none", n)
		}
	})
	t.Run("reads its input to the end", func(t *testing.T) {
		input := make([]byte, 3_000_000)
		for i := range input {
			input[i] = byte(rand.Uint32())
		}
		id := b.AskFor(th, "", entry.Command{Command: "cat; echo end >&2", Separate: true, Input: true})
		go b.write(th, id, input)
		var stdout, stderr bytes.Buffer
		b.read(th, id, 0, &stdout, &stderr)
		if !bytes.Equal(stdout.Bytes(), input) || stderr.String() != "end\n" {
			t.Errorf("the output has %d bytes, want the %d bytes of the input; stderr is %q", stdout.Len(), len(input), stderr.String())
		}
	})
	t.Run("need not read its input", func(t *testing.T) {
		id := b.AskFor(th, "", entry.Command{Command: "exit 3", Input: true})
		b.write(th, id, make([]byte, 3_000_000))
		if r := b.Result(th, id); r.ExitCode != 3 || r.Error != "" {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("reads input that was sent twice only once, and refuses input with a gap", func(t *testing.T) {
		id := b.AskFor(th, "", entry.Command{Command: "echo begun >&2; cat", Input: true})
		b.Printed(th, id, "begun\n")
		for _, call := range []struct {
			position int64
			data     string
			end      bool
		}{{0, "one ", false}, {0, "one two ", false}, {4, "two three", true}, {13, "", true}} {
			if _, err := b.Commands.Write(t.Context(), b.Scope, th, id, command.Keys{Position: call.position, Data: []byte(call.data), End: call.end}); err != nil {
				t.Fatal(detail(err))
			}
		}
		if r := b.Result(th, id); r.Output != "begun\none two three" {
			t.Errorf("the output is %q", r.Output)
		}
		other := b.AskFor(th, "", entry.Command{Command: "echo begun; cat", Input: true})
		b.Printed(th, other, "begun\n")
		if _, err := b.Commands.Write(t.Context(), b.Scope, th, other, command.Keys{Position: 5, Data: []byte("late"), End: false}); fault.CodeOf(err) != fault.OutOfRange {
			t.Errorf("for input after a gap the error is %v, want out of range", err)
		}
		b.Cancel(th, other)
	})
	t.Run("has neither if it was not requested", func(t *testing.T) {
		id := b.Ask(th, "echo out")
		_, err := b.Commands.Read(t.Context(), b.Scope, th, id, 0, command.Reader{Intent: command.ReadOn})
		wantCode(t, err, fault.Precondition)
		_, err = b.Commands.Write(t.Context(), b.Scope, th, id, command.Keys{Position: 0, Data: nil, End: true})
		wantCode(t, err, fault.Precondition)
		_, err = b.Commands.Read(t.Context(), b.Scope, th, "nosuchcommand", 0, command.Reader{Intent: command.ReadOn})
		wantCode(t, err, fault.NotFound)
	})
}

// counted checks that its input consists of numbered lines of 100 bytes.
type counted struct {
	at    int64
	wrong string
}

func (c *counted) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0 && c.wrong == ""; {
		want := fmt.Sprintf("%099d\n", c.at/100+1)[c.at%100:]
		piece := rest[:min(len(rest), len(want))]
		if string(piece) != want[:len(piece)] {
			c.wrong = fmt.Sprintf("at byte %d there is %q, want %q", c.at, piece, want)
		}
		rest, c.at = rest[len(piece):], c.at+int64(len(piece))
	}
	return len(p), nil
}

// A balancer may give the calls of a reader or a writer to any server. Here they go to one that cannot run the command,
// because the thread's sandbox is on another machine.
func TestAnAttachedCommandOfAnotherServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.Thread(sandbox.Recipe{})
	b.Sh(th, "true")
	b.driver = commandtest.NewGated()
	b.use(b.serve())
	t.Run("gets its input and gives its output through any server", func(t *testing.T) {
		input := make([]byte, 3_000_000)
		for i := range input {
			input[i] = byte(rand.Uint32())
		}
		id := b.AskFor(th, "", entry.Command{Command: "cat; echo end >&2; exit 3", Separate: true, Input: true})
		go b.write(th, id, input)
		var stdout, stderr bytes.Buffer
		b.read(th, id, 0, &stdout, &stderr)
		if !bytes.Equal(stdout.Bytes(), input) || stderr.String() != "end\n" {
			t.Errorf("the output has %d bytes, want the %d bytes of the input; stderr is %q", stdout.Len(), len(input), stderr.String())
		}
		if r := b.Result(th, id); r.ExitCode != 3 || r.Error != "" {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("has the same errors", func(t *testing.T) {
		id := b.AskFor(th, "", entry.Command{Command: "cat", Separate: true, Input: true})
		for {
			w, err := b.Commands.Write(t.Context(), b.Scope, th, id, command.Keys{Position: 0, Data: []byte("some"), End: false})
			if err != nil {
				t.Fatal(detail(err))
			}
			if w.Position == 4 {
				break
			}
		}
		_, err := b.Commands.Write(t.Context(), b.Scope, th, id, command.Keys{Position: 5, Data: []byte("late"), End: false})
		wantCode(t, err, fault.OutOfRange)
		b.Cancel(th, id)
		b.read(th, id, 0, io.Discard)
	})
	t.Run("notices that its reader leaves", func(t *testing.T) {
		id := b.AskFor(th, "", entry.Command{Command: "yes | head -c 50000000", Separate: true})
		b.Readable(th, id)
		if _, err := b.Commands.Read(t.Context(), b.Scope, th, id, 0, command.Reader{Intent: command.Leave}); err != nil {
			t.Fatal(detail(err))
		}
		if r := b.Result(th, id); r.RawBytes != 50_000_000 {
			t.Errorf("it wrote %d bytes, want 50000000", r.RawBytes)
		}
	})
	t.Run("leaves no call behind", func(t *testing.T) {
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // a writer's last call may still end
			var left int
			err := b.Owner(t).QueryRow(t.Context(), "select count(*) from server_calls").Scan(&left)
			if err == nil && left == 0 {
				break
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("%d calls are left (%v)", left, err)
			}
		}
	})
	t.Run("can still be read when its server has lost its connections", func(t *testing.T) {
		id := b.AskFor(th, "", entry.Command{Command: "yes", Separate: true})
		b.Readable(th, id)
		b.dropConnections(b.Owner(t))
		var got command.Reading
		read := func() error {
			r, err := b.Commands.Read(t.Context(), b.Scope, th, id, got.Position, command.Reader{Intent: command.ReadOn})
			if err == nil {
				got = r
			}
			return err
		}
		for len(got.Pieces) == 0 {
			again(t, read)
		}
		again(t, func() error { return b.Commands.Cancel(t.Context(), b.Scope, th, id, command.Kill) })
		for !got.Ended {
			again(t, read)
		}
	})
}

// again calls f until the database can be reached. After connections were dropped, several calls in a row may fail: the pool can hold
// connections that it was making meanwhile. The caller of the API would repeat the call, too.
func again(t *testing.T, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		err := f()
		if err == nil {
			return
		}
		if fault.CodeOf(err) != fault.Unavailable || time.Now().After(deadline) {
			t.Fatal(detail(err))
		}
	}
}

// The end of a command's input would tell it that the input is complete, so a command whose input was interrupted must not
// see it.
func TestInputThatBreaksOffEndsItsCommand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.Thread(sandbox.Recipe{})
	id := b.AskFor(th, "", entry.Command{Command: "cat; echo took it for all", Input: true})
	if _, err := b.Commands.Write(t.Context(), b.Scope, th, id, command.Keys{Position: 0, Data: []byte("half"), End: false}); err != nil {
		t.Fatal(detail(err))
	}
	b.Printed(th, id, "half")
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	b.use(b.serve())
	r := b.Result(th, id)
	if r.Output != "half" || !strings.Contains(r.Error, "input ended early") {
		t.Errorf("the result is %+v", r)
	}
	w, err := b.Commands.Write(t.Context(), b.Scope, th, id, command.Keys{Position: 4, Data: []byte("more"), End: true})
	if err != nil || !w.Closed {
		t.Errorf("got %+v, %v, want a closed input", w, err)
	}
}

// attachedDriver is a driver whose commands end with their server, as those of a box with its own kernel.
type attachedDriver struct {
	sandbox.Driver
	exec func(ctx context.Context, ref string, cmd sandbox.Command, exec func() (sandbox.Result, error)) (sandbox.Result, error)
}

func (d attachedDriver) Exec(ctx context.Context, ref string, cmd sandbox.Command) (sandbox.Result, error) {
	return d.exec(ctx, ref, cmd, func() (sandbox.Result, error) { return d.Driver.Exec(ctx, ref, cmd) })
}

// A sandbox may be gone without the server knowing it. The command then runs in a new one.
func TestInputOfACommandWhoseSandboxIsGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		read int // how much input the driver takes before it notices
		want func(entry.CommandResult) bool
	}{
		"goes to the new sandbox": {0, func(r entry.CommandResult) bool { return r.Output == "all of it" && r.ExitCode == 0 && r.Error == "" }},
		"ends the command if a part of it is lost": {3, func(r entry.CommandResult) bool {
			return r.Output == "" && r.ExitCode == -1 && strings.Contains(r.Error, "input ended early")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := database(t)
			driver := attachedDriver{Driver: commandtest.RealBoxes(t)}
			var destroyed atomic.Bool
			driver.exec = func(ctx context.Context, ref string, cmd sandbox.Command, exec func() (sandbox.Result, error)) (sandbox.Result, error) {
				if cmd.Stdin == nil || destroyed.Swap(true) {
					return exec()
				}
				if _, err := io.ReadFull(cmd.Stdin, make([]byte, c.read)); err != nil {
					t.Error(err)
				}
				if err := driver.Destroy(ctx, ref); err != nil {
					t.Error(detail(err))
				}
				cmd.Stdin = nil
				return driver.Driver.Exec(ctx, ref, cmd)
			}
			b.driver = driver
			b.use(b.serve())
			th := b.Thread(sandbox.Recipe{})
			id := b.AskFor(th, "", entry.Command{Command: "cat", Input: true})
			b.write(th, id, []byte("all of it"))
			if r := b.Result(th, id); !c.want(r) {
				t.Errorf("the result is %+v", r)
			}
		})
	}
}

// The end of an input that is empty changes no position, so only the error tells its writer to repeat it.
func TestTheEndOfAnEmptyInputOfACommandThatWaits(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = commandtest.RealBoxes(t)
	b.tune = func(c *config) { c.Limits = jobs.Limits{ThreadRunning: 1} }
	b.use(b.serve())
	th := b.Thread(sandbox.Recipe{})
	first := b.Ask(th, "echo begun; sleep 1000")
	b.Printed(th, first, "begun\n")
	waits := b.AskFor(th, "", entry.Command{Command: "cat; echo ended", Input: true})
	_, err := b.Commands.Write(t.Context(), b.Scope, th, waits, command.Keys{Position: 0, Data: nil, End: true})
	wantCode(t, err, fault.Unavailable)
	b.Cancel(th, first)
	b.write(th, waits, nil)
	if r := b.Result(th, waits); r.Output != "ended\n" || r.Error != "" {
		t.Errorf("the result is %+v", r)
	}
}
