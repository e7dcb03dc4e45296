//go:build linux

package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/fault"
)

// The environment variables that make a re-executed test binary the owner of the database in a directory.
const (
	ownerDir      = "EMBEDDED_TEST_OWNER_DIR"
	ownerBinaries = "EMBEDDED_TEST_OWNER_BINARIES"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerDir); dir != "" {
		beOwner(dir)
	}
	os.Exit(m.Run())
}

// beOwner starts the database, prints its URL, and stops it when standard input ends.
func beOwner(dir string) {
	cfg := config(dir)
	cfg.Binaries = os.Getenv(ownerBinaries)
	server, err := embedded.Start(context.Background(), cfg)
	if err != nil {
		fmt.Println(detail(err))
		os.Exit(1)
	}
	fmt.Println(server.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := server.Stop(context.Background()); err != nil {
		fmt.Println(detail(err))
		os.Exit(1)
	}
	os.Exit(0)
}

// owner is another process that runs the database in a directory.
type owner struct {
	*exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
}

// ownIn makes another process the owner of dir. The options change the command before it starts.
func ownIn(t *testing.T, dir string, options ...func(*exec.Cmd)) *owner {
	t.Helper()
	cmd := exec.Command("/proc/self/exe") // other users may not enter the directory of the test binary
	cmd.Env = append(os.Environ(), ownerDir+"="+dir)
	cmd.Dir = "/"
	for _, option := range options {
		option(cmd)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &owner{cmd, stdin, bufio.NewReader(stdout)}
	t.Cleanup(o.kill)
	return o
}

// url waits until the owner's database is up.
func (o *owner) url(t *testing.T) string {
	t.Helper()
	line, err := o.stdout.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "postgres://") {
		rest, _ := io.ReadAll(o.stdout)
		t.Fatalf("the owner did not start: %s%s", line, rest)
	}
	return strings.TrimSpace(line)
}

// kill is kill -9.
func (o *owner) kill() {
	_ = o.Process.Kill()
	_ = o.Wait()
}

func (o *owner) stop(t *testing.T) {
	t.Helper()
	o.stdin.Close()
	if err := o.Wait(); err != nil {
		t.Errorf("the owner stopped with %v", err)
	}
}

// start starts the database in dir and stops it when the test ends.
func start(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(t.Context(), config(dir))
	if err != nil {
		t.Fatalf("start: %s", detail(err))
	}
	t.Cleanup(func() { stop(t, server) })
	return server
}

// startFails returns the error of a start that must fail.
func startFails(t *testing.T, cfg embedded.Config) *fault.Error {
	t.Helper()
	server, err := embedded.Start(t.Context(), cfg)
	if err == nil {
		stop(t, server)
		t.Fatal("the start succeeded")
	}
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("the error is a %T, want a *fault.Error: %v", err, err)
	}
	return e
}

// wantFault checks an error's code, and that its full text, including the cause, contains the words.
func wantFault(t *testing.T, err *fault.Error, code fault.Code, words ...string) {
	t.Helper()
	if err.Code != code {
		t.Errorf("the code is %s, want %s", err.Code, code)
	}
	if err.Next == "" {
		t.Error("the error names no next step")
	}
	for _, word := range words {
		if !strings.Contains(err.Detail(), word) {
			t.Errorf("the error does not say %q: %s", word, err.Detail())
		}
	}
}

func config(dir string) embedded.Config {
	return embedded.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}
}

func stop(t *testing.T, server *embedded.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		t.Errorf("stop: %s", detail(err))
	}
}

func run(t *testing.T, url, sql string) {
	t.Helper()
	if _, err := connect(t, url).Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func ask(t *testing.T, url, sql string) string {
	t.Helper()
	var answer string
	if err := connect(t, url).QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// keep commits a row, and kept checks that a later start finds it.
func keep(t *testing.T, url string) {
	t.Helper()
	run(t, url, `create table notes (text text); insert into notes values ('kept')`)
}

func kept(t *testing.T, url string) {
	t.Helper()
	if got := ask(t, url, `select text from notes`); got != "kept" {
		t.Errorf("found %q, want what was committed before", got)
	}
}

// postmaster returns the pid of the PostgreSQL that runs on dir.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// handle returns a pidfd of a process that is not our child. Call it while the process lives.
func handle(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// ended waits for the end of a process.
func ended(t *testing.T, pidfd int) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 30_000)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("the process still runs (%v)", err)
		}
		return
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
}

// openDir returns a temporary directory that every user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "embedded-*")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// program writes an executable shell script.
func program(t *testing.T, path, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, path, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// detail returns the full text of an error, including its cause.
func detail(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Detail()
	}
	return err.Error()
}
