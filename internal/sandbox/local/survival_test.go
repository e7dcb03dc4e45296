//go:build linux

package local_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest"
)

func TestProcessesSurviveADriverThatClosesAndOpensAgain(t *testing.T) {
	dir := t.TempDir()
	sandboxtest.RunSurvival(t, func(t *testing.T) sandbox.Driver {
		return newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	})
}

func TestLaunchedCommandsSurvive(t *testing.T) {
	dir := t.TempDir()
	sandboxtest.RunLaunches(t, func(t *testing.T) sandbox.Launcher {
		return newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	})
}

func TestTerminals(t *testing.T) {
	dir := t.TempDir()
	sandboxtest.RunTerminals(t, func(t *testing.T) sandbox.Terminals {
		return newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	})
}

func TestALaunchedCommandOfABoxThatEndedReadsAsKilled(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir})
	ref := create(t, d, sandbox.Spec{ID: word("killed")})
	if err := d.Launch(t.Context(), ref, "one", sandbox.Command{Argv: []string{"sh", "-c", "echo begun; sleep 5000"}}); err != nil {
		t.Fatal(err)
	}
	follow := func(to func(sandbox.Record) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := d.Follow(ctx, ref, "one", 0, to); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}
	begun, ended := make(chan struct{}), make(chan int, 1)
	go func() {
		code := -1
		_ = d.Follow(context.Background(), ref, "one", 0, func(r sandbox.Record) error {
			if r.Kind == sandbox.RecordStdout {
				close(begun)
			}
			if r.Kind == sandbox.RecordExit {
				code = r.ExitCode
			}
			return nil
		})
		ended <- code
	}()
	<-begun
	closeDriver(t, d) // without a grace
	if code := <-ended; code != 137 {
		t.Errorf("while it was followed: exit code %d", code)
	}
	d = newDriver(t, local.Config{Dir: dir})
	defer closeDriver(t, d)
	follow(func(r sandbox.Record) error {
		if r.Kind == sandbox.RecordExit && (r.ExitCode != 137 || !r.BoxEnded) {
			t.Errorf("by the next driver: %+v", r)
		}
		return nil
	})
}

// halt closes a driver and ends everything that runs.
func halt(t *testing.T, d *local.Driver) {
	t.Helper()
	if err := d.Halt(context.Background()); err != nil {
		t.Errorf("halt: %s", fault.From(err).Detail())
	}
}

func TestProcessesSurviveAKilledServer(t *testing.T) {
	dir, id := t.TempDir(), word("survivor")
	t.Setenv("ARBE_TEST_GRACE", "1m")
	startAndKill(t, dir, id)
	// A server of another directory must not touch boxes that wait for their own server.
	other := newDriver(t, local.Config{Dir: t.TempDir(), Grace: time.Minute})
	closeDriver(t, other)
	if running := traces(t, id); !strings.Contains(running, "process sh") {
		t.Fatalf("nothing survived:\n%s", running)
	}
	d := newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	ref := found(t, d, id)
	if got := sh(t, d, ref, "cat f; ps ax | grep -c 'sleep [5]000; :'"); got != "written\n1\n" {
		t.Errorf("in the box: %q", got)
	}
	if err := d.Destroy(t.Context(), ref); err != nil {
		t.Error(fault.From(err).Detail())
	}
	if left := traces(t, id); left != "" {
		t.Errorf("destroyed, and this is left:\n%s", left)
	}
	halt(t, d)
	if left := traces(t, filepath.Base(filepath.Dir(dir))); left != "" {
		t.Errorf("halted, and this is left:\n%s", left)
	}
}

func TestABoxDoesNotSurviveItsServerForEver(t *testing.T) {
	dir, id := t.TempDir(), word("forsaken")
	t.Setenv("ARBE_TEST_GRACE", "1s")
	startAndKill(t, dir, id)
	for deadline := time.Now().Add(patience); strings.Contains(traces(t, id), "process sh"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still running:\n%s", traces(t, id))
		}
	}
	d := newDriver(t, local.Config{Dir: dir, Grace: time.Second})
	if got := sh(t, d, found(t, d, id), "cat f; ps ax | grep -c '[s]leep 5000'"); got != "written\n0\n" {
		t.Errorf("in the box: %q", got)
	}
	halt(t, d)
}

// Process 1 drops connections of a server with another version of the protocol. An upgrade that changes the version
// interrupts running commands, and the next server reports this.
func TestABoxOfAnotherVersionEndsItsCommandsAndIsUsable(t *testing.T) {
	dir, id := t.TempDir(), word("version")
	d := newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	ref := create(t, d, sandbox.Spec{ID: id})
	launch := sandbox.Command{Argv: []string{"sh", "-c", "echo ran >> runs; echo begun; sleep 5000"}, Complete: true}
	if err := d.Launch(t.Context(), ref, "one", launch); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	begun := errors.New("begun")
	if err := d.Follow(ctx, ref, "one", 0, func(r sandbox.Record) error {
		if r.Kind == sandbox.RecordStdout {
			return begun
		}
		return nil
	}); err != begun {
		t.Fatal(err)
	}
	closeDriver(t, d)
	refusing(t, dir, id)

	d = newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	for range 2 { // launching it again runs nothing
		var output strings.Builder
		var last sandbox.Record
		if err := d.Follow(ctx, ref, "one", 0, func(r sandbox.Record) error {
			output.Write(r.Data)
			last = r
			return nil
		}); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		if output.String() != "begun\n" || last.Kind != sandbox.RecordExit || !last.BoxEnded || last.ExitCode != 137 {
			t.Errorf("its record has %q and ends with %+v", output.String(), last)
		}
		if err := d.Launch(ctx, ref, "one", launch); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}
	if got := sh(t, d, ref, "cat runs; ps ax | grep -c '[s]leep 5000'"); got != "ran\n0\n" {
		t.Errorf("in the box: %q", got)
	}
	halt(t, d)
}

// refusing replaces the socket of a box's process 1 with one that drops every new connection.
func refusing(t *testing.T, dir, id string) {
	t.Helper()
	var sockets []string
	for _, runs := range []string{"/run/arbe", filepath.Join(dir, "run")} {
		found, err := filepath.Glob(filepath.Join(runs, "*", id+".*", "supervisor"))
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, found...)
	}
	if len(sockets) != 1 {
		t.Fatalf("the sockets of the box are %q", sockets)
	}
	if err := os.Remove(sockets[0]); err != nil {
		t.Fatal(err)
	}
	parent, err := os.Open(filepath.Dir(sockets[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	// A path may have only 107 characters.
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: fmt.Sprintf("/proc/self/fd/%d/supervisor", parent.Fd())})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
}

func TestHaltingLeavesNothingRunning(t *testing.T) {
	dir, id := t.TempDir(), word("halted")
	d := newDriver(t, local.Config{Dir: dir, Grace: time.Minute})
	ref := create(t, d, sandbox.Spec{ID: id})
	sh(t, d, ref, "sleep 5000 &")
	halt(t, d)
	if left := traces(t, id); left != "" {
		t.Errorf("halted, and this is left:\n%s", left)
	}
}

// The kernel reuses the numbers of processes and sessions. The record of an ended command names a number that may
// belong to another process by now.
func TestEndingACommandEndsNoProcessThatGotItsNumber(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, local.Config{Dir: dir})
	defer closeDriver(t, d)
	ref := create(t, d, sandbox.Spec{ID: word("reused")})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := d.Launch(ctx, ref, "new", sandbox.Command{Argv: []string{"sh", "-c", "echo begun; cat"}, Input: true}); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	records, err := filepath.Glob(filepath.Join(dir, "boxes", "*", "records"))
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	// begun makes the record of a command with this process number and start time that has no end.
	begun := func(id string, pid, started uint64) {
		entry := make([]byte, supervisor.EntryHeader)
		for _, n := range []uint64{pid, started, 0} {
			entry = binary.LittleEndian.AppendUint64(entry, n)
		}
		supervisor.PutHeader(entry, supervisor.EntryStart, time.Now().UnixNano())
		if err := os.WriteFile(filepath.Join(records[0], id), entry, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	end := func(id string) {
		for _, err := range []error{d.Interrupt(ctx, ref, id), d.End(ctx, ref, id, 0)} {
			if err != nil {
				t.Error(fault.From(err).Detail())
			}
		}
	}
	t.Run("on the machine", func(t *testing.T) {
		p := newEcho(t, "cat")
		begun("outside", uint64(p.pid), 1)
		end("outside")
		p.wantAlive(t)
	})
	t.Run("as a session on the machine", func(t *testing.T) {
		p := newEcho(t, "exec 3<&0; cat <&3 & exit")
		begun("session", uint64(p.pid), 1)
		end("session")
		p.wantAlive(t)
	})
	t.Run("in the sandbox", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(records[0], "new"))
		if err != nil {
			t.Fatal(err)
		}
		_, _, content, _ := supervisor.DecodeEntry(text)
		begun("old", binary.LittleEndian.Uint64(content), binary.LittleEndian.Uint64(content[8:])-1)
		end("old")
		input, err := d.Input(ctx, ref, "new")
		if err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		_, err = io.WriteString(input, "still there")
		if err = errors.Join(err, input.Close()); err != nil {
			t.Errorf("writing to it: %v", err)
		}
		var output strings.Builder
		code := -1
		err = d.Follow(ctx, ref, "new", 0, func(r sandbox.Record) error {
			output.Write(r.Data)
			code = r.ExitCode
			return nil
		})
		if err != nil || output.String() != "begun\nstill there" || code != 0 {
			t.Errorf("it wrote %q and ended with %d (%v)", output.String(), code, err)
		}
	})
}

// echo is a session of this machine in which a process writes what it reads.
type echo struct {
	pid           int // the number of the session and of its first process
	stdin, stdout *os.File
}

// newEcho starts a shell line as a session. It returns when the shell has replaced itself with cat or has exited.
func newEcho(t *testing.T, line string) echo {
	t.Helper()
	inside, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, outside, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Stdin, cmd.Stdout, cmd.SysProcAttr = inside, outside, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inside.Close()
	outside.Close()
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		stdin.Close() // ends cat
		stdout.Close()
		<-exited
	})
	e := echo{pid: cmd.Process.Pid, stdin: stdin, stdout: stdout}
	if strings.HasSuffix(line, "exit") {
		<-exited
	}
	e.wantAlive(t)
	return e
}

// wantAlive checks that a line is echoed.
func (e echo) wantAlive(t *testing.T) {
	t.Helper()
	const line = "line\n"
	got := make([]byte, len(line))
	_, err := io.WriteString(e.stdin, line)
	if err == nil {
		_, err = io.ReadFull(e.stdout, got)
	}
	if err != nil || string(got) != line {
		t.Errorf("it was ended: %q, %v", got, err)
	}
}
