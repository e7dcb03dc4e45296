package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestATerminalInASandbox types into arbe x -it on a real terminal.
func TestATerminalInASandbox(t *testing.T) {
	t.Parallel()
	server := startUp(t)
	thread := server.arbe(t, "thread", "create", "--name", "terminals", "--quiet")
	x := func(t *testing.T, args ...string) *typist {
		t.Helper()
		return server.typist(t, append([]string{"x", "-it", "-t", thread}, args...)...)
	}

	t.Run("a shell", func(t *testing.T) {
		s := x(t)
		s.types("PS1='$ '; stty size; echo $TERM; tty\r")
		s.shows("30 90\r\nvt100\r\n/dev/pts/")
		s.resizes(41, 101)
		s.types("until test \"$(stty size)\" = '41 101'; do sleep 0.05; done; echo it is lar'ger'\r")
		s.shows("it is larger\r\n")
		// The program reports that it is ready. If the shell got the key before that, the program would keep running.
		s.types("trap 'echo inter'rupted INT; sh -c \"echo rea''dy; exec sleep 1000\"\r")
		s.shows("ready\r\n")
		s.types("\x03")
		s.shows("^C")
		s.types("echo st'ill' there\r")
		s.shows("still there\r\n")
		s.types("(echo sev''en; exit 7)\r")
		s.shows("seven\r\n")
		s.shows("$ ") // a Ctrl-D before the prompt would not be read by the shell
		s.types("\x04")
		s.exits(7)
	})
	t.Run("a full-screen program", func(t *testing.T) {
		s := x(t, "--", "sh", "-c", `printf 'before\n\033[?1049h'; stty raw -echo; printf 'keys: '; dd bs=1 count=4 2>/dev/null | od -An -tx1; stty sane; printf 'hidden\033[?1049l'; echo after`)
		s.shows("keys: ")
		s.types("\x1b[A\x03")
		s.shows("1b 5b 41 03")
		s.shows("after")
		s.exits(0)
		log := server.arbe(t, "thread", "entries", "list", thread, "--tail", "1")
		if !strings.Contains(log, "before\nafter\n") || strings.Contains(log, "hidden") || strings.Contains(log, "\x1b") {
			t.Errorf("the log shows %q", log)
		}
	})
	t.Run("vim", func(t *testing.T) {
		if _, err := exec.LookPath("vim"); err != nil {
			t.Skip("this machine has no vim")
		}
		s := x(t, "--", "vim", "-u", "NONE", "a.txt")
		s.shows("a.txt")
		s.types("ihello from vim\x1b:wq\r")
		s.exits(0)
		if got := server.arbe(t, "x", "-t", thread, "cat", "a.txt"); got != "hello from vim" {
			t.Errorf("the file has %q", got)
		}
	})
	t.Run("a prompt of python", func(t *testing.T) {
		if _, err := os.Stat("/usr/bin/python3"); err != nil {
			t.Skip("this machine has no python3")
		}
		s := x(t, "--", "/usr/bin/python3", "-q")
		s.shows(">>> ")
		s.types("6 * 7\r")
		s.shows("\n42\r\n")
		s.shows(">>> ") // a Ctrl-D before the prompt would not be read by Python
		s.types("\x04")
		s.exits(0)
	})
	t.Run("passwords are not in the log", func(t *testing.T) {
		s := x(t, "-c", `stty -echo; echo password; read p; stty echo; echo ${#p} characters`)
		s.shows("password")
		s.types("tr0ub4dor\r")
		s.shows("9 characters")
		s.exits(0)
		if log := server.arbe(t, "thread", "entries", "list", thread, "--tail", "3", "--json"); strings.Contains(log, "tr0ub4dor") {
			t.Errorf("the log has it: %s", log)
		}
	})
	t.Run("arbe is killed, and the command is joined again", func(t *testing.T) {
		s := x(t, "-c", `trap 'echo size: $(stty size)' WINCH; echo ready; while read line; do echo "got $line"; done; echo bye`)
		s.shows("ready")
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-s.ended
		s = server.typist(t, "attach", "-t", thread)
		s.types("again\r")
		s.shows("got again")
		s.types("~.")
		s.shows("arbe attach -t " + thread)
		s.exits(130)
		s = server.typist(t, "attach", "-t", thread)
		s.types("once more\r")
		s.shows("got once more")
		other := server.typist(t, "attach", "-t", thread)
		other.types("from another\r")
		other.shows("got from another")
		s.shows("another terminal is connected")
		s.exits(6)
		other.types("\x04")
		other.shows("bye")
		other.exits(0)
	})
	t.Run("the server is killed", func(t *testing.T) {
		s := x(t, "--keep", "-c", `echo ready; while read line; do echo "got $line"; done; stty size; exit 3`)
		s.shows("ready")
		server.kill(t)
		server.start(t)
		s.types("after\r")
		s.shows("got after")
		s.types("\x04")
		s.shows("30 90")
		s.exits(3)
	})
	t.Run("nothing to type into", func(t *testing.T) {
		cmd := server.command("x", "-it", "-t", thread)
		said, err := cmd.CombinedOutput()
		if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != 2 || !strings.Contains(string(said), "needs a terminal") {
			t.Errorf("%v: %s", err, said)
		}
		s := server.typist(t, "x", "-t", thread, "--", "bash")
		s.shows("arbe x -it gives it this terminal")
		s.exits(0)
	})
	t.Run("in a new thread of an environment", func(t *testing.T) {
		server.arbe(t, "env", "create", "apart", "-q")
		s := server.typist(t, "x", "-e", "apart", "-e", "WORD=hello", "--", "sh", "-c", "echo $WORD; pwd; exit 4")
		s.shows("in the new thread ")
		s.shows("hello\r\n")
		s.exits(4)
		if list := server.arbe(t, "thread", "list", "--json"); !strings.Contains(list, `"name":"sh -c echo $WORD; pwd; exit 4"`) || !strings.Contains(list, `"environment_id":"`+server.arbe(t, "env", "show", "apart", "-q")+`"`) {
			t.Errorf("no thread has the environment: %s", list)
		}
	})
	t.Run("a step of a new sandbox is shown until there is output", func(t *testing.T) {
		// A fast preparation is over before its steps are shown.
		server.arbe(t, "env", "create", "slow", "--setup", "sleep 1", "-q")
		id := server.arbe(t, "thread", "create", "--name", "followed", "--env", "slow", "-q")
		follower := server.typist(t, "thread", "entries", "list", id, "--follow")
		server.arbe(t, "say", id, "it follows", "-q")
		follower.shows("it follows")
		server.arbe(t, "x", "-t", id, "--", "echo", "first output")
		follower.shows("setup …")
		follower.shows("\r\x1b[K")
		follower.shows("first output")
	})
	t.Run("without waiting", func(t *testing.T) {
		id := server.arbe(t, "x", "-t", thread, "--detach", "-w", "/tmp", "--env", "A=b c", "-c", `test "$PWD $A" = "/tmp b c" && exit 5`)
		cmd := server.command("wait", "-t", thread, id[:8])
		said, err := cmd.CombinedOutput()
		if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != 5 {
			t.Errorf("%v: %s", err, said)
		}
	})
}

// command returns an arbe that talks to the server.
func (s *upServer) command(args ...string) *exec.Cmd {
	cmd := exec.Command("arbe", args...)
	cmd.Env = append(os.Environ(), "ARBE_DATA_DIR="+s.dataDir, "XDG_STATE_HOME="+s.state(), "TERM=vt100")
	return cmd
}

// arbe runs arbe, and returns its output.
func (s *upServer) arbe(t *testing.T, args ...string) string {
	t.Helper()
	cmd := s.command(args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("arbe %q: %v\n%s", args, err, &said)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// typist is an arbe on a terminal and the person who types there.
type typist struct {
	t      *testing.T
	cmd    *exec.Cmd
	side   *os.File
	before unix.Termios
	inside *os.File
	ended  chan error

	mu      sync.Mutex
	shown   bytes.Buffer
	seen    int // how much of the text was searched
	changed chan struct{}
}

func (s *upServer) typist(t *testing.T, args ...string) *typist {
	t.Helper()
	return startTypist(t, s.command(args...))
}

// startTypist starts a command on its own terminal.
func startTypist(t *testing.T, cmd *exec.Cmd) *typist {
	t.Helper()
	side, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this machine makes no terminals")
	}
	err = unix.IoctlSetPointerInt(int(side.Fd()), unix.TIOCSPTLCK, 0)
	number, numberErr := unix.IoctlGetInt(int(side.Fd()), unix.TIOCGPTN)
	if err := errors.Join(err, numberErr); err != nil {
		t.Fatal(err)
	}
	inside, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &typist{t: t, side: side, inside: inside, ended: make(chan error, 1), changed: make(chan struct{}, 1)}
	p.resizes(30, 90)
	before, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	p.before = *before
	p.cmd = cmd
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inside, inside, inside
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	go func() { _, _ = io.Copy(p, side) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		inside.Close()
		side.Close()
	})
	return p
}

// Write receives what the terminal shows.
func (p *typist) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown.Write(text)
	select {
	case p.changed <- struct{}{}:
	default:
	}
	return len(text), nil
}

func (p *typist) types(keys string) {
	p.t.Helper()
	if _, err := io.WriteString(p.side, keys); err != nil {
		p.t.Fatal(err)
	}
}

func (p *typist) resizes(rows, columns uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.side.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		p.t.Fatal(err)
	}
}

// shows waits until the terminal shows a text after the previous one.
func (p *typist) shows(want string) {
	p.t.Helper()
	timeout := time.After(5 * time.Minute)
	for {
		p.mu.Lock()
		shown := p.shown.String()[p.seen:]
		at := strings.Index(shown, want)
		if at >= 0 {
			p.seen += at + len(want)
		}
		p.mu.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-p.changed:
		case <-timeout:
			p.t.Fatalf("it does not show %q: %q", want, shown)
		}
	}
}

// exits waits until arbe has ended, and checks that it restored the terminal.
func (p *typist) exits(code int) {
	p.t.Helper()
	select {
	case err := <-p.ended:
		got := p.cmd.ProcessState.ExitCode()
		if got != code {
			p.t.Errorf("it exits with %d (%v), want %d: %q", got, err, code, p.shown.String())
		}
	case <-time.After(5 * time.Minute):
		p.t.Fatalf("it does not end: %q", p.shown.String())
	}
	after, err := unix.IoctlGetTermios(int(p.inside.Fd()), unix.TCGETS)
	if err != nil || fmt.Sprint(*after) != fmt.Sprint(p.before) {
		p.t.Errorf("the terminal is not as it was: %v, %+v, %+v", err, after, p.before)
	}
}

// text returns everything that the terminal has shown.
func (p *typist) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown.String()
}
