//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// RunTerminals checks the promises about commands with a terminal. Each call of open opens a driver over the same boxes.
func RunTerminals(t *testing.T, open func(t *testing.T) sandbox.Terminals) {
	d := open(t)
	ref, err := d.Create(t.Context(), sandbox.Spec{ID: freshID(), Limits: small})
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	defer func() {
		if err := d.Destroy(context.Background(), ref); err != nil {
			t.Error(fault.From(err).Detail())
		}
		_ = d.Close(context.Background())
	}()
	t.Run("what a program learns of its terminal", func(t *testing.T) {
		s := session(t, d, ref, "learns", `tty; stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2 && test -O "$(tty)" && echo mine; ps -o tpgid= -p $$ | tr -d ' '; echo $$`)
		got := s.end(t, 0)
		lines := strings.Split(got, "\r\n")
		if len(lines) < 6 || !strings.HasPrefix(lines[0], "/dev/pts/") || lines[1] != "31 97" || lines[2] != "vt220" || lines[3] != "mine" || lines[4] != lines[5] {
			t.Errorf("it printed %q", got)
		}
	})
	t.Run("its keys", func(t *testing.T) {
		s := session(t, d, ref, "keys", `trap 'echo interrupted; on=1' INT; echo ready; read a; echo "a=$a"; until [ "$on" ]; do sleep 0.05; done; stty -echo; echo quiet; read b; echo "b=$b"; cat; echo after`)
		s.await(t, "ready")
		s.write(t, "hällo\x7f\x7f\x7f\x7fi\r")
		s.await(t, "a=hi")
		s.write(t, "\x03")
		s.await(t, "interrupted")
		s.await(t, "quiet")
		s.write(t, "secret\r\x04")
		s.await(t, "after")
		if got := s.end(t, 0); strings.Count(got, "secret") != 1 || !strings.Contains(got, "b=secret") {
			t.Errorf("it printed %q", got)
		}
	})
	t.Run("two who type at once", func(t *testing.T) {
		s := session(t, d, ref, "two", `echo ready; read a; echo "a=$a"`)
		s.await(t, "ready")
		one, another := s.open(t), s.open(t)
		for _, step := range []struct {
			in   io.Writer
			text string
		}{{one, "to"}, {another, "ge"}, {another, "the"}, {one, "r"}, {another, "\r"}} {
			if _, err := io.WriteString(step.in, step.text); err != nil {
				t.Fatal(fault.From(err).Detail())
			}
		}
		if err := errors.Join(one.Close(), another.Close()); err != nil {
			t.Error(err)
		}
		s.await(t, "a=together")
		s.end(t, 0)
	})
	t.Run("a program that reads each key", func(t *testing.T) {
		s := session(t, d, ref, "raw", `stty raw -echo; printf ready; dd bs=1 count=4 2>/dev/null | od -An -tx1; stty sane`)
		s.await(t, "ready")
		s.write(t, "\x03\x04\r\x1b")
		s.await(t, "03 04 0d 1b")
		s.end(t, 0)
	})
	t.Run("its size changes", func(t *testing.T) {
		s := session(t, d, ref, "size", `trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done`)
		s.await(t, "ready")
		if err := d.Resize(t.Context(), ref, "size", sandbox.TerminalSize{Rows: 50, Columns: 132}); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		s.await(t, "50 132")
		s.end(t, 3)
		if err := d.Resize(t.Context(), ref, "size", sandbox.TerminalSize{Rows: 1, Columns: 1}); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("resizing the terminal of an ended command: %v", err)
		}
	})
	t.Run("it is hung up on", func(t *testing.T) {
		s := session(t, d, ref, "gone", `trap 'echo bye; exit 4' HUP; echo ready; while :; do sleep 0.05; done`)
		s.await(t, "ready")
		if err := d.HangUp(t.Context(), ref, "gone"); err != nil {
			t.Fatal(err)
		}
		s.await(t, "bye")
		s.end(t, 4)
	})
	t.Run("its last words", func(t *testing.T) {
		for range 30 {
			s := session(t, d, ref, "last", `echo the last words`)
			if got := s.end(t, 0); got != "the last words\r\n" {
				t.Fatalf("it printed %q", got)
			}
		}
	})
	t.Run("another driver", func(t *testing.T) {
		s := session(t, d, ref, "survives", `echo ready; read a; echo "a=$a"; trap 'stty size' WINCH; echo trapped; until read b; do :; done; echo "b=$b"`)
		s.await(t, "ready")
		s.write(t, "one\r")
		s.await(t, "trapped")
		s.leave()
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		d = open(t)
		s = attend(t, d, ref, "survives")
		s.await(t, "a=one")
		if err := d.Resize(t.Context(), ref, "survives", sandbox.TerminalSize{Rows: 51, Columns: 133}); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
		s.await(t, "51 133")
		s.write(t, "two\r")
		s.await(t, "b=two")
		s.end(t, 0)
	})
}

// terminalSession is a command with a terminal.
type terminalSession struct {
	driver  sandbox.Terminals
	ref, id string
	leave   context.CancelFunc
	exit    chan int

	mu      sync.Mutex
	printed bytes.Buffer
	changed chan struct{}
}

// session launches a script for a shell.
func session(t *testing.T, d sandbox.Terminals, ref, id, script string) *terminalSession {
	t.Helper()
	err := d.Launch(t.Context(), ref, id, sandbox.Command{
		Argv: []string{"sh", "-c", script}, Merged: true, Complete: true, Input: true,
		Terminal: &sandbox.Terminal{TerminalSize: sandbox.TerminalSize{Rows: 31, Columns: 97}, Kind: "vt220"},
	})
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return attend(t, d, ref, id)
}

// attend follows a launched command.
func attend(t *testing.T, d sandbox.Terminals, ref, id string) *terminalSession {
	ctx, leave := context.WithTimeout(context.Background(), patience)
	t.Cleanup(leave)
	s := &terminalSession{driver: d, ref: ref, id: id, leave: leave, exit: make(chan int, 1), changed: make(chan struct{}, 1)}
	go func() {
		_ = d.Follow(ctx, ref, id, 0, func(r sandbox.Record) error {
			s.mu.Lock()
			s.printed.Write(r.Data)
			s.mu.Unlock()
			if r.Kind == sandbox.RecordExit {
				s.exit <- r.ExitCode
			}
			select {
			case s.changed <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	return s
}

func (s *terminalSession) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.printed.String()
}

// await waits until the command has printed a text.
func (s *terminalSession) await(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(patience)
	for !strings.Contains(s.text(), want) {
		select {
		case <-s.changed:
		case <-timeout:
			t.Fatalf("it does not print %q: %q", want, s.text())
		}
	}
}

// open opens the input of the command.
func (s *terminalSession) open(t *testing.T) io.WriteCloser {
	t.Helper()
	in, err := s.driver.Input(t.Context(), s.ref, s.id)
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return in
}

// write types a text.
func (s *terminalSession) write(t *testing.T, text string) {
	t.Helper()
	in := s.open(t)
	if _, err := io.WriteString(in, text); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	in.Close()
}

// end waits for the end of the command, and returns its output.
func (s *terminalSession) end(t *testing.T, code int) string {
	t.Helper()
	select {
	case got := <-s.exit:
		if got != code {
			t.Errorf("it exits with %d, want %d: %q", got, code, s.text())
		}
	case <-time.After(patience):
		t.Fatalf("it does not end: %q", s.text())
	}
	if err := s.driver.Forget(t.Context(), s.ref, s.id); err != nil {
		t.Fatal(err)
	}
	return s.text()
}
