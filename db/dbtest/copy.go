package dbtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Copy fills the directory of an embedded Postgres that never ran with a copy of a migrated cluster, in which no server
// has run. It is for tests of servers that run their own Postgres: making a cluster and migrating it costs half of the
// CPU time of a first start. All copies of a process have the same identity. A test of the first start takes none.
func Copy(t testing.TB, dir string) {
	t.Helper()
	from, err := copied.make()
	if err != nil {
		t.Fatalf("making a cluster to copy: %s", fault.From(err).Detail())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// Not the port, because each has its own.
	if said, err := exec.Command("cp", "-a", filepath.Join(from, "data"), filepath.Join(from, "password"), dir).CombinedOutput(); err != nil {
		t.Fatalf("copying a cluster: %v\n%s", err, said)
	}
}

// copied is the cluster that [Copy] copies.
var copied clusterToCopy

type clusterToCopy struct {
	once   sync.Once
	err    error
	parent string
}

func (c *clusterToCopy) make() (dir string, err error) {
	c.once.Do(func() { c.err = c.start() })
	return filepath.Join(c.parent, "postgres"), c.err
}

// start makes the cluster, migrates it and stops it.
func (c *clusterToCopy) start() (err error) {
	ctx := context.Background()
	removeAbandoned(memory)
	if c.parent, err = os.MkdirTemp(inMemory(), fmt.Sprintf("%s%d-", prefix, os.Getpid())); err != nil {
		return err
	}
	// Everyone may enter the directory, because Postgres may run as another user.
	if err := os.Chmod(c.parent, 0o755); err != nil {
		return err
	}
	server, err := embedded.Start(ctx, embedded.Config{Dir: filepath.Join(c.parent, "postgres"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := db.MigrateSchema(ctx, server.URL()); err != nil {
		return fmt.Errorf("%w; %v", err, server.Stop(ctx))
	}
	return server.Stop(ctx)
}

// remove removes the cluster's files, if there are any.
func (c *clusterToCopy) remove() {
	if c.parent != "" {
		os.RemoveAll(c.parent)
	}
}
