package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// newestFetched is the major version of a new cluster if no PostgreSQL is installed.
const newestFetched = 18

// fetchTimeout limits a fetch, because a network that drops packets would otherwise delay it forever.
const fetchTimeout = 10 * time.Minute

// fetched are the versions that can be fetched, by major.
var fetched = map[int]embeddedpostgres.PostgresVersion{
	15: embeddedpostgres.V15,
	16: embeddedpostgres.V16,
	17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

// fetchBinaries gets the binaries of a major version (0: the newest) from the cache, or else from the network.
func fetchBinaries(ctx context.Context, cfg Config, major int) (binaries, error) {
	if major == 0 {
		major = newestFetched
	}
	version, ok := fetched[major]
	if !ok {
		return binaries{}, fmt.Errorf("there are no binaries of PostgreSQL %d to fetch", major)
	}
	cache, err := cacheDir(cfg)
	if err != nil {
		return binaries{}, err
	}
	home := filepath.Join(cache, "postgres-"+string(version))
	if b, err := probe(ctx, filepath.Join(home, "bin")); err == nil {
		return b, nil
	}
	cfg.Log.Info("fetching PostgreSQL, which is not installed", "version", version, "to", home)
	fetchErr := fetchInto(ctx, cache, home, cfg.Repository, version)
	// Probe even after an error, because another process may have fetched the same version in the meantime.
	b, err := probe(ctx, filepath.Join(home, "bin"))
	if err != nil {
		return binaries{}, errors.Join(fetchErr, err)
	}
	return b, nil
}

func cacheDir(cfg Config) (string, error) {
	switch {
	case cfg.Cache != "":
		return filepath.Abs(cfg.Cache)
	case os.Geteuid() == 0:
		return "/var/cache/arbe", nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "arbe"), err
}

// fetchInto unpacks into a separate directory and moves it to home when it is complete, so a crash leaves no partial
// installation there.
func fetchInto(ctx context.Context, cache, home, repository string, version embeddedpostgres.PostgresVersion) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, "fetch-*")
	if err != nil {
		return err
	}
	// The library takes no context. So if ours ends, the library finishes in the background, in its own directory.
	done := make(chan error, 1)
	go func() {
		defer os.RemoveAll(work)
		err := unpack(work, repository, version)
		if err == nil {
			err = os.Rename(filepath.Join(work, "unpacked"), home)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(fetchTimeout):
		return fmt.Errorf("no answer within %s", fetchTimeout)
	}
}

// unpack fetches a version into work/unpacked.
//
// The library fetches only as a part of a start. To stop the start after the fetch, the library gets a directory with
// nothing but a version file. It mistakes that for a cluster, and pg_ctl refuses it at once.
func unpack(work, repository string, version embeddedpostgres.PostgresVersion) error {
	decoy := filepath.Join(work, "decoy")
	if err := os.Mkdir(decoy, 0o700); err != nil {
		return err
	}
	major, _, _ := strings.Cut(string(version), ".")
	if err := os.WriteFile(filepath.Join(decoy, "PG_VERSION"), []byte(major), 0o600); err != nil {
		return err
	}
	cfg := embeddedpostgres.DefaultConfig().
		Version(version).
		Port(0).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(filepath.Join(work, "unpacked")).
		DataPath(decoy).
		Logger(io.Discard)
	if repository != "" {
		cfg = cfg.BinaryRepositoryURL(repository)
	}
	err := embeddedpostgres.NewDatabase(cfg).Start()
	// Compare the text, because the library's errors have no types. This is the error of the step after unpacking.
	if err != nil && strings.HasPrefix(err.Error(), "could not start postgres using") {
		return nil
	}
	return fmt.Errorf("fetching PostgreSQL %s: %w", version, err)
}
