package db

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/arbe-dev/arbe/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// JobSchema is the Postgres schema the job queue's tables live in.
const JobSchema = "river"

// Oldest is the oldest major version of Postgres that the schema works on: `on delete set null
// (column)` came with it.
const Oldest = 15

// Sealer keeps the password of the server's own role unreadable in the database.
type Sealer interface {
	Seal(value []byte) ([]byte, error)
	Open(sealed []byte) ([]byte, error)
}

// Migrate brings the database of ownerURL up to this program's schema and returns the URL of the
// server's own role in it: a role that logs in, owns nothing and cannot bypass row-level security. It
// makes that role at first, with a password of its own that is kept sealed in the database. Several
// servers may migrate at once, and one that was killed while it did is made up for by the next. The
// owner needs CREATEROLE, or to be superuser, the first time; without it Migrate is a
// [fault.Precondition], as it is with another sealer than the one the password was sealed with.
func Migrate(ctx context.Context, ownerURL string, sealer Sealer) (serverURL string, err error) {
	conn, err := ConnectOwner(ctx, ownerURL)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// The session's lock, since the steps want a transaction each. It ends with the connection.
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext('arbe.migrate'))"); err != nil {
		return "", Explain(err)
	}
	m, err := migrator(conn.Config())
	if err != nil {
		return "", migrationFailed(err)
	}
	defer m.Close()
	if err := up(m); err != nil {
		return "", migrationFailed(err)
	}
	if err := migrateJobs(ctx, conn); err != nil {
		return "", migrationFailed(err)
	}
	return serverRole(ctx, conn, ownerURL, sealer)
}

// Down undoes every migration, and with them all data. It is for tests and for an operator who knows.
func Down(ctx context.Context, ownerURL string) error {
	conn, err := ConnectOwner(ctx, ownerURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "drop schema if exists "+JobSchema+" cascade"); err != nil {
		return Explain(err)
	}
	m, err := migrator(conn.Config())
	if err != nil {
		return Explain(err)
	}
	defer m.Close()
	if err := m.Down(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return migrationFailed(err)
	}
	if _, err := conn.Exec(ctx, "drop table schema_migrations"); err != nil {
		return migrationFailed(err)
	}
	return nil
}

// ConnectOwner opens one connection as the owner of the schema, whom row-level security does not bind:
// only migrations and the first start may use it. A database that cannot be reached, or is older than
// [Oldest], is a clear error.
func ConnectOwner(ctx context.Context, ownerURL string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return nil, badURL(err)
	}
	// An owner with a schema of its own name would otherwise make our tables there.
	cfg.RuntimeParams["search_path"] = "public"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, unreachable(err)
	}
	var version int
	if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		conn.Close(ctx)
		return nil, Explain(err)
	}
	if version/10000 < Oldest {
		conn.Close(ctx)
		return nil, fault.Newf(fault.Precondition, fmt.Sprintf("point DATABASE_URL at PostgreSQL %d or newer", Oldest),
			"this Postgres is version %d, which is too old", version/10000)
	}
	return conn, nil
}

// migrator is golang-migrate over a connection of its own; it takes an advisory lock while it works.
func migrator(cfg *pgx.ConnConfig) (*migrate.Migrate, error) {
	files, err := iofs.New(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	target, err := migratepgx.WithInstance(stdlib.OpenDB(*cfg), &migratepgx.Config{})
	if err != nil {
		return nil, err
	}
	return migrate.NewWithInstance("iofs", whole{files}, "pgx5", target)
}

// up applies what is missing. A dirty version is one that failed or whose server was killed: thanks to
// [whole] nothing of it is there, so it is tried again.
func up(m *migrate.Migrate) error {
	err := m.Up()
	if dirty, ok := errors.AsType[migrate.ErrDirty](err); ok {
		previous := dirty.Version - 1
		if previous == 0 {
			previous = database.NilVersion
		}
		if err := m.Force(previous); err != nil {
			return err
		}
		err = m.Up()
	}
	if errors.Is(err, migrate.ErrNoChange) {
		return nil
	}
	return err
}

// whole makes a migration all or nothing: Postgres runs the statements of a file as one transaction, and
// the last of them takes away the mark that golang-migrate sets before and would remove after it. So a
// migration neither commits by itself nor does what no transaction can (create index concurrently).
type whole struct{ source.Driver }

func (w whole) ReadUp(version uint) (io.ReadCloser, string, error) {
	file, name, err := w.Driver.ReadUp(version)
	if err != nil {
		return nil, name, err
	}
	done := strings.NewReader("\nupdate schema_migrations set dirty = false;\n")
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(file, done), file}, name, nil
}

// migrateJobs brings the job queue's own schema up and lets the server's role use it.
func migrateJobs(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "create schema if not exists "+JobSchema); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, conn.Config().ConnString())
	if err != nil {
		return err
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: JobSchema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `
		grant usage on schema `+JobSchema+` to arbe_app;
		grant select, insert, update, delete on all tables in schema `+JobSchema+` to arbe_app;
		grant usage on all sequences in schema `+JobSchema+` to arbe_app;
		grant execute on all functions in schema `+JobSchema+` to arbe_app`)
	return err
}

// serverRole makes sure of the login role of this database's servers and returns its URL.
func serverRole(ctx context.Context, conn *pgx.Conn, ownerURL string, sealer Sealer) (string, error) {
	const setting = "server_role_password"
	var role, password string
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Roles belong to the cluster, so the name says which database it serves.
		if err := tx.QueryRow(ctx, "select 'arbe_server_' || oid from pg_database where datname = current_database()").Scan(&role); err != nil {
			return err
		}
		var exists bool
		if err := tx.QueryRow(ctx, "select exists (select from pg_roles where rolname = $1)", role).Scan(&exists); err != nil {
			return err
		}
		var sealed []byte
		err := tx.QueryRow(ctx, "select sealed from sealed_settings where name = $1", setting).Scan(&sealed)
		switch {
		case err == nil && exists:
			opened, err := sealer.Open(sealed)
			password = string(opened)
			return err
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		// Either half alone (a restored database, a database made anew) gets a new pair.
		password = rand.Text()
		if sealed, err = sealer.Seal([]byte(password)); err != nil {
			return err
		}
		change := "create role %s login nosuperuser nocreatedb nocreaterole nobypassrls inherit in role arbe_app password '%s'"
		if exists {
			change = "alter role %s password '%s'"
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(change, pgx.Identifier{role}.Sanitize(), password)); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "insert into sealed_settings (name, sealed) values ($1, $2) on conflict (name) do update set sealed = excluded.sealed", setting, sealed)
		return err
	})
	if err != nil {
		return "", migrationFailed(err)
	}
	return withUser(ownerURL, role, password), nil
}

// withUser is a connection string with another user. It rewrites a URL as text, since Postgres' own URLs
// (several hosts, no host) are not all ones to net/url.
func withUser(ownerURL, user, password string) string {
	scheme, rest, isURL := strings.Cut(ownerURL, "://")
	if !isURL || scheme != "postgres" && scheme != "postgresql" {
		return ownerURL + " user=" + user + " password=" + password // keys and values: the last one wins
	}
	if end := strings.IndexAny(rest, "@/"); end >= 0 && rest[end] == '@' {
		rest = rest[end+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	// A user in the query would win over the one before the host, and the server would serve as the owner.
	settings := slices.DeleteFunc(strings.Split(query, "&"), func(setting string) bool {
		key, _, _ := strings.Cut(setting, "=")
		key, _ = url.PathUnescape(key)
		return key == "" || key == "user" || key == "password"
	})
	return scheme + "://" + user + ":" + password + "@" + rest + "?" + strings.Join(settings, "&")
}

// migrationFailed explains what an owner can do about a migration that did not work.
func migrationFailed(err error) error {
	// golang-migrate's error does not unwrap.
	if m, ok := errors.AsType[database.Error](err); ok {
		err = m.OrigErr
	} else if m, ok := errors.AsType[*database.Error](err); ok {
		err = m.OrigErr
	}
	if err := Explain(err); fault.CodeOf(err) != fault.Internal {
		return err
	}
	if State(err) == "42501" {
		return fault.New(fault.Precondition, "the owner in DATABASE_URL may not set the database up",
			"give that role CREATEROLE, CREATE on the database and, when another role made arbe_app in this cluster, arbe_app with admin option").Because(err)
	}
	return fault.New(fault.Precondition, "the database could not be brought to this version's schema",
		"read the cause in the log; a newer arbe may have migrated it already").Because(err)
}
