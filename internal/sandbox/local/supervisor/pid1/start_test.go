//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

func TestTheEndOfACommandIsReported(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.greet(time.Minute)
	for line, want := range map[string]func(unix.WaitStatus) bool{
		"exit 0":        func(s unix.WaitStatus) bool { return s.Exited() && s.ExitStatus() == 0 },
		"exit 7":        func(s unix.WaitStatus) bool { return s.ExitStatus() == 7 },
		"kill -KILL $$": func(s unix.WaitStatus) bool { return s.Signaled() && s.Signal() == unix.SIGKILL },
		// Process 1 ignores this signal, and the command must not inherit that.
		"kill -TERM $$": func(s unix.WaitStatus) bool { return s.Signaled() && s.Signal() == unix.SIGTERM },
		"kill -INT $$":  func(s unix.WaitStatus) bool { return s.Signaled() && s.Signal() == unix.SIGINT },
		// Nobody waits for its descendants.
		"sleep 1000 & exit 3": func(s unix.WaitStatus) bool { return s.ExitStatus() == 3 },
	} {
		if status := b.run(b.shell(line)).exits(); !want(status) {
			t.Errorf("%s: the status is %#x", line, uint32(status))
		}
	}
}

func TestACommandRunsInItsDirectoryWithItsArgumentsEnvironmentAndLimits(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p := b.shell(`pwd; echo "$1|$2|$WORD|$(ulimit -n)|$(ls /proc/self/fd 2>/dev/null | wc -w)"`)
	p.Argv = append(p.Argv, "sh", "a b", "")
	p.Env = append(p.Env, "WORD=x y")
	p.Limits = []supervisor.Limit{{Resource: unix.RLIMIT_NOFILE, Value: 99}}
	r := b.run(p)
	status := r.exits()
	text := make([]byte, 4096)
	n, err := r.stdout.Read(text)
	if want := b.dir + "\na b||x y|99|"; err != nil || status != 0 || len(text[:n]) < len(want) || string(text[:len(want)]) != want {
		t.Errorf("it printed %q (%v), want %q", text[:n], err, want)
	}
}

func TestAStubThatIsNotReleasedRunsNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.start(b.shell("touch ran"))
	r.control.Close()
	if status := r.exits(); status.ExitStatus() != 125 || b.exists("ran") {
		t.Errorf("the status is %#x, and it ran: %v", uint32(status), b.exists("ran"))
	}
}

func TestAStubSaysWhatFailed(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	script := filepath.Join(b.dir, "script")
	if err := os.WriteFile(script, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(p *program)
		want   supervisor.Failure
	}{
		"no such program":       {func(p *program) { p.Paths = []string{"/nosuchprogram"} }, supervisor.Failure{Step: supervisor.StepProgram, Errno: uint32(unix.ENOENT)}},
		"not executable":        {func(p *program) { p.Paths = []string{script, "/nosuchprogram"} }, supervisor.Failure{Step: supervisor.StepProgram, Errno: uint32(unix.EACCES)}},
		"no such directory":     {func(p *program) { p.Dir = "/nosuchdirectory" }, supervisor.Failure{Step: supervisor.StepDirectory, Errno: uint32(unix.ENOENT)}},
		"no such limit":         {func(p *program) { p.Limits = []supervisor.Limit{{Resource: 99}} }, supervisor.Failure{Step: supervisor.StepLimits, Errno: uint32(unix.EINVAL)}},
		"no terminal for stdin": {func(p *program) { p.Terminal = true }, supervisor.Failure{Step: supervisor.StepTerminal, Errno: uint32(unix.ENOTTY)}},
	} {
		t.Run(name, func(t *testing.T) {
			p := b.shell("touch ran")
			c.change(&p)
			r := b.start(p)
			if got := r.release(); got == nil || *got != c.want {
				t.Errorf("it says %+v, want %+v", got, c.want)
			}
			if status := r.exits(); status.ExitStatus() != 125 {
				t.Errorf("the status is %#x", uint32(status))
			}
		})
	}
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.run(b.shell("for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.1 &) ; (true &) ; done; exit 4"))
	if status := r.exits(); status.ExitStatus() != 4 {
		t.Errorf("the status is %#x", uint32(status))
	}
	b.until("no child is left", func() bool { return len(b.children()) == 0 })
}

// A program may have any name, even one that looks like another field of its state.
func TestAProgramWithAnyNameIsReported(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	program, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skip(err)
	}
	name := filepath.Join(b.dir, "a) Z 1 (b")
	if err := os.WriteFile(name, program, 0o700); err != nil {
		t.Fatal(err)
	}
	p := b.shell("")
	p.Argv, p.Paths = []string{"[kworker/0:0]", "1000"}, []string{name}
	r := b.run(p)
	if got := b.children(); len(got) != 1 {
		t.Errorf("the children are %v, want one", got)
	}
	if err := unix.PidfdSendSignal(int(r.pidfd.Fd()), unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	if status := r.exits(); status.Signal() != unix.SIGKILL {
		t.Errorf("the status is %#x", uint32(status))
	}
	b.until("no child is left", func() bool { return len(b.children()) == 0 })
}

func TestACommandInTheForegroundEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.greet(time.Minute)
	deaf := b.shell("trap '' TERM HUP INT QUIT; echo begun; while :; do sleep 0.05; done")
	deaf.mode = supervisor.Foreground
	stub := b.shell("touch ran")
	stub.mode = supervisor.Foreground
	for name, start := range map[string]func() *running{
		"deaf to all signals that can be ignored": func() *running {
			r := b.run(deaf)
			b.until("it has begun", func() bool { n, _ := r.stdout.Read(make([]byte, 6)); return n == 6 })
			return r
		},
		"a stub that is not released": func() *running { return b.start(stub) },
	} {
		t.Run(name, func(t *testing.T) {
			r := start()
			r.conn.Close()
			r.isGone()
		})
	}
	if b.exists("ran") {
		t.Error("the stub ran its program")
	}
}

func TestACommandInTheBackgroundOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.greet(time.Minute)
	r := b.run(b.shell("until test -e go; do sleep 0.05; done; touch done"))
	r.conn.Close()
	b.greet(time.Minute) // process 1 has seen the end of the connection by now
	if r.ends(0) {
		t.Fatal("the command has ended")
	}
	b.touch("go")
	r.isGone()
	if !b.exists("done") {
		t.Error("the command did not reach its end")
	}
}

func TestSignalsDoNotEndProcess1(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	c := b.greet(time.Minute)
	r := b.run(b.shell("for s in TERM INT HUP QUIT USR1 USR2 PIPE ALRM KILL STOP; do kill -$s 1; done; exit 2"))
	if status := r.exits(); status.ExitStatus() != 2 {
		t.Errorf("the command ended with %#x", uint32(status))
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGPIPE} { // from outside
		if err := b.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	b.greet(time.Minute)
	b.tell(c, binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Hello}, uint64(time.Minute)))
	b.hear(c, supervisor.Welcome)
}

func TestTheBoxEndsAfterItsLastServer(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	first, second := b.greet(time.Hour), b.greet(time.Millisecond)
	r := b.run(b.shell("sleep 1000"))
	first.Close()
	third := b.greet(time.Millisecond) // another connection is still open
	second.Close()
	b.tell(third, binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Hello}, uint64(time.Millisecond)))
	b.hear(third, supervisor.Welcome)
	third.Close()
	if err := b.ended(); err != nil {
		t.Errorf("process 1 ended with %v", err)
	}
	r.isGone()
}

func TestMalformedRequestsCloseTheirConnectionOnly(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.greet(time.Minute)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	garbage := filepath.Join(b.dir, "garbage")
	if err := os.WriteFile(garbage, []byte("this describes no command, and is longer than the numbers at its beginning"), 0o600); err != nil {
		t.Fatal(err)
	}
	described, err := os.Open(garbage)
	if err != nil {
		t.Fatal(err)
	}
	defer described.Close()
	open := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := open()
	start := func(mode byte, rest ...byte) []byte {
		return append(append([]byte{supervisor.Version, supervisor.Start, mode}, make([]byte, 8)...), rest...)
	}
	for name, c := range map[string]struct {
		message []byte
		files   []*os.File
	}{
		"of another version":            {append([]byte{supervisor.Version + 1, supervisor.Hello}, make([]byte, 8)...), nil},
		"too short":                     {[]byte{supervisor.Version}, nil},
		"of an unknown kind":            {[]byte{supervisor.Version, '?'}, nil},
		"a short hello":                 {[]byte{supervisor.Version, supervisor.Hello, 1}, nil},
		"a start without files":         {start(supervisor.Background, 0, 0), nil},
		"a start with too few files":    {start(supervisor.Background, 0, 0), []*os.File{null, null, null, null}},
		"a start with too many groups":  {start(supervisor.Background, 255, 0), []*os.File{null, null, null, null, null}},
		"a recorded start without any":  {start(supervisor.Recorded, 0, supervisor.Merged), []*os.File{null, null, null, null, null}},
		"a description that is garbage": {start(supervisor.Background, 0, 0), []*os.File{described, null, null, null, null}},
		"an empty description":          {start(supervisor.Background, 0, 0), []*os.File{null, null, null, null, null}},
		"a release without a record":    {append([]byte{supervisor.Version, supervisor.Release}, make([]byte, 8)...), nil},
	} {
		t.Run(name, func(t *testing.T) {
			conn := b.dial()
			b.tell(conn, c.message, c.files...)
			b.hangsUp(conn)
		})
	}
	t.Run("and leave no file open", func(t *testing.T) {
		b.until("the files are closed", func() bool { return open() <= before })
	})
	t.Run("and the next command runs", func(t *testing.T) {
		if status := b.run(b.shell("exit 5")).exits(); status.ExitStatus() != 5 {
			t.Errorf("the status is %#x", uint32(status))
		}
	})
}

// Process 1 serves all commands of a box, so it must not wait for a server that does not read.
func TestAServerThatDoesNotReadItsAnswersHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	c := b.greet(time.Minute)
	hello := binary.LittleEndian.AppendUint64([]byte{supervisor.Version, supervisor.Hello}, uint64(time.Minute))
	for range 5000 {
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
	}
	if status := b.run(b.shell("exit 6")).exits(); status.ExitStatus() != 6 {
		t.Errorf("the status is %#x", uint32(status))
	}
}

// The control socket closes when the stub becomes its program. The program gets none of process 1's own files.
func TestACommandGetsNoFileOfProcess1(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.run(b.shell("until test -e go; do sleep 0.05; done"))
	var pid string
	for child := range b.children() {
		pid = strconv.Itoa(child)
	}
	list, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil || len(list) != 3 {
		t.Errorf("it has the files %v (%v), want three", list, err)
	}
	b.touch("go")
	r.exits()
	_, _ = io.Copy(io.Discard, r.control)
}
