//go:build linux

package embedded_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestADatabaseIsFoundAgain(t *testing.T) {
	t.Parallel()

	t.Run("after a stop, at the same URL", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "made", "when missing")
		first := start(t, dir)
		keep(t, first.URL())
		stop(t, first)
		stop(t, first) // harmless
		if err := first.Err(); err != nil {
			t.Errorf("after Stop, Err is %v, want nil", err)
		}
		second := start(t, dir)
		kept(t, second.URL())
		if first.URL() != second.URL() {
			t.Errorf("the URL changed from %s to %s", first.URL(), second.URL())
		}
	})

	t.Run("after a stop that was given no time", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		server := start(t, dir)
		keep(t, server.URL())
		inUse := connect(t, server.URL())
		expired, cancel := context.WithCancel(t.Context())
		cancel()
		if err := server.Stop(expired); err != nil && fault.CodeOf(err) != fault.DeadlineExceeded {
			t.Errorf("stop: %v", err)
		}
		if err := inUse.Ping(t.Context()); err == nil {
			t.Error("PostgreSQL still answers after Stop")
		}
		kept(t, start(t, dir).URL())
	})

	t.Run("on another port when its own was taken", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first := start(t, dir)
		keep(t, first.URL())
		stop(t, first)
		taken, err := net.Listen("tcp", address(t, first.URL()))
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		second := start(t, dir)
		kept(t, second.URL())
		if address(t, second.URL()) == address(t, first.URL()) {
			t.Error("it claims the port that another program has")
		}
	})
}

func TestADatabaseIsMadeToLast(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "db")
	url := start(t, dir).URL()

	for setting, want := range map[string]string{
		"data_checksums":          "on",
		"fsync":                   "on",
		"server_encoding":         "UTF8",
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"password_encryption":     "scram-sha-256",
		"max_connections":         "100",
	} {
		if got := ask(t, url, "show "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	for file, want := range map[string]os.FileMode{"": 0o700, "password": 0o600, "data": 0o700, "postgres.log": 0o600} {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %o, want %o", file, got, want)
		}
	}
	if got := ask(t, url, "select count(*)::text from pg_hba_file_rules where auth_method <> 'scram-sha-256'"); got != "0" {
		t.Errorf("%s ways lead into the database without its password", got)
	}
}

func TestFastTradesSafetyForSpeed(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir())
	cfg.Fast = true
	server, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(detail(err))
	}
	defer stop(t, server)
	for setting, want := range map[string]string{"fsync": "off", "max_connections": "400"} {
		if got := ask(t, server.URL(), "show "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
}

func TestOneProcessAtATimeRunsADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := ownIn(t, dir)
	url := other.url(t)

	err := startFails(t, config(dir))
	wantFault(t, err, fault.Precondition, "already running", fmt.Sprintf("pid %d", other.Process.Pid), "ARBE_DATA_DIR")
	keep(t, url) // the first is not disturbed

	other.stop(t)
	kept(t, start(t, dir).URL())
}

func TestACtrlCReachesTheOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := ownIn(t, dir)
	other.url(t)
	// A terminal's interrupt goes to a whole process group.
	ours, err := syscall.Getpgid(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err := syscall.Getpgid(postmaster(t, dir)); err != nil || theirs == ours {
		t.Errorf("PostgreSQL is in its owner's process group %d (%v)", ours, err)
	}
	other.stop(t) // before its directory is removed
}

func TestRoot(t *testing.T) {
	t.Parallel()
	needsRoot(t)

	t.Run("runs it as another user, below a directory only root may enter", func(t *testing.T) {
		t.Parallel()
		private := filepath.Join(openDir(t), "private")
		if err := os.Mkdir(private, 0o700); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(private, "db")
		first := start(t, dir)
		keep(t, first.URL())
		if uid := uidOf(t, fmt.Sprintf("/proc/%d", postmaster(t, dir))); uid == 0 {
			t.Error("PostgreSQL runs as root")
		}
		for _, ours := range []string{private, dir, filepath.Join(dir, "password"), filepath.Join(dir, "postgres.log")} {
			if uid := uidOf(t, ours); uid != 0 {
				t.Errorf("%s was given to uid %d", ours, uid)
			}
		}
		stop(t, first)
		kept(t, start(t, dir).URL())
	})

	t.Run("may have restored the cluster from a backup", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first := start(t, dir)
		keep(t, first.URL())
		stop(t, first)
		err := filepath.WalkDir(filepath.Join(dir, "data"), func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, 0, 0)
		})
		if err != nil {
			t.Fatal(err)
		}
		kept(t, start(t, dir).URL())
	})

	t.Run("is not needed: an ordinary user runs it too", func(t *testing.T) {
		t.Parallel()
		const nobody = 65534
		dir := openDir(t)
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		as := func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		first := ownIn(t, dir, as)
		keep(t, first.url(t))
		if uid := uidOf(t, fmt.Sprintf("/proc/%d", postmaster(t, dir))); uid != nobody {
			t.Errorf("PostgreSQL runs as uid %d, want that of its owner", uid)
		}
		gone := handle(t, postmaster(t, dir))
		first.kill()
		ended(t, gone)
		second := ownIn(t, dir, as)
		kept(t, second.url(t))
		second.stop(t)
	})
}

func uidOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func address(t *testing.T, connection string) string {
	t.Helper()
	u, err := url.Parse(connection)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
