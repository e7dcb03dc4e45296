//go:build linux

package embedded_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestACrashLosesNothingCommitted(t *testing.T) {
	t.Parallel()

	t.Run("kill -9 of the owner takes PostgreSQL with it", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		other := ownIn(t, dir)
		url := other.url(t)
		keep(t, url)
		run(t, url, `begin; insert into notes values ('never committed')`)
		gone := handle(t, postmaster(t, dir))

		other.kill()
		ended(t, gone)

		next := start(t, dir)
		if got := ask(t, next.URL(), `select string_agg(text, ',') from notes`); got != "kept" {
			t.Errorf("found %q, want what was committed and nothing else", got)
		}
	})

	t.Run("kill -9 of the owner and a start at once, while the old PostgreSQL still ends", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		other := ownIn(t, dir)
		keep(t, other.url(t))
		other.kill()
		kept(t, start(t, dir).URL())
	})

	t.Run("kill -9 of PostgreSQL is reported, and its orphans do not prevent a start", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first := start(t, dir)
		keep(t, first.URL())
		// A statement that never checks for signals, so its process outlives the postmaster.
		busy := connect(t, first.URL())
		orphan := handle(t, int(busy.PgConn().PID()))
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = busy.Exec(ctx, `do $$ begin loop end loop; end $$`)
		}()
		defer func() {
			cancel()
			<-over
		}()
		waitFor(t, first.URL(), fmt.Sprintf(`select (state = 'active')::text from pg_stat_activity where pid = %d`, busy.PgConn().PID()))

		if err := syscall.Kill(postmaster(t, dir), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-first.Done():
		case <-time.After(2 * time.Minute):
			t.Fatal("nobody was notified that PostgreSQL died")
		}
		err := fault.From(first.Err())
		if err == nil {
			t.Fatal("Err is nil though PostgreSQL died by itself")
		}
		wantFault(t, err, fault.Unavailable, "died", "postgres.log", "killed")

		kept(t, start(t, dir).URL())
		ended(t, orphan)
	})

	t.Run("a stale pid file names a stranger", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first := start(t, dir)
		keep(t, first.URL())
		stop(t, first)
		// PostgreSQL mistakes any living process of its own user for itself.
		stranger := exec.Command("sleep", "600")
		if owner := uidOf(t, filepath.Join(dir, "data")); owner != uint32(os.Geteuid()) {
			stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
		}
		if err := stranger.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = stranger.Process.Kill()
			_ = stranger.Wait()
		}()
		pidFile := filepath.Join(dir, "data", "postmaster.pid")
		write(t, pidFile, fmt.Sprintf("%d\n%s/data\n0\n0\n\n127.0.0.1\n\nready   \n", stranger.Process.Pid, dir))

		kept(t, start(t, dir).URL())
		if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the stranger was ended: %v", err)
		}
	})

	t.Run("kill -9 while the cluster is made leaves none that a start would trust", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		bin, initdb := hangingInitdb(t)
		other := ownIn(t, dir, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, ownerBinaries+"="+bin) })
		gone := initdb()

		other.kill()
		ended(t, gone)

		keep(t, start(t, dir).URL())
		if half, _ := filepath.Glob(filepath.Join(dir, "half-*")); len(half) > 0 {
			t.Errorf("something half made stays behind: %v", half)
		}
	})
}

func TestAStartThatIsCancelledLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir())
	bin, initdb := hangingInitdb(t)
	cfg.Binaries = bin
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := embedded.Start(ctx, cfg)
		failed <- err
	}()
	gone := initdb()

	cancel()
	if err := <-failed; fault.CodeOf(err) != fault.Canceled {
		t.Errorf("the start ended with %v, want it to be cancelled", err)
	}
	ended(t, gone)
	start(t, cfg.Dir)
}

// hangingInitdb returns a directory of binaries whose initdb stops halfway, and a function that waits for that point
// and returns a handle of the process.
func hangingInitdb(t *testing.T) (bin string, reached func() int) {
	t.Helper()
	bin = fakeBinaries(t, "15.0", `mkdir "$2" && echo 15 > "$2/PG_VERSION" && echo $$ > "$(dirname "$0")/reached"; exec sleep 600`)
	fifo := filepath.Join(bin, "reached")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(fifo, 0o666); err != nil { // in spite of the umask
		t.Fatal(err)
	}
	return bin, func() int {
		line, err := os.ReadFile(fifo)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(line)))
		if err != nil {
			t.Fatal(err)
		}
		return handle(t, pid)
	}
}

func TestAStartThatFailsSaysWhyAndWhatToDo(t *testing.T) {
	t.Parallel()

	t.Run("PostgreSQL does not come up: its last words and where its log is", func(t *testing.T) {
		t.Parallel()
		dir := stopped(t)
		conf := filepath.Join(dir, "data", "postgresql.auto.conf")
		write(t, conf, "work_mem = 'a lot'\n")
		wantFault(t, startFails(t, config(dir)), fault.Unavailable, filepath.Join(dir, "postgres.log"), `work_mem`)
		write(t, conf, "")
		kept(t, start(t, dir).URL()) // the failure left no lock behind
	})

	t.Run("the password beside the database is not its own", func(t *testing.T) {
		t.Parallel()
		dir := stopped(t)
		write(t, filepath.Join(dir, "password"), "wrong\n")
		wantFault(t, startFails(t, config(dir)), fault.Precondition, "password", "backup")
	})

	t.Run("the cluster is of another version", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "data", "PG_VERSION"), "14\n")
		wantFault(t, startFails(t, config(dir)), fault.Precondition, "created by PostgreSQL 14", "postgresql-14", "pg_upgrade")
	})

	t.Run("the directory is a file", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "file")
		write(t, file, "")
		wantFault(t, startFails(t, config(file)), fault.Precondition, file, "ARBE_DATA_DIR")
	})
}

func TestALogThatGrewLargeIsPutAside(t *testing.T) {
	t.Parallel()
	dir := stopped(t)
	log := filepath.Join(dir, "postgres.log")
	if err := os.Truncate(log, 11<<20); err != nil {
		t.Fatal(err)
	}
	start(t, dir)
	if info, err := os.Stat(log); err != nil || info.Size() > 1<<20 {
		t.Errorf("the log was not started again: %v", err)
	}
	if _, err := os.Stat(log + ".1"); err != nil {
		t.Errorf("the old log is lost: %v", err)
	}
}

// stopped returns the directory of a stopped database that has some committed data.
func stopped(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	server := start(t, dir)
	keep(t, server.URL())
	stop(t, server)
	return dir
}

// waitFor repeats a query until the answer is "true".
func waitFor(t *testing.T, url, sql string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !strings.EqualFold(ask(t, url, sql), "true"); {
		if time.Now().After(deadline) {
			t.Fatalf("never true: %s", sql)
		}
	}
}
