package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

const (
	// superuser owns the cluster and the database.
	superuser = "postgres"
	// database is the name in [Server.URL].
	database = "arbe"
	// cutOffTimeout is how long each step of a forced shutdown waits before the next, harder one.
	cutOffTimeout = 5 * time.Second
)

// Config describes the database to start. Only Dir is required.
type Config struct {
	// Dir holds the cluster and its files. It is created (mode 0700) if necessary. One process at a time may use it.
	Dir string
	// Binaries is the directory with `postgres` and `initdb`, version 15 or later. Defaults to searching the usual
	// places (PATH first), and then fetching them.
	Binaries string
	// Cache keeps fetched binaries, for all clusters. Defaults to "arbe" in the user's cache directory, and
	// to /var/cache/arbe for root, because PostgreSQL then runs as a user who cannot enter root's home.
	Cache string
	// Repository is the Maven repository the binaries are fetched from. Defaults to Maven Central.
	Repository string
	// Fast trades safety against power loss for speed, allows more connections, and never vacuums by itself. It is for tests only.
	Fast bool
	// KeepTrying is how long [Keep] tries to start a database again. Defaults to 15 minutes.
	KeepTrying time.Duration
	// Log logs slow steps and unusual events. Defaults to [slog.Default].
	Log *slog.Logger

	// port overrides the last used port; 0 means to reuse that port.
	port int
}

// binaries is one installation of PostgreSQL.
type binaries struct {
	dir     string
	version string // "15.18"
	major   int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// probe asks the binaries in a directory for their version.
func probe(ctx context.Context, dir string) (binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return binaries{}, err
	}
	b := binaries{dir: dir}
	if _, err := os.Stat(b.path("initdb")); err != nil {
		return binaries{}, err
	}
	out, err := exec.CommandContext(ctx, b.path("postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("asking %s for its version: %w", b.path("postgres"), err)
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return binaries{}, fmt.Errorf("%s does not report its version but %q", b.path("postgres"), out)
	}
	b.version = m[1]
	b.major, err = strconv.Atoi(m[2])
	return b, err
}

var versionLine = lazyregexp.New(`\(PostgreSQL\) ((\d+)\S*)`)
