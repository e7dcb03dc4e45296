//go:build linux

package command_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/fair"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		victim()
	}
	dbtest.Main(m, commandtest.Halt)
}

const patience = commandtest.Patience

// maxArtifact is the size of the largest artifact on the tests' servers, in bytes. A house may have two of them.
const maxArtifact = 4 << 20

// config is the part of a server's configuration that a test can set.
type config struct {
	command.Config
	Queue jobs.Config
}

// server is one arbe server on a database, as far as commands need it.
type server struct {
	log       *stream.Log
	threads   *thread.Threads
	boxes     *sandbox.Resolver
	commands  *command.Commands
	jobs      *jobs.Jobs
	artifacts *artifact.Artifacts
	spool     string
	stop      func(context.Context) error
}

// start assembles a server from the parts that commands need.
func start(ctx context.Context, d *db.DB, driver sandbox.Driver, tune func(*config), repoRoots ...string) (*server, error) {
	logger := slog.New(slog.DiscardHandler)
	log, err := stream.Open(ctx, d, logger)
	if err != nil {
		return nil, err
	}
	s := &server{log: log, threads: thread.New(d, log)}
	if s.spool, err = os.MkdirTemp("", "arbe-spool-"); err != nil {
		log.Close()
		return nil, err
	}
	s.artifacts = artifact.New(artifact.Config{DB: d, Blobs: blob.InPostgres(d), MaxSize: maxArtifact, Quota: 2 * maxArtifact, Logger: logger})
	c := config{Config: command.Config{DB: d, Log: log, Threads: s.threads, Logger: logger, Output: fair.NewOutput(), Artifacts: s.artifacts, SpoolDir: s.spool}}
	if tune != nil {
		tune(&c)
	}
	s.boxes = sandbox.NewResolver(sandbox.Config{
		DB: d, Log: log, Threads: s.threads, Drivers: map[string]sandbox.Driver{"local": driver}, Secrets: c.Secrets, RepoRoots: repoRoots, Logger: logger,
	})
	c.Boxes = s.boxes
	c.Limits = c.Limits.Or(jobs.Limits{ThreadRunning: 8, HouseRunning: 16, PersonRunning: 2000, ThreadWaiting: 200, HouseWaiting: 1000, PersonWaiting: 2000})
	q := c.Queue
	q.DB, q.Logger, q.Machines, q.MachineGone, q.Queues = d, c.Logger, s.boxes.MachineIDs, s.boxes.MachineGone(), []jobs.Queue{command.Queue(c.Limits)}
	if s.jobs, err = jobs.Open(ctx, q); err != nil {
		log.Close()
		return nil, err
	}
	c.Jobs = s.jobs
	s.commands = command.New(c.Config)
	if err := s.boxes.TouchMachines(ctx); err != nil {
		return nil, err
	}
	silence := s.boxes.KeepTouched(ctx, logger)
	stopped := false
	s.stop = func(ctx context.Context) error {
		if stopped {
			return nil
		}
		stopped = true
		defer os.RemoveAll(s.spool)
		defer silence()
		return s.jobs.Stop(ctx)
	}
	return s, s.jobs.Start(ctx)
}

// bench is a database with a house, which asks the server that was started last for commands.
type bench struct {
	*dbtest.Database
	commandtest.House
	*server
	t      testing.TB
	driver sandbox.Driver
	roots  []string
	// tune, unless nil, changes the configuration of servers.
	tune func(*config)
	// served reports that a server has the pool of the test.
	served bool
}

// poolSize limits the database connections of a server, and of a test.
const poolSize = 6

// setup returns a bench with a server whose sandboxes are real.
func setup(t *testing.T, repoRoots ...string) *bench {
	t.Helper()
	return setupOn(t, dbtest.Reuse(t, poolSize), repoRoots...)
}

// setupOn is setup on a database.
func setupOn(t *testing.T, d *dbtest.Database, repoRoots ...string) *bench {
	t.Helper()
	b := databaseOn(t, d)
	b.roots = repoRoots
	b.driver = commandtest.RealBoxes(t)
	b.use(b.serve())
	return b
}

// database returns a bench without a server.
func database(t testing.TB) *bench { return databaseOn(t, dbtest.Reuse(t, poolSize)) }

func databaseOn(t testing.TB, d *dbtest.Database) *bench {
	t.Helper()
	b := &bench{Database: d, t: t}
	b.House = commandtest.House{T: t, Scope: commandtest.NewHouse(t, b.Owner(t))}
	return b
}

// in returns the bench as another house sees it, for part of the test.
func (b *bench) in(t testing.TB) *bench {
	t.Helper()
	other := *b
	other.t, other.T = t, t
	other.Scope = commandtest.NewHouse(t, b.Owner(t))
	return &other
}

// serve starts one more server on the bench's database and driver, which runs until the test ends.
func (b *bench) serve() *server {
	b.t.Helper()
	// The first server uses the pool of the test.
	d := b.DB
	if b.served {
		var err error
		if d, err = db.Open(b.t.Context(), b.ServerURL, db.Options{MaxConns: poolSize}); err != nil {
			b.t.Fatal(detail(err))
		}
		b.t.Cleanup(d.Close)
	}
	b.served = true
	s, err := start(b.t.Context(), d, b.driver, b.tune, b.roots...)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.stop(ctx); err != nil {
			b.t.Errorf("stopping: %s", detail(err))
		}
		s.log.Close()
	})
	return s
}

// use asks a server from now on.
func (b *bench) use(s *server) {
	b.server = s
	b.Log, b.Threads, b.Boxes, b.Commands = s.log, s.threads, s.boxes, s.commands
}

// deleteThread deletes a thread, and its sandboxes at once.
func (b *bench) deleteThread(id string) {
	b.t.Helper()
	var boxes []string
	err := b.DB.In(b.t.Context(), b.Scope, func(tx pgx.Tx) (err error) {
		boxes, err = b.Threads.DeleteTx(b.t.Context(), tx, id)
		return err
	})
	for _, box := range boxes {
		if err == nil {
			err = b.Boxes.Reap(b.t.Context(), b.Scope, box)
		}
	}
	if err != nil {
		b.t.Fatal(detail(err))
	}
}

// runs reports whether a process whose command line has a word runs on this machine.
func runs(t *testing.T, word string) bool {
	t.Helper()
	return exec.Command("pgrep", "-f", word).Run() == nil
}

func detail(err error) string { return commandtest.Detail(err) }

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if got := fault.CodeOf(err); got != want {
		t.Errorf("the error is %q (%s), want %q", got, detail(err), want)
	}
}
