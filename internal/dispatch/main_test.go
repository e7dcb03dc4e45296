//go:build linux

package dispatch_test

import (
	"cmp"
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
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// plantedKey is a model's key in the environment of the tests' servers.
const plantedKey = "sk-planted-in-the-servers-environment"

func TestMain(m *testing.M) {
	os.Setenv("ANTHROPIC_API_KEY", plantedKey)
	if os.Getenv(asHog) != "" {
		hog()
	}
	if os.Getenv(asTalker) != "" {
		talker()
	}
	if os.Getenv(asBots) != "" {
		botServer()
	}
	dbtest.Main(m, commandtest.Halt)
}

// patience limits the wait for something that must happen.
const patience = commandtest.Patience

// maxArtifact is the size of the largest artifact on the tests' servers, in bytes. A house may have two of them.
const maxArtifact = 4 << 20

// server is one arbe server on a database, as far as commands need it.
type server struct {
	log        *stream.Log
	threads    *thread.Threads
	boxes      *sandbox.Resolver
	dispatcher *dispatch.Dispatcher
	artifacts  *artifact.Artifacts
	spool      string
	stop       func(context.Context) error
}

// poolSize limits the database connections of a server, and of a test.
const poolSize = 4

// bench is a database with one house, and a server with real sandboxes.
type bench struct {
	*dbtest.Database
	*server
	t     testing.TB
	scope db.Scope
	// owner is a connection of the schema's owner, for what is prepared before anything runs.
	owner  *pgx.Conn
	driver sandbox.Driver
	roots  []string
	// conns limits the database connections of a further server. The default is poolSize.
	conns int32
	// tune changes the configuration of further servers; nil keeps the defaults.
	tune func(*dispatch.Config)
}

func setup(t *testing.T, repoRoots ...string) *bench {
	t.Helper()
	b := database(t)
	b.roots = repoRoots
	b.driver = realBoxes(t)
	b.server = b.serve()
	return b
}

// database returns a bench without a server.
func database(t testing.TB) *bench { return databaseOn(t, dbtest.Reuse(t, poolSize)) }

func databaseOn(t testing.TB, d *dbtest.Database) *bench {
	t.Helper()
	b := &bench{Database: d, t: t}
	b.owner = b.Owner(t)
	b.scope = commandtest.NewHouse(t, b.owner)
	return b
}

// serve starts one more server on the bench's database and driver, for as long as the test runs.
func (b *bench) serve() *server {
	b.t.Helper()
	// The first server uses the pool of the test.
	d := b.DB
	if b.server != nil || b.conns > 0 {
		var err error
		if d, err = db.Open(b.t.Context(), b.ServerURL, db.Options{MaxConns: cmp.Or(b.conns, poolSize)}); err != nil {
			b.t.Fatal(detail(err))
		}
		b.t.Cleanup(d.Close)
	}
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

// start does the part of a server's assembly that commands need.
func start(ctx context.Context, d *db.DB, driver sandbox.Driver, tune func(*dispatch.Config), repoRoots ...string) (*server, error) {
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
	config := dispatch.Config{DB: d, Log: log, Threads: s.threads, Logger: logger, Artifacts: s.artifacts, SpoolDir: s.spool}
	if tune != nil {
		tune(&config)
	}
	boxes := sandbox.Config{
		DB: d, Log: log, Threads: s.threads, Drivers: map[string]sandbox.Driver{"local": driver}, RepoRoots: repoRoots, Logger: logger,
	}
	boxes.Secrets = config.Secrets
	s.boxes = sandbox.NewResolver(boxes)
	config.Boxes = s.boxes
	s.dispatcher, err = dispatch.Start(ctx, config)
	if err != nil {
		log.Close()
		return nil, err
	}
	stopped := false
	s.stop = func(ctx context.Context) error {
		if stopped {
			return nil
		}
		stopped = true
		defer os.RemoveAll(s.spool)
		return s.dispatcher.Stop(ctx)
	}
	return s, nil
}

func realBoxes(t testing.TB) *commandtest.OwnBoxes { return commandtest.RealBoxes(t) }

func newLocal(t testing.TB, dir string) *local.Driver { return commandtest.NewLocal(t, dir) }

// house returns the bench's house, which asks the bench's server.
func (b *bench) house() commandtest.House {
	return commandtest.House{T: b.t, Scope: b.scope, Log: b.log, Threads: b.threads, Boxes: b.boxes, Commands: b.dispatcher.Commands}
}

func (b *bench) thread(recipe sandbox.Recipe) string { b.t.Helper(); return b.house().Thread(recipe) }

func (b *bench) ask(thread, line string) string { b.t.Helper(); return b.house().Ask(thread, line) }

func (b *bench) askFor(thread, id string, c entry.Command) string {
	b.t.Helper()
	return b.house().AskFor(thread, id, c)
}

func (b *bench) sh(thread, line string) entry.CommandResult {
	b.t.Helper()
	return b.house().Sh(thread, line)
}

func (b *bench) cancel(thread, commandID string) { b.t.Helper(); b.house().Cancel(thread, commandID) }

func (b *bench) follow(thread string, is func(stream.Event) bool) []stream.Event {
	b.t.Helper()
	return b.house().Follow(thread, is)
}

func (b *bench) result(thread, commandID string) entry.CommandResult {
	b.t.Helper()
	return b.house().Result(thread, commandID)
}

func (b *bench) printed(thread, commandID, text string) {
	b.t.Helper()
	b.house().Printed(thread, commandID, text)
}

func (b *bench) results(thread, commandID string) int { return b.house().Results(thread, commandID) }

func (b *bench) entries(thread string) []entry.Entry { b.t.Helper(); return b.house().Entries(thread) }

func (b *bench) story(thread string) string { return b.house().Story(thread) }

func (b *bench) ref(threadID string) stream.Ref {
	return stream.Ref{House: b.scope.House, Name: thread.StreamName(threadID)}
}

// withSecrets gives the bench's servers the secrets of the house, and plants the canary.
func (b *bench) withSecrets() {
	b.t.Helper()
	secrets := secret.New(b.DB, b.Sealer, nil, nil)
	b.tune = func(c *dispatch.Config) { c.Secrets = secrets }
	commandtest.SetCanary(b.t, secrets, b.scope)
}

// runs reports whether a process whose command line holds a word runs on this machine.
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
