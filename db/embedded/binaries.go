package embedded

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

const (
	// oldestMajor is the first version of PostgreSQL that arbe's schema runs on.
	oldestMajor = 15
	// binariesSetting is the setting that errors recommend. It becomes Config.Binaries.
	binariesSetting = "ARBE_POSTGRES_BINARIES"
)

// findBinaries chooses the installation for a cluster of a major version. If major is 0, there is no cluster yet, and
// the first installation that is new enough is chosen.
func findBinaries(ctx context.Context, cfg Config, major int) (binaries, error) {
	if cfg.Binaries != "" {
		return givenBinaries(ctx, cfg, major)
	}
	var unfit binaries
	for _, dir := range installedIn() {
		b, err := probe(ctx, dir)
		if err != nil || b.major < oldestMajor {
			continue
		}
		if major == 0 || b.major == major {
			return b, nil
		}
		if unfit.dir == "" {
			unfit = b
		}
	}
	b, err := fetchBinaries(ctx, cfg, major)
	switch {
	case err == nil:
		return b, nil
	case ctx.Err() != nil:
		return binaries{}, fault.From(ctx.Err())
	case unfit.dir != "":
		return binaries{}, mismatch(cfg.Dir, major, unfit).Because(err)
	}
	next := fmt.Sprintf("install it (`apt-get install postgresql`, version %d or later), or name the directory of its binaries in %s", oldestMajor, binariesSetting)
	return binaries{}, fault.New(fault.Unavailable, "PostgreSQL is not installed and could not be fetched", next).Because(err)
}

func givenBinaries(ctx context.Context, cfg Config, major int) (binaries, error) {
	b, err := probe(ctx, cfg.Binaries)
	switch {
	case err != nil:
		return binaries{}, fault.Newf(fault.Invalid, "set "+binariesSetting+" to the directory that holds `postgres` and `initdb`, or leave it empty to search for them",
			"there is no PostgreSQL that runs in %s", cfg.Binaries).Because(err)
	case b.major < oldestMajor:
		return binaries{}, fault.Newf(fault.Invalid, fmt.Sprintf("set %s to version %d or later, or leave it empty to search for one", binariesSetting, oldestMajor),
			"the PostgreSQL in %s is version %s, which is too old", cfg.Binaries, b.version)
	case major != 0 && b.major != major:
		return binaries{}, mismatch(cfg.Dir, major, b)
	}
	return b, nil
}

func mismatch(dir string, major int, have binaries) *fault.Error {
	next := fmt.Sprintf("install version %d (`apt-get install postgresql-%d`) or name its directory in %s; to move on to version %d, upgrade the cluster with pg_upgrade",
		major, major, binariesSetting, have.major)
	return fault.Newf(fault.Precondition, next, "the database in %s was created by PostgreSQL %d, and the one in %s is version %s",
		dir, major, have.dir, have.version)
}

// installedIn lists the directories where PostgreSQL may be installed, the best first.
func installedIn() []string {
	var dirs []string
	for _, program := range []string{"postgres", "pg_ctl"} {
		path, err := exec.LookPath(program)
		if err != nil {
			continue
		}
		// PATH often has links to single programs. The other programs are in the link's target directory.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // Red Hat
		"/usr/local/pgsql/bin",      // built from source
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
	} {
		matches, _ := filepath.Glob(pattern)
		slices.SortFunc(matches, func(a, b string) int { return cmp.Compare(number(b), number(a)) })
		dirs = append(dirs, matches...)
	}
	return dirs
}

var digits = lazyregexp.New(`\d+`)

// number returns the first number in a path, its version; 0 if there is none.
func number(path string) int {
	n, _ := strconv.Atoi(digits.FindString(path))
	return n
}
