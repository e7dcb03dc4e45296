package db

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

//go:embed migrations/*.sql
var migrations embed.FS

//go:embed jobs.sql
var jobIndexes string

// JobSchema is the Postgres schema of the job queue's tables.
const JobSchema = "river"

// Oldest is the oldest major version of Postgres that works, because it introduced `on delete set null (column)`, which
// the schema uses.
const Oldest = 15

// Sealer encrypts the password of the server's role, so that it is not readable in the database.
type Sealer interface {
	Seal(value []byte) ([]byte, error)
	Open(sealed []byte) ([]byte, error)
}

// Migrate brings the database at ownerURL to this program's schema, as [MigrateSchema] does, and returns the URL for
// the server's own role, which can log in but owns nothing and cannot bypass row-level security. It creates that role
// the first time, with a password that it stores sealed in the database. Several servers may migrate at once. The
// sealer must be the one that sealed the password; otherwise the error is a [fault.Precondition].
func Migrate(ctx context.Context, ownerURL string, sealer Sealer) (serverURL string, err error) {
	err = migrateSchema(ctx, ownerURL, func(conn *pgx.Conn) (err error) {
		serverURL, err = serverAccess(ctx, conn, ownerURL, sealer)
		return err
	})
	return serverURL, err
}

// ServerURL does the part of [Migrate] that a copy of a migrated database needs: it has this program's schema, but no
// role for its server.
func ServerURL(ctx context.Context, ownerURL string, sealer Sealer) (string, error) {
	conn, err := ConnectOwner(ctx, ownerURL)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return serverAccess(ctx, conn, ownerURL, sealer)
}

// MigrateSchema brings the database at ownerURL to this program's schema. It needs no secret key, because [Migrate]
// creates the server's role. Several programs may migrate at once, and the next migration repairs one that was killed.
// The first time, the owner needs CREATEROLE or must be a superuser; otherwise the error is a [fault.Precondition].
func MigrateSchema(ctx context.Context, ownerURL string) error {
	return migrateSchema(ctx, ownerURL, func(*pgx.Conn) error { return nil })
}

// migrateSchema is [MigrateSchema], and calls then before it releases the migration lock, so that two servers do not
// create the role at once.
func migrateSchema(ctx context.Context, ownerURL string, then func(*pgx.Conn) error) error {
	conn, err := ConnectOwner(ctx, ownerURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// A session lock, because each step needs its own transaction. It ends with the connection.
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext('arbe.migrate'))"); err != nil {
		return Explain(err)
	}
	files, err := migrationFiles()
	if err != nil {
		return err
	}
	if err := checkApplied(ctx, conn, files); err != nil {
		return migrationFailed(err)
	}
	if _, err := conn.Exec(ctx, "create table if not exists migration_digests (version bigint primary key, sha256 bytea not null)"); err != nil {
		return migrationFailed(err)
	}
	m, err := migrator(conn.Config(), files)
	if err != nil {
		return migrationFailed(err)
	}
	defer m.Close()
	if err := up(ctx, conn, m); err != nil {
		return migrationFailed(err)
	}
	if err := migrateJobs(ctx, conn); err != nil {
		return migrationFailed(err)
	}
	return then(conn)
}

// Down reverts every migration, which deletes all data. It is for tests and for operators who know this.
func Down(ctx context.Context, ownerURL string) error {
	conn, err := ConnectOwner(ctx, ownerURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "drop schema if exists "+JobSchema+" cascade"); err != nil {
		return Explain(err)
	}
	files, err := migrationFiles()
	if err != nil {
		return err
	}
	m, err := migrator(conn.Config(), files)
	if err != nil {
		return Explain(err)
	}
	defer m.Close()
	if err := m.Down(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return migrationFailed(err)
	}
	if _, err := conn.Exec(ctx, "drop table schema_migrations; drop table if exists migration_digests"); err != nil {
		return migrationFailed(err)
	}
	return nil
}

// ConnectOwner opens a connection as the owner of the schema, to whom row-level security does not apply. Only
// migrations and the first start may use it. Its errors name the cause, as those of [Open] do. A database older than
// [Oldest] is a [fault.Precondition].
func ConnectOwner(ctx context.Context, ownerURL string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return nil, badURL(err)
	}
	// Otherwise our tables would be created in the owner's own schema, if there is one of its name.
	cfg.RuntimeParams["search_path"] = "public"
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 15 * time.Second
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, explainConnect(err)
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

// migrationFiles returns this program's migrations.
func migrationFiles() (whole, error) {
	files, err := iofs.New(migrations, "migrations")
	return whole{files}, err
}

// SchemaDigest returns a text that differs between programs with different migrations.
func SchemaDigest() string {
	sum := sha256.New()
	err := fs.WalkDir(migrations, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := migrations.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		panic(err) // cannot happen, because the files are in the program
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// migrator returns a golang-migrate with its own connection. It takes an advisory lock while it works.
func migrator(cfg *pgx.ConnConfig, files whole) (*migrate.Migrate, error) {
	target, err := migratepgx.WithInstance(stdlib.OpenDB(*cfg), &migratepgx.Config{})
	if err != nil {
		return nil, err
	}
	return migrate.NewWithInstance("iofs", files, "pgx5", target)
}

// up applies the missing migrations. A dirty version is a migration that failed or whose server was killed. Because of
// [whole] it changed nothing, so it is tried again. If it was a newer program's, this one works with the migrations
// that were applied before it.
func up(ctx context.Context, conn *pgx.Conn, m *migrate.Migrate) error {
	err := m.Up()
	if dirty, ok := errors.AsType[migrate.ErrDirty](err); ok {
		// The digests say which one was applied last; the numbers have gaps, and this program may not have that one.
		var before int
		const applied = "select coalesce(max(version), $2) from migration_digests where version < $1"
		if err := conn.QueryRow(ctx, applied, dirty.Version, database.NilVersion).Scan(&before); err != nil {
			return err
		}
		if err := m.Force(before); err != nil {
			return err
		}
		err = m.Up()
	}
	if errors.Is(err, migrate.ErrNoChange) {
		return nil
	}
	return err
}

// whole makes a migration all or nothing: Postgres runs the statements of a file as one transaction, and the last one
// removes the dirty mark that golang-migrate sets before and would otherwise remove afterwards. A migration must
// not commit, and must not use statements that cannot run in a transaction (create index concurrently). The same
// transaction records the migration's digest, for [checkApplied].
type whole struct{ source.Driver }

func (w whole) ReadUp(version uint) (io.ReadCloser, string, error) {
	text, name, err := w.read(version)
	if err != nil {
		return nil, name, err
	}
	text = fmt.Appendf(text, `
		insert into migration_digests (version, sha256) values (%d, '\x%x') on conflict (version) do update set sha256 = excluded.sha256;
		update schema_migrations set dirty = false;
	`, version, migrationDigest(text))
	return io.NopCloser(bytes.NewReader(text)), name, nil
}

func (w whole) read(version uint) (text []byte, name string, err error) {
	file, name, err := w.Driver.ReadUp(version)
	if err != nil {
		return nil, name, err
	}
	defer file.Close()
	text, err = io.ReadAll(file)
	return text, name, err
}

// sqlComments matches comments, which the digest leaves out because they do not change the schema.
var sqlComments = lazyregexp.New(`(?m)--.*$`)

// migrationDigest returns the SHA-256 of a migration's statements.
func migrationDigest(text []byte) []byte {
	sum := sha256.Sum256(bytes.Join(bytes.Fields(sqlComments.ReplaceAll(text, nil)), []byte(" ")))
	return sum[:]
}

// checkApplied compares the applied migrations of a database with this program's. Between releases, migrations change
// in place, so a database of another development build may lack changes. Without this check, the first statement that
// needs them would fail. It changes nothing. The error is a [fault.Precondition].
func checkApplied(ctx context.Context, conn *pgx.Conn, files whole) error {
	last, err := lastApplied(ctx, conn)
	if err != nil || last == 0 {
		return err
	}
	applied, err := appliedDigests(ctx, conn)
	if err != nil {
		return err
	}
	differs := func(version int64) error {
		return fault.Newf(fault.Precondition, "use the arbe that set the database up, or give this one an empty database; for arbe up, set ARBE_DATA_DIR to a new directory",
			"this database was set up by another development build of arbe, whose migration %d differs from this one's", version)
	}
	var latest int64
	for of, err := files.First(); ; of, err = files.Next(of) {
		if errors.Is(err, fs.ErrNotExist) || int64(of) > last {
			break
		} else if err != nil {
			return err
		}
		latest = int64(of)
		text, _, err := files.read(of)
		if err != nil {
			return err
		}
		if !bytes.Equal(applied[latest], migrationDigest(text)) {
			return differs(latest)
		}
		delete(applied, latest)
	}
	for version := range applied {
		if version < latest { // later ones are a newer program's
			return differs(version)
		}
	}
	return nil
}

// lastApplied returns the last applied migration of a database; 0 if there is none. A dirty one changed nothing; see
// [whole].
func lastApplied(ctx context.Context, conn *pgx.Conn) (version int64, err error) {
	var exists bool
	if err := conn.QueryRow(ctx, "select to_regclass('schema_migrations') is not null").Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = conn.QueryRow(ctx, "select coalesce(max(version - dirty::int), 0) from schema_migrations").Scan(&version)
	return version, err
}

// appliedDigests returns the digests of a database's applied migrations. A database from before they were recorded
// has none.
func appliedDigests(ctx context.Context, conn *pgx.Conn) (map[int64][]byte, error) {
	digests := map[int64][]byte{}
	rows, _ := conn.Query(ctx, "select version, sha256 from migration_digests") // ForEachRow returns its error
	var version int64
	var digest []byte
	_, err := pgx.ForEachRow(rows, []any{&version, &digest}, func() error {
		digests[version] = bytes.Clone(digest)
		return nil
	})
	if State(err) == pgerrcode.UndefinedTable {
		return digests, nil
	}
	return digests, err
}

// migrateJobs migrates the job queue's own schema and lets the server's role use it.
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
	if _, err := conn.Exec(ctx, jobIndexes); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `
		grant usage on schema `+JobSchema+` to arbe_app;
		grant select, insert, update, delete on all tables in schema `+JobSchema+` to arbe_app;
		revoke insert, update, delete on `+JobSchema+`.river_migration from arbe_app;
		grant usage on all sequences in schema `+JobSchema+` to arbe_app;
		grant execute on all functions in schema `+JobSchema+` to arbe_app`)
	return err
}

// serverAccess creates the login role of the database's servers, confines it, and returns the URL for their
// connections.
func serverAccess(ctx context.Context, conn *pgx.Conn, ownerURL string, sealer Sealer) (serverURL string, err error) {
	role, password, err := serverRole(ctx, conn, sealer)
	if err != nil {
		return "", err
	}
	return withUser(ownerURL, role, password), confine(ctx, conn, role)
}

// rolePassword is the sealed setting with the password of the servers' role.
const rolePassword = "server_role_password"

// serverRole creates or updates the login role of this database's servers, and returns its name and password.
func serverRole(ctx context.Context, conn *pgx.Conn, sealer Sealer) (role, password string, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// The name contains the database's id, because roles belong to the whole cluster.
		if err := tx.QueryRow(ctx, "select 'arbe_server_' || oid from pg_database where datname = current_database()").Scan(&role); err != nil {
			return err
		}
		var exists bool
		if err := tx.QueryRow(ctx, "select exists (select from pg_roles where rolname = $1)", role).Scan(&exists); err != nil {
			return err
		}
		var sealed []byte
		err := tx.QueryRow(ctx, "select sealed from sealed_settings where name = $1", rolePassword).Scan(&sealed)
		switch {
		case err == nil && exists:
			opened, err := sealer.Open(sealed)
			password = string(opened)
			return err
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		// If one half is missing, as after a restore into another cluster, create both again, because neither is useful
		// without the other.
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
		_, err = tx.Exec(ctx, "insert into sealed_settings (name, sealed) values ($1, $2) on conflict (name) do update set sealed = excluded.sealed", rolePassword, sealed)
		return err
	})
	if err != nil {
		return "", "", migrationFailed(err)
	}
	return role, password, nil
}

// unconfined reports whether role has a right in this database that it must not have, or lacks one that it needs.
const unconfined = `select
	has_database_privilege($1, current_database(), 'temporary') or has_database_privilege($1, current_database(), 'create')
	or has_schema_privilege($1, 'public', 'create')
	or not exists (select from pg_database, aclexplode(datacl) a where datname = current_database() and a.privilege_type = 'CONNECT' and a.grantee = $1::regrole)
	or exists (select from pg_database, aclexplode(coalesce(datacl, acldefault('d', datdba))) a where datname = current_database() and a.grantee = 0)`

// confine revokes the default rights of everyone in a database: to connect, and to create objects. Such objects could
// replace those that functions with their owner's rights use. Only the server's role may connect; arbe_app is the
// group of the servers of all databases in the cluster. The rights are checked at every start, because neither a dump
// nor a template includes them.
func confine(ctx context.Context, conn *pgx.Conn, role string) error {
	var open bool
	if err := conn.QueryRow(ctx, unconfined, role).Scan(&open); err != nil {
		return migrationFailed(err)
	}
	if !open {
		return nil
	}
	var confining string
	if err := conn.QueryRow(ctx, `select format('revoke all on database %1$I from public, arbe_app, %2$I; grant connect on database %1$I to %2$I;
		revoke create on schema public from public, arbe_app, %2$I', current_database(), $1::text)`, role).Scan(&confining); err != nil {
		return migrationFailed(err)
	}
	if _, err := conn.Exec(ctx, confining); err != nil && State(err) != pgerrcode.InsufficientPrivilege {
		return migrationFailed(err)
	}
	// Check the result, because Postgres only warns an owner who may not revoke a right.
	if err := conn.QueryRow(ctx, unconfined, role).Scan(&open); err != nil {
		return migrationFailed(err)
	}
	if open {
		return fault.New(fault.Precondition, "everybody in this Postgres may connect to the database or make objects in it, and the owner in DATABASE_URL may not change that",
			"make that role the owner of the database, or run as its owner: "+confining)
	}
	return nil
}

// withUser returns a connection string with another user. It edits a URL as text, because net/url does not accept every
// Postgres URL (several hosts, no host).
func withUser(ownerURL, user, password string) string {
	scheme, rest, isURL := strings.Cut(ownerURL, "://")
	if !isURL || scheme != "postgres" && scheme != "postgresql" {
		return ownerURL + " user=" + user + " password=" + password // for a list of keys and values, the last one wins
	}
	if end := strings.IndexAny(rest, "@/"); end >= 0 && rest[end] == '@' {
		rest = rest[end+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	// A user in the query would override the one before the host, and the server would connect as the owner.
	settings := slices.DeleteFunc(strings.Split(query, "&"), func(setting string) bool {
		key, _, _ := strings.Cut(setting, "=")
		key, _ = url.PathUnescape(key)
		return key == "" || key == "user" || key == "password"
	})
	return scheme + "://" + user + ":" + password + "@" + rest + "?" + strings.Join(settings, "&")
}

// migrationFailed explains what an owner can do about a failed migration.
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
	if State(err) == pgerrcode.InsufficientPrivilege {
		return fault.New(fault.Precondition, "the owner in DATABASE_URL may not set the database up",
			"give that role CREATEROLE, CREATE on the database and, when another role made arbe_app in this cluster, arbe_app with admin option").Because(err)
	}
	return fault.New(fault.Precondition, "the database could not be brought to this version's schema",
		"read the cause in the log; a newer arbe may have migrated it already").Because(err)
}

// Installation returns the identity of the database at ownerURL, which dumps and restores keep. It is empty if
// [Migrate] has not yet brought the database to this program's schema.
func Installation(ctx context.Context, ownerURL string) (id string, err error) {
	conn, err := ConnectOwner(ctx, ownerURL)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var there bool
	if err := conn.QueryRow(ctx, "select to_regclass('public.installation') is not null").Scan(&there); err != nil || !there {
		return "", Explain(err)
	}
	return id, Explain(conn.QueryRow(ctx, "select id from installation").Scan(&id))
}
