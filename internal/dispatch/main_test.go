//go:build linux

package dispatch_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// plantedKey is a key of a model in the environment of the tests' servers.
const plantedKey = "sk-planted-in-the-servers-environment"

func TestMain(m *testing.M) {
	os.Setenv("ANTHROPIC_API_KEY", plantedKey)
	if os.Getenv(asServer) != "" {
		victim()
	}
	if os.Getenv(asHog) != "" {
		hog()
	}
	if os.Getenv(asTalker) != "" {
		talker()
	}
	if os.Getenv(asBots) != "" {
		botServer()
	}
	dbtest.Main(m)
}

// patience is how long a test waits for what must come; compiling in a sandbox takes the longest.
const patience = 5 * time.Minute

// maxArtifact is the largest artifact of the tests' servers, in bytes; a house may have two of them.
const maxArtifact = 4 << 20

// server is one arbe on a database, as far as commands are concerned.
type server struct {
	log        *stream.Log
	threads    *thread.Threads
	boxes      *sandbox.Resolver
	dispatcher *dispatch.Dispatcher
	artifacts  *artifact.Artifacts
	spool      string
	stop       func(context.Context) error
}

// bench is a database with one house, and a server on it whose sandboxes are real.
type bench struct {
	*dbtest.Database
	*server
	t      testing.TB
	scope  db.Scope
	driver sandbox.Driver
	roots  []string
	// conns is how many connections to the database a further server has; 0 is the default.
	conns int32
	// tune changes what further servers are started with; nil is the defaults.
	tune func(*dispatch.Config)
}

func setup(t *testing.T, repoRoots ...string) *bench {
	t.Helper()
	b := database(t)
	b.roots = repoRoots
	b.driver = newLocal(t, t.TempDir())
	b.server = b.serve()
	return b
}

// database is a bench without a server.
func database(t testing.TB) *bench { return databaseOn(t, dbtest.New(t)) }

func databaseOn(t testing.TB, d *dbtest.Database) *bench {
	t.Helper()
	b := &bench{Database: d, t: t}
	err := b.Owner(t).QueryRow(t.Context(), `
		with h as (insert into houses (name) values ('Home') returning id),
		     a as (insert into agents (kind, name) values ('human', 'Ada') returning id)
		insert into members (house_id, agent_id, role) select h.id, a.id, 'owner' from h, a returning house_id, agent_id::text`).
		Scan(&b.scope.House, &b.scope.Agent)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serve starts one more server on the bench's database and driver, for as long as the test runs.
func (b *bench) serve() *server {
	b.t.Helper()
	d, err := db.Open(b.t.Context(), b.ServerURL, db.Options{MaxConns: b.conns})
	if err != nil {
		b.t.Fatal(detail(err))
	}
	b.t.Cleanup(d.Close)
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

// start is the part of a server's assembly that commands need.
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

// newLocal is a driver of real boxes on this machine.
func newLocal(t testing.TB, dir string, tune ...func(*local.Config)) *local.Driver {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("real boxes need root on a machine that has no other user set up for them")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("runc is not installed")
	}
	c := localConfig(dir)
	for _, f := range tune {
		f(&c)
	}
	d, err := local.New(t.Context(), c)
	if err != nil {
		t.Fatal(detail(err))
	}
	t.Cleanup(func() {
		if err := d.Halt(context.Background()); err != nil {
			t.Errorf("closing the driver: %s", detail(err))
		}
	})
	return d
}

func localConfig(dir string) local.Config {
	return local.Config{Dir: dir, Limits: sandbox.Limits{DiskMB: 256, MemoryMB: 1024}, Grace: 2 * time.Minute, Log: slog.New(slog.DiscardHandler)}
}

// thread is a new thread with an environment of its own.
func (b *bench) thread(recipe sandbox.Recipe) string {
	b.t.Helper()
	env, err := b.boxes.CreateEnvironment(b.t.Context(), b.scope, "an environment", recipe)
	if err != nil {
		b.t.Fatal(err)
	}
	th, err := b.threads.Create(b.t.Context(), b.scope, thread.Draft{Environment: env.ID})
	if err != nil {
		b.t.Fatal(err)
	}
	return th.ID
}

// ask has a line of shell run in a thread, and is the command's id.
func (b *bench) ask(thread, line string) string {
	b.t.Helper()
	return b.askFor(thread, "", entry.Command{Command: line})
}

func (b *bench) askFor(thread, id string, c entry.Command) string {
	b.t.Helper()
	said, err := b.dispatcher.Commands.Run(b.t.Context(), b.scope, thread, id, c)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return said.ID
}

// sh runs a line of shell in a thread and waits for its end.
func (b *bench) sh(thread, line string) entry.CommandResult {
	b.t.Helper()
	return b.result(thread, b.ask(thread, line))
}

func (b *bench) cancel(thread, commandID string) {
	b.t.Helper()
	if err := b.dispatcher.Commands.Cancel(b.t.Context(), b.scope, thread, commandID, command.Interrupt); err != nil {
		b.t.Fatal(detail(err))
	}
}

// follow is what a tail of the thread's log tells until it is the event that the test waits for.
func (b *bench) follow(thread string, is func(stream.Event) bool) (events []stream.Event) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	for ev, err := range b.log.Tail(ctx, b.ref(thread), 0) {
		if err != nil {
			b.t.Fatalf("following: %s", detail(err))
		}
		if events = append(events, ev); is(ev) {
			return events
		}
	}
	b.t.Fatalf("it did not come; the log says %s", b.story(thread))
	return nil
}

// result waits for how a command ended.
func (b *bench) result(thread, commandID string) entry.CommandResult {
	b.t.Helper()
	events := b.follow(thread, func(ev stream.Event) bool { return ev.Entry != nil && ev.Entry.ID == entry.ResultID(commandID) })
	r, ok := entry.As[entry.CommandResult](*events[len(events)-1].Entry)
	if !ok {
		b.t.Fatalf("it is a %s", events[len(events)-1].Entry.Type)
	}
	return r
}

// printed waits until a command has printed a text, live.
func (b *bench) printed(thread, commandID, text string) {
	b.t.Helper()
	var live strings.Builder
	b.follow(thread, func(ev stream.Event) bool {
		if ev.Delta != nil && ev.Delta.EntryID == entry.ResultID(commandID) {
			live.Write(ev.Delta.Data)
		}
		return strings.Contains(live.String(), text)
	})
}

// results are how often the log tells how a command ended.
func (b *bench) results(thread, commandID string) (n int) {
	for _, e := range b.entries(thread) {
		if r, ok := entry.As[entry.CommandResult](e); ok && r.CommandID == commandID {
			n++
		}
	}
	return n
}

func (b *bench) entries(thread string) []entry.Entry {
	b.t.Helper()
	for after, all := int64(0), []entry.Entry(nil); ; after = all[len(all)-1].Seq {
		page, _, err := b.log.Read(b.t.Context(), b.ref(thread), stream.Range{After: after, Limit: 1000})
		if err != nil {
			b.t.Fatal(detail(err))
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

func (b *bench) story(thread string) string {
	text, _ := json.Marshal(b.entries(thread))
	return string(text)
}

func (b *bench) ref(threadID string) stream.Ref {
	return stream.Ref{House: b.scope.House, Name: thread.StreamName(threadID)}
}

// runs reports whether a process whose command line holds a word runs on this machine.
func runs(t *testing.T, word string) bool {
	t.Helper()
	return exec.Command("pgrep", "-f", word).Run() == nil
}

// dropConnections has Postgres end every connection of the servers.
func (b *bench) dropConnections(conn *pgx.Conn) {
	b.t.Helper()
	_, err := conn.Exec(b.t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'arbe'")
	if err != nil {
		b.t.Fatal(err)
	}
}

// swept waits until the server that was asked last to look for orphans has done it.
func (b *bench) swept(conn *pgx.Conn) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var state string
		err := conn.QueryRow(b.t.Context(), "select state from "+db.JobSchema+".river_job where kind = 'sweep_commands' order by id desc limit 1").Scan(&state)
		if err == nil && state == "completed" {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the sweep does not end: it is %s (%v)", state, err)
		}
	}
}

func detail(err error) string {
	if err == nil {
		return "no error"
	}
	return fault.From(err).Detail()
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if got := fault.CodeOf(err); got != want {
		t.Errorf("the error is %q (%s), want %q", got, detail(err), want)
	}
}
