//go:build linux

package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/fault"
)

// journal is a log that a test reads while it is being written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// says waits until the log contains some words.
func (j *journal) says(t *testing.T, words string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !strings.Contains(j.String(), words); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say %q:\n%s", words, j.String())
		}
	}
}

// keepIn keeps the database in dir running until the test ends.
func keepIn(t *testing.T, dir string, trying time.Duration) (*embedded.Kept, *journal) {
	t.Helper()
	log := &journal{}
	k, err := embedded.Keep(t.Context(), embedded.Config{Dir: dir, KeepTrying: trying, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(detail(err))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := k.Stop(ctx); err != nil {
			t.Errorf("stop: %s", detail(err))
		}
	})
	return k, log
}

// again waits until the database answers again, and checks that it has the data committed before.
func again(t *testing.T, url string) {
	t.Helper()
	var got string
	var err error
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(t.Context(), url); err != nil {
			continue
		}
		err = conn.QueryRow(t.Context(), "select text from notes").Scan(&got)
		conn.Close(context.Background())
		if err == nil {
			break
		}
	}
	if got != "kept" {
		t.Fatalf("the database has %q: %v", got, err)
	}
}

func killPostgres(t *testing.T, dir string) {
	t.Helper()
	pid := postmaster(t, dir)
	gone := handle(t, pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, gone)
}

func TestADatabaseThatDiesIsStartedAgain(t *testing.T) {
	t.Parallel()

	t.Run("at the same URL, each time, and the log says so", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		k, log := keepIn(t, dir, 0)
		keep(t, k.URL())
		for range 3 {
			killPostgres(t, dir)
			again(t, k.URL())
		}
		if said := log.String(); strings.Count(said, "it is started again") != 3 || !strings.Contains(said, "killed") {
			t.Errorf("the log says:\n%s", said)
		}
	})

	t.Run("not after a stop, also while it is being started", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		k, log := keepIn(t, dir, 0)
		killPostgres(t, dir)
		log.says(t, "it is started again")
		if err := k.Stop(t.Context()); err != nil {
			t.Errorf("stop: %s", detail(err))
		}
		<-k.Done()
		if err := k.Err(); err != nil {
			t.Errorf("after a stop, Err is %v", err)
		}
		start(t, dir) // nothing of it runs any more
	})

	t.Run("until it never runs for a while: then the error has the cause", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		k, log := keepIn(t, dir, 10*time.Second)
		write(t, filepath.Join(dir, "data", "postgresql.auto.conf"), "work_mem = 'a lot'\n")
		killPostgres(t, dir)
		<-k.Done()
		err, _ := errors.AsType[*fault.Error](k.Err())
		if err == nil {
			t.Fatal("it was given up without an error")
		}
		wantFault(t, err, fault.Unavailable, "could not be started again", "work_mem")
		// The starts are at once, and after half a second, one, two and four more. The next one would be too late.
		if n := strings.Count(log.String(), "it is started again"); n < 2 || n > 5 {
			t.Errorf("the log speaks of %d starts:\n%s", n, log)
		}
	})
}

func TestADatabaseWhoseDiskIsFullSaysSoAndComesBack(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	disk := openDir(t)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", disk).CombinedOutput(); err != nil {
		t.Skipf("nothing can be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", disk).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	dir := filepath.Join(disk, "postgres")
	k, log := keepIn(t, dir, 0)
	keep(t, k.URL())
	ballast := filepath.Join(disk, "ballast")
	if err := exec.Command("dd", "if=/dev/zero", "of="+ballast, "bs=1M").Run(); err == nil {
		t.Fatal("the disk is not full")
	}
	killPostgres(t, dir)
	log.says(t, "is full; free some disk space")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	again(t, k.URL())
}
