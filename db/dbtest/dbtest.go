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
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
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
