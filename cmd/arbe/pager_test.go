package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
)

// pagedArbe returns an arbe that has a pager and needs no server.
func pagedArbe(t *testing.T, pager string, args ...string) *exec.Cmd {
	cmd := exec.Command("arbe", args...)
	cmd.Env = append(os.Environ(), "ARBE_PAGER="+pager, "PAGER=", "TERM=vt100", "HOME="+t.TempDir(), "XDG_STATE_HOME=", "ARBE_DATA_DIR="+t.TempDir())
	return cmd
}

// The terminal has 30 lines.
func TestWhatIsLongerThanTheTerminalGoesThroughThePager(t *testing.T) {
	t.Parallel()
	const marks = "sed 's/^/~~ /'"
	for _, c := range []struct {
		name  string
		args  []string
		shows string
	}{
		{"help about a verb", []string{"help", "x"}, "~~ Run a command"},
		{"the same as a flag", []string{"x", "--help"}, "~~ Run a command"},
		{"help about everything", nil, "~~ arbe runs threads"},
		{"a topic", []string{"help", "exit-codes"}, "~~ arbe exits with"},
		{"a verb", []string{"config"}, "~~ "},
		{"what fits", []string{"profile", "list"}, "local"},
		{"another verb", []string{"version"}, "arbe"},
		{"with --no-pager", []string{"help", "x", "--no-pager"}, "Run a command"},
		{"JSON", []string{"config", "--json"}, "{"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startTypist(t, pagedArbe(t, marks, c.args...))
			s.shows(c.shows)
			s.exits(0)
			if text := s.text(); strings.HasPrefix(c.shows, "~~ ") != strings.Contains(text, "~~ ") {
				t.Errorf("it shows %q", text)
			}
		})
	}
	t.Run("into a pipe", func(t *testing.T) {
		t.Parallel()
		out, err := pagedArbe(t, marks, "help", "x").Output()
		if err != nil || len(out) == 0 || strings.HasPrefix(string(out), "~~ ") {
			t.Errorf("it prints %q (%v)", out, err)
		}
	})
}

func TestThePagerIsLeft(t *testing.T) {
	t.Parallel()
	t.Run("before the end", func(t *testing.T) {
		t.Parallel()
		s := startTypist(t, pagedArbe(t, "head -1", "help", "x"))
		s.shows("Run a command")
		s.exits(0)
	})
	t.Run("because it does not exist", func(t *testing.T) {
		t.Parallel()
		s := startTypist(t, pagedArbe(t, filepath.Join(t.TempDir(), "nothing"), "help", "x"))
		s.shows("cannot be run")
		s.exits(fault.Precondition.ExitCode())
	})
	t.Run("because arbe is terminated", func(t *testing.T) {
		t.Parallel()
		s := startTypist(t, pagedArbe(t, "echo here; exec sleep 1000", "help", "x"))
		s.shows("here")
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.exits(143)
	})
	t.Run("when it ends, and not by Ctrl-C", func(t *testing.T) {
		t.Parallel()
		end := filepath.Join(t.TempDir(), "end")
		// The pager does not wait in the shell, which may check for signals just before it waits.
		s := startTypist(t, pagedArbe(t, "trap 'echo interrupted' INT; cat >/dev/null; echo ready; until [ -e "+end+" ]; do sleep 0.05; done; echo left", "help", "x"))
		s.shows("ready")
		s.types("\x03")
		s.shows("interrupted")
		if err := os.WriteFile(end, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.shows("left")
		s.exits(0)
	})
	t.Run("which is less", func(t *testing.T) {
		t.Parallel()
		if _, err := exec.LookPath("less"); err != nil {
			t.Skip("this machine has no less")
		}
		s := startTypist(t, pagedArbe(t, "", "help", "x"))
		s.shows("Run a command")
		s.types("q")
		s.exits(0)
	})
}

func TestLinesOfATerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "a": 1, "a\n": 1, "a\n\nb\n": 3, "0123456789": 1, "01234567890": 2, "\x1b[2m0123456789\x1b[0m\n": 1, "éééééééééé\n": 1,
	} {
		if got := linesOf(text, 10); got != want {
			t.Errorf("%q takes %d lines, want %d", text, got, want)
		}
	}
}
