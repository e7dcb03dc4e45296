//go:build linux

package embedded_test

import (
	"archive/zip"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
)

func TestBinariesThatWereNamed(t *testing.T) {
	t.Parallel()

	t.Run("are missing", func(t *testing.T) {
		t.Parallel()
		cfg := config(t.TempDir())
		cfg.Binaries = t.TempDir()
		wantFault(t, startFails(t, cfg), fault.Invalid, cfg.Binaries, "ARBE_POSTGRES_BINARIES")
	})

	t.Run("are too old", func(t *testing.T) {
		t.Parallel()
		cfg := config(t.TempDir())
		cfg.Binaries = fakeBinaries(t, "14.18", "exit 1")
		wantFault(t, startFails(t, cfg), fault.Invalid, "14.18", "version 15 or later")
	})

	t.Run("cannot make a cluster", func(t *testing.T) {
		t.Parallel()
		cfg := config(t.TempDir())
		cfg.Binaries = fakeBinaries(t, "15.1", "echo the moon is in the wrong place; exit 1")
		wantFault(t, startFails(t, cfg), fault.Precondition, cfg.Binaries, "wrong place")
	})

	t.Run("may not be run by the user root steps down to", func(t *testing.T) {
		t.Parallel()
		needsRoot(t)
		cfg := config(t.TempDir())
		cfg.Binaries = fakeBinaries(t, "15.1", "exit 1")
		if err := os.Chmod(cfg.Binaries, 0o700); err != nil {
			t.Fatal(err)
		}
		wantFault(t, startFails(t, cfg), fault.Precondition, cfg.Binaries, "cannot be run as")
	})
}

func TestBinariesThatAreNotInstalledAreFetched(t *testing.T) {
	t.Parallel()

	t.Run("once, then kept in the cache", func(t *testing.T) {
		t.Parallel()
		archive := fakeArchive(t, "16.9")
		var served atomic.Int32
		repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, ".jar") {
				served.Add(1)
				http.ServeFile(w, r, archive)
				return
			}
			http.NotFound(w, r)
		}))
		defer repository.Close()
		cfg := config(clusterOf(t, "16"))
		cfg.Cache, cfg.Repository = openDir(t), repository.URL

		for range 2 {
			// The fetched program runs: here one that only prints a message and fails.
			wantFault(t, startFails(t, cfg), fault.Unavailable, "fetched and run")
		}
		if got := served.Load(); got != 1 {
			t.Errorf("fetched %d times, want once", got)
		}
		left, err := os.ReadDir(cfg.Cache)
		if err != nil || len(left) != 1 || left[0].Name() != "postgres-16.9.0" {
			t.Errorf("the cache holds %v (%v), want the binaries alone", left, err)
		}
	})

	t.Run("unless the repository cannot be reached", func(t *testing.T) {
		t.Parallel()
		repository := httptest.NewServer(http.NotFoundHandler())
		repository.Close()
		cfg := config(clusterOf(t, "16"))
		cfg.Cache, cfg.Repository = openDir(t), repository.URL
		wantFault(t, startFails(t, cfg), fault.Precondition, "apt-get install postgresql", "ARBE_POSTGRES_BINARIES", "unable to connect")
	})
}

// fakeBinaries returns a directory with a PostgreSQL that only prints its version, and an initdb.
func fakeBinaries(t *testing.T, version, initdb string) string {
	t.Helper()
	bin := filepath.Join(openDir(t), "bin")
	program(t, filepath.Join(bin, "postgres"), `echo "postgres (PostgreSQL) `+version+`"`)
	program(t, filepath.Join(bin, "initdb"), initdb)
	return bin
}

// clusterOf returns a database directory whose cluster names a version that is not installed.
func clusterOf(t *testing.T, version string) string {
	t.Helper()
	dir := stopped(t)
	write(t, filepath.Join(dir, "data", "PG_VERSION"), version+"\n")
	return dir
}

// fakeArchive returns an archive as the repository serves it: a zip file with a tar.xz of the installation.
func fakeArchive(t *testing.T, version string) string {
	t.Helper()
	home := t.TempDir()
	program(t, filepath.Join(home, "bin", "postgres"),
		`case $1 in --version) echo "postgres (PostgreSQL) `+version+`";; *) echo fetched and run; exit 1;; esac`)
	program(t, filepath.Join(home, "bin", "initdb"), "exit 1")
	program(t, filepath.Join(home, "bin", "pg_ctl"), "exit 1")
	packed, err := exec.Command("tar", "--create", "--xz", "--directory", home, "bin").Output()
	if err != nil {
		t.Fatalf("tar: %v", err)
	}
	path := filepath.Join(t.TempDir(), "binaries.jar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	entry, err := archive.Create("postgres.txz")
	if err == nil {
		_, err = entry.Write(packed)
	}
	if err == nil {
		err = archive.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
