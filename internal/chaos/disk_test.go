//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// mount mounts a small disk on a directory until the test ends.
func mount(t testing.TB, dir string, size int64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a small disk")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("arbe-chaos", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", size))
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this root may not make a small disk")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() { // the log of Postgres is lost with the disk
			said, _ := os.ReadFile(filepath.Join(dir, "postgres.log"))
			os.WriteFile(dir+".log", said, 0o644)
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// unmountLeftovers removes the disks of earlier runs that were killed.
func unmountLeftovers() {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		words := strings.Fields(line)
		if words[0] != "arbe-chaos" {
			continue
		}
		var pid int
		world := filepath.Dir(words[1])
		if _, err := fmt.Sscanf(filepath.Base(world), "arbe-chaos-%d-", &pid); err == nil && syscall.Kill(pid, 0) != nil {
			unix.Unmount(words[1], unix.MNT_DETACH)
			os.RemoveAll(world)
		}
	}
}

// fill takes all the space that is left on the disk, until empty is called.
func (p *postgres) fill(t testing.TB) (empty func()) {
	t.Helper()
	path := filepath.Join(p.dir, "ballast")
	ballast, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	var disk unix.Statfs_t
	size := int64(0)
	for {
		if err := unix.Statfs(p.dir, &disk); err != nil {
			t.Fatal(err)
		}
		more := int64(disk.Bavail) * disk.Bsize
		if more == 0 {
			break
		}
		// Postgres may have taken some of the space since it was measured: then it is measured again.
		if err := unix.Fallocate(int(ballast.Fd()), 0, size, more); err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		} else if err == nil {
			size += more
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// switchWAL makes Postgres start a new segment of its write-ahead log.
func (p *postgres) switchWAL(t testing.TB) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.server.URL())
	if err != nil {
		return // Postgres is down already
	}
	defer conn.Close(t.Context())
	conn.Exec(t.Context(), "select pg_switch_wal()")
}

// revive starts Postgres again if it did not survive, and returns when it accepts connections.
func (p *postgres) revive(w *world) {
	w.Helper()
	w.await("Postgres takes connections", resumeWithin, func() bool {
		select {
		case <-p.server.Done():
			p.start(w)
		default:
		}
		conn, err := pgx.Connect(w.Context(), p.server.URL())
		if err == nil {
			conn.Close(w.Context())
		}
		return err == nil
	})
}
