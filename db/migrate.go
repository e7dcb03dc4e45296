package db

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
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
// servers may migrate at once. The owner needs CREATEROLE, or to be superuser, the first time.
func Migrate(ctx context.Context, ownerURL string, sealer Sealer) (serverURL string, err error) {
	conn, err := ConnectOwner(ctx, ownerURL)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	m, err := migrator(conn.Config())
	if err != nil {
		return "", Explain(err)
	}
	defer m.Close()
	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
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
	source, err := iofs.New(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	target, err := migratepgx.WithInstance(stdlib.OpenDB(*cfg), &migratepgx.Config{})
	if err != nil {
		return nil, err
	}
	return migrate.NewWithInstance("iofs", source, "pgx5", target)
}

// migrateJobs brings the job queue's own schema up and lets the server's role use it. The queue's
// migrations want a transaction each, so the lock is the session's.
func migrateJobs(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext('arbe.migrate')); create schema if not exists "+JobSchema); err != nil {
		return err
	}
	defer conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock(hashtext('arbe.migrate'))")
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
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('arbe.migrate'))"); err != nil {
			return err
		}
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
	return withUser(ownerURL, role, password)
}

// withUser is a URL (or a key=value string) with another user.
func withUser(ownerURL, user, password string) (string, error) {
	u, err := url.Parse(ownerURL)
	if err != nil || u.Scheme == "" {
		return ownerURL + " user=" + user + " password=" + password, nil // libpq's last value wins
	}
	u.User = url.UserPassword(user, password)
	return u.String(), nil
}

// migrationFailed explains what an owner can do about a migration that did not work.
func migrationFailed(err error) error {
	if err := Explain(err); fault.CodeOf(err) != fault.Internal {
		return err
	}
	if State(err) == "42501" {
		return fault.New(fault.Precondition, "the owner in DATABASE_URL may not set the database up",
			"give that role CREATEROLE and CREATE on the database, or use its owner").Because(err)
	}
	return fault.New(fault.Precondition, "the database could not be brought to this version's schema",
		"read the cause in the log; a newer arbe may have migrated it already").Because(err)
}
