// Package dbtest gives each test its own migrated database on a real Postgres.
//
// It starts one embedded cluster per test process at the first use, in memory if there is room.
// ARBE_TEST_DATABASE_URL names another Postgres to use instead. Its user must be a superuser. Several test processes
// may share it, as under [gotest]. A database is a copy of a template that is migrated once per Postgres and schema,
// so tests run in parallel without seeing each other's data.
//
// [gotest]: ./gotest
package dbtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// Database is the database of one test.
type Database struct {
	// OwnerURL connects as the owner of the schema, to whom row-level security does not apply.
	OwnerURL string
	// ServerURL connects with the server's role.
	ServerURL string
	// DB is open under ServerURL, and closed with the test.
	DB *db.DB
	// Sealer is the sealer of the database's own password.
	Sealer *secret.Sealer
}

// Main runs a package's tests, calls after, and then stops the cluster and removes its files. Call it from TestMain.
// Otherwise the cluster still ends with the process, but its files stay in the temporary directory.
func Main(m *testing.M, after ...func()) {
	code := m.Run()
	for _, f := range after {
		f()
	}
	dropSpares()
	if shared.stop != nil {
		shared.stop()
	}
	os.Exit(code)
}

// New makes a database for t and opens it with up to 10 connections. It is dropped with the test.
func New(t testing.TB) *Database { t.Helper(); return NewPool(t, 10) }

// NewPool is New with up to conns connections. A package with very many databases uses few, because a new connection
// costs Postgres more than most tests ask of it.
func NewPool(t testing.TB, conns int32) *Database {
	t.Helper()
	d := &Database{OwnerURL: create(t, ""), Sealer: shared.sealer}
	d.open(t, db.ServerURL, conns)
	return d
}

// NewDurable is New on a Postgres that waits for the disk, as in production. It is for benchmarks, because the tests'
// Postgres does not wait.
func NewDurable(t testing.TB) *Database {
	t.Helper()
	ctx := t.Context()
	url, remove, err := launch(ctx, "", false)
	if err != nil {
		t.Fatalf("no Postgres to measure with: %s", fault.From(err).Detail())
	}
	t.Cleanup(remove)
	d := &Database{OwnerURL: url}
	if d.Sealer, err = newSealer(); err != nil {
		t.Fatal(err)
	}
	d.open(t, db.Migrate, 32)
	return d
}

// open prepares the database and opens it.
func (d *Database) open(t testing.TB, prepare func(ctx context.Context, ownerURL string, sealer db.Sealer) (serverURL string, err error), conns int32) {
	t.Helper()
	var err error
	if d.ServerURL, err = prepare(t.Context(), d.OwnerURL, d.Sealer); err != nil {
		t.Fatalf("preparing the test's database: %s", fault.From(err).Detail())
	}
	if d.DB, err = db.Open(t.Context(), d.ServerURL, db.Options{MaxConns: conns}); err != nil {
		t.Fatalf("opening the test's database: %v", err)
	}
	t.Cleanup(d.DB.Close)
}

// Empty creates a database without our schema and returns its owner's URL.
func Empty(t testing.TB) string {
	t.Helper()
	return create(t, "template0")
}

// Migrated creates a database with our schema, in which no server has run, and returns its owner's URL.
func Migrated(t testing.TB) string {
	t.Helper()
	return create(t, "")
}

// Owner opens a connection as the owner of the schema, for access past row-level security.
func (d *Database) Owner(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.OwnerURL)
	if err != nil {
		t.Fatalf("connecting as the owner: %v", err)
	}
	// Not the test's context, because that ends before the cleanup.
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// shared is the cluster of this process.
var shared struct {
	once     sync.Once
	err      error
	url      string
	template string
	sealer   *secret.Sealer
	stop     func()
	database atomic.Int64

	mu   sync.Mutex
	conn *pgx.Conn // of the superuser; see execute
}

// create creates a database from a template, and drops it with the test. An empty template is the migrated one.
func create(t testing.TB, template string) (ownerURL string) {
	t.Helper()
	name, err := makeDatabase(template)
	if err != nil {
		t.Fatalf("making the test's database: %s", fault.From(err).Detail())
	}
	t.Cleanup(func() {
		if err := execute("drop database " + name + " with (force)"); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	return withDatabase(shared.url, name)
}

// makeDatabase makes a database from a template and returns its name. An empty template is the migrated one.
func makeDatabase(template string) (name string, err error) {
	shared.once.Do(func() { shared.err = start() })
	if shared.err != nil {
		return "", fmt.Errorf("no Postgres to test with: %w", shared.err)
	}
	name = fmt.Sprintf("arbe_test_%d_%d", os.Getpid(), shared.database.Add(1))
	// The files are copied, because the other strategy writes each page of the catalogs to the WAL.
	return name, execute("create database " + name + " strategy file_copy template " + cmp.Or(template, shared.template))
}

// start finds or starts the Postgres and makes the migrated template.
func start() error {
	ctx := context.Background()
	var err error
	if shared.sealer, err = newSealer(); err != nil {
		return err
	}
	if shared.url = os.Getenv("ARBE_TEST_DATABASE_URL"); shared.url == "" {
		if shared.url, shared.stop, err = Launch(ctx); err != nil {
			return err
		}
	}
	return makeTemplate(ctx, shared.url)
}

// makeTemplate makes the migrated template, unless another test process on this Postgres has made it. The template
// gets its name only when it is complete.
func makeTemplate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext('arbe.dbtest'))"); err != nil {
		return err
	}
	shared.template = "arbe_template_" + db.SchemaDigest()[:16]
	var exists bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", shared.template).Scan(&exists); err != nil || exists {
		return err
	}
	for _, statement := range []string{"drop database if exists arbe_template_new with (force)", "create database arbe_template_new"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if _, err := db.Migrate(ctx, withDatabase(url, "arbe_template_new"), shared.sealer); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "alter database arbe_template_new rename to "+shared.template)
	return err
}

// Launch starts a Postgres for tests and returns the URL of its superuser. It does not wait for the disk, and keeps
// its files in memory if there is room. remove stops it and deletes its files.
func Launch(ctx context.Context) (url string, remove func(), err error) {
	removeAbandoned(memory)
	return launch(ctx, inMemory(), true)
}

// launch starts a Postgres in a new directory below parent; empty is the temporary directory.
func launch(ctx context.Context, parent string, fast bool) (url string, remove func(), err error) {
	dir, err := os.MkdirTemp(parent, fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		return "", nil, err
	}
	// Everyone may enter the directory, because Postgres may run as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", nil, err
	}
	server, err := embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "postgres"), Fast: fast, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return server.URL(), func() { server.Stop(context.WithoutCancel(ctx)); os.RemoveAll(dir) }, nil
}

func newSealer() (*secret.Sealer, error) {
	key, err := secret.NewKey()
	if err != nil {
		return nil, err
	}
	return secret.NewSealer(key, nil)
}

// execute runs a statement of the cluster's superuser. One connection at a time is enough, because Postgres copies
// one template at a time anyway.
func execute(statement string) error {
	ctx := context.Background()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.conn == nil || shared.conn.IsClosed() {
		var err error
		if shared.conn, err = pgx.Connect(ctx, shared.url); err != nil {
			return err
		}
	}
	_, err := shared.conn.Exec(ctx, statement)
	return err
}

func withDatabase(raw, name string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err) // ARBE_TEST_DATABASE_URL is a URL
	}
	u.Path = "/" + name
	return u.String()
}

// Grep returns the tables of a database that contain a text in a column of any type, such as "public.entries". It is
// for tests that plant a secret.
func Grep(t testing.TB, owner *pgx.Conn, text string) (where []string) {
	t.Helper()
	rows, err := owner.Query(t.Context(), "select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables where schemaname in ('public', '"+db.JobSchema+"') order by 1")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatalf("the tables are %v: %v", tables, err)
	}
	quoted, _ := json.Marshal(text)
	for _, table := range tables {
		var found bool
		// Postgres shows bytes in hexadecimal, and text in its JSON form.
		err := owner.QueryRow(t.Context(), "select exists (select from "+table+" x where position($1 in to_jsonb(x)::text) > 0 or position($2 in to_jsonb(x)::text) > 0)",
			strings.Trim(string(quoted), `"`), fmt.Sprintf("%x", text)).Scan(&found)
		if err != nil {
			t.Fatal(err)
		}
		if found {
			where = append(where, table)
		}
	}
	return where
}
