package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ends are the signals that end arbe, with the exit code that shells expect.
var ends = map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143}

func TestASignalEndsACall(t *testing.T) {
	t.Parallel()
	called := make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server notices that a client is gone only after it has read the body
		called <- struct{}{}
		<-r.Context().Done() // it never answers
	}))
	t.Cleanup(server.Close)
	for s, code := range ends {
		for _, flag := range []string{"--quiet", "--json"} {
			cmd, said := startArbe(t, nil, server.URL, "house", "list", flag)
			select {
			case <-called:
			case <-time.After(5 * time.Minute):
				t.Fatalf("it has not called the server, and says %q", said)
			}
			endsWith(t, cmd, s, code)
			if said.String() != "" {
				t.Errorf("after %v it says %q", s, said)
			}
		}
	}
}

func TestASignalEndsAReadOfStdin(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	for _, line := range []string{
		"say th4w7q2m9x -", "ask -", "thread entries create th4w7q2m9x -", "env create --from -", "login " + server.URL + " --with-token",
	} {
		for s, code := range ends {
			in, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd, said := startArbe(t, in, server.URL, strings.Fields(line)...)
			if _, err := out.WriteString("begun"); err != nil {
				t.Fatal(err)
			}
			waitRead(t, in, said)
			endsWith(t, cmd, s, code)
			if said.String() != "" {
				t.Errorf("arbe %s says %q after %v", line, said, s)
			}
			in.Close()
			out.Close()
		}
	}
}

func TestASignalAfterTheFirstEndsTheProcess(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	exited := make(chan int, 1)
	s := &signals{end: end, exit: func(code int) { exited <- code }}
	s.take(os.Interrupt)
	if ctx.Err() == nil {
		t.Error("the first one does not end the verb")
	}
	coming, giveBack := s.takeOver()
	if got := <-coming; got != os.Interrupt {
		t.Errorf("a verb that takes over gets %v, want the one that came before", got)
	}
	s.take(syscall.SIGTERM)
	if got := <-coming; got != syscall.SIGTERM || len(exited) > 0 {
		t.Errorf("it gets %v, want SIGTERM, which ends nothing", got)
	}
	giveBack()
	s.take(syscall.SIGTERM)
	if got := <-exited; got != 143 || s.code() != 143 {
		t.Errorf("the process exits with %d and the verb with %d, want 143", got, s.code())
	}
}

// startArbe starts arbe, which talks to a server.
func startArbe(t *testing.T, stdin *os.File, host string, args ...string) (*exec.Cmd, *lines) {
	t.Helper()
	cmd, said := exec.Command("arbe", args...), &lines{}
	cmd.Env = append(os.Environ(), "ARBE_HOST="+host, "ARBE_TOKEN=arbe_0", "ARBE_HOUSE=", "ARBE_THREAD=", "ARBE_DATA_DIR="+t.TempDir(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=", "XDG_STATE_HOME=")
	cmd.Stderr = said
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has usually ended already
	return cmd, said
}

// waitRead waits until a process has read all of its stdin.
func waitRead(t *testing.T, in *os.File, said *lines) {
	t.Helper()
	for until := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("it reads nothing, and says %q", said)
		}
	}
}

// endsWith sends a process a signal, and checks its exit code.
func endsWith(t *testing.T, cmd *exec.Cmd, s syscall.Signal, code int) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != code {
			t.Errorf("arbe %s ended with %v after %v, want exit code %d", strings.Join(cmd.Args[1:], " "), err, s, code)
		}
	case <-time.After(5 * time.Minute):
		_ = cmd.Process.Kill()
		t.Fatalf("arbe %s goes on after %v", strings.Join(cmd.Args[1:], " "), s)
	}
}
