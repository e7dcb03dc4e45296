package db_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

func newSealer(t testing.TB) *secret.Sealer {
	t.Helper()
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := secret.NewSealer(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sealer
}

// connect opens one connection for the test.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func execute(t testing.TB, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(context.WithoutCancel(t.Context()), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// wants fails the test unless err is a fault of this code with a next step.
func wants(t testing.TB, err error, code fault.Code) {
	t.Helper()
	if got := fault.From(err); err == nil || got.Code != code || got.Next == "" {
		t.Errorf("got %v, want %s with a next step", err, code)
	}
}

// migrated fails the test unless the owner's database can be migrated and a server can use it.
func migrated(t testing.TB, ownerURL string, sealer db.Sealer) (serverURL string) {
	t.Helper()
	serverURL, err := db.Migrate(t.Context(), ownerURL, sealer)
	if err != nil {
		t.Fatalf("migrating: %s", fault.From(err).Detail())
	}
	conn := connect(t, serverURL)
	if role := column[string](t, conn, "select current_user::text")[0]; !strings.HasPrefix(role, "arbe_server_") {
		t.Errorf("the server would serve as %s", role)
	}
	execute(t, conn, "select from threads")
	return serverURL
}

func TestServersMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	owner, sealer := dbtest.Empty(t), newSealer(t)
	var urls [3]string
	var errs [len(urls)]error
	var servers sync.WaitGroup
	for i := range urls {
		servers.Go(func() { urls[i], errs[i] = db.Migrate(t.Context(), owner, sealer) })
	}
	servers.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}
	if urls[0] != urls[1] || urls[1] != urls[2] {
		t.Error("they do not serve as one role")
	}
	if got := migrated(t, owner, sealer); got != urls[0] {
		t.Error("a later start does not serve as the same role")
	}
}

func TestThePasswordOfTheServersRole(t *testing.T) {
	t.Parallel()
	t.Run("is nowhere in the clear", func(t *testing.T) {
		t.Parallel()
		d := dbtest.New(t)
		u, err := url.Parse(d.ServerURL)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		sealed := column[[]byte](t, d.Owner(t), "select sealed from sealed_settings where name = 'server_role_password'")
		if len(password) < 20 || len(sealed) != 1 || strings.Contains(string(sealed[0]), password) {
			t.Errorf("%d characters, in %d rows", len(password), len(sealed))
		}
		if opened, err := d.Sealer.Open(sealed[0]); err != nil || string(opened) != password {
			t.Errorf("what is sealed is not the password: %v", err)
		}
	})
	t.Run("cannot be opened with another key, which is said", func(t *testing.T) {
		t.Parallel()
		d := dbtest.New(t)
		_, err := db.Migrate(t.Context(), d.OwnerURL, newSealer(t))
		wants(t, err, fault.Precondition)
		migrated(t, d.OwnerURL, d.Sealer) // and the failure broke nothing
	})
	t.Run("is created again when the role is lost, as after a restore", func(t *testing.T) {
		t.Parallel()
		d := dbtest.New(t)
		d.DB.Close()
		conn := d.Owner(t)
		role := column[string](t, conn, "select 'arbe_server_' || oid from pg_database where datname = current_database()")[0]
		execute(t, conn, "drop owned by "+role+"; drop role "+role)
		if got := migrated(t, d.OwnerURL, d.Sealer); got == d.ServerURL {
			t.Error("the password stays")
		}
	})
	t.Run("is created again when the database is", func(t *testing.T) {
		t.Parallel()
		d := dbtest.New(t)
		execute(t, d.Owner(t), "delete from sealed_settings")
		if got := migrated(t, d.OwnerURL, newSealer(t)); got == d.ServerURL {
			t.Error("the password stays")
		}
	})
}

// newOwner makes an empty database that belongs to a new role with these attributes. Its password needs every kind of
// quoting.
func newOwner(t testing.TB, attributes string) (admin *pgx.Conn, u *url.URL) {
	t.Helper()
	const password = `p@ss w:/?#[]%'"\&=+`
	// The role is dropped last, because it owns the database until then.
	var role, server string
	t.Cleanup(func() {
		if admin == nil {
			return
		}
		cfg := admin.Config()
		cfg.Database = "postgres"
		conn, err := pgx.ConnectConfig(context.Background(), cfg)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		for _, statement := range []string{"drop role if exists " + server, "revoke arbe_app from " + role + " cascade", "drop role " + role} {
			if _, err := conn.Exec(context.Background(), statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
	u, err := url.Parse(dbtest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	admin = connect(t, u.String())
	name := strings.TrimPrefix(u.Path, "/")
	role = name + "_owner"
	server = column[string](t, admin, "select 'arbe_server_' || oid from pg_database where datname = current_database()")[0]
	execute(t, admin, fmt.Sprintf("create role %s login %s password '%s'", role, attributes, strings.ReplaceAll(password, "'", "''")))
	execute(t, admin, "alter database "+name+" owner to "+role)
	u.User = url.UserPassword(role, password)
	return admin, u
}

func TestAnOwnerIsNoSuperuser(t *testing.T) {
	t.Parallel()
	t.Run("with CREATEROLE it sets the database up", func(t *testing.T) {
		t.Parallel()
		admin, u := newOwner(t, "createrole")
		execute(t, admin, "grant arbe_app to "+u.User.Username()+" with admin option")
		server := migrated(t, u.String(), newSealer(t))
		owner := connect(t, u.String())
		h := newHouse(t, owner, "managed Postgres")
		d, err := db.Open(t.Context(), server, db.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		in(t, d, h.scope(), func(tx pgx.Tx) {
			if n := column[int](t, tx, "select count(*) from append_entries($1, array['second'], array[null::uuid], array['chat'], array['{}'::json])", h.stream)[0]; n != 1 {
				t.Errorf("%d entries were appended", n)
			}
			execute(t, tx.Conn(), "delete from houses")
			if n := column[int](t, tx, "select count(*) from threads")[0]; n != 0 {
				t.Errorf("%d threads outlive their house", n)
			}
		})
	})
	t.Run("without CREATEROLE the error says so, and nothing is left half done", func(t *testing.T) {
		t.Parallel()
		admin, u := newOwner(t, "")
		sealer := newSealer(t)
		_, err := db.Migrate(t.Context(), u.String(), sealer)
		wants(t, err, fault.Precondition)
		if next := fault.From(err).Next; !strings.Contains(next, "CREATEROLE") {
			t.Errorf("the next step is %q", next)
		}
		execute(t, admin, "alter role "+u.User.Username()+" createrole; grant arbe_app to "+u.User.Username()+" with admin option")
		migrated(t, u.String(), sealer)
	})
	t.Run("a schema of its own name is not where the tables go", func(t *testing.T) {
		t.Parallel()
		admin, u := newOwner(t, "superuser")
		execute(t, admin, "create schema authorization "+u.User.Username())
		migrated(t, u.String(), newSealer(t))
		execute(t, admin, "select from public.threads, public.schema_migrations")
	})
}

func TestTheOwnersURLTakesEveryFormThatPostgresDoes(t *testing.T) {
	t.Parallel()
	_, u := newOwner(t, "superuser")
	sealer := newSealer(t)
	password, _ := u.User.Password()
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password)
	query := *u
	query.User = nil
	query.RawQuery = "sslmode=disable&us%65r=" + u.User.Username() + "&password=" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20") +
		"&options=-c%20statement_timeout%3D0"
	several := *u
	several.Host = "127.0.0.1:1," + u.Host
	for name, owner := range map[string]string{
		"special characters in the password": u.String(),
		"the other scheme":                   strings.Replace(u.String(), "postgres://", "postgresql://", 1),
		"user and password in the query":     query.String(),
		"several hosts":                      several.String(),
		"no options":                         strings.TrimSuffix(u.String(), "?"+u.RawQuery),
		"keys and values": fmt.Sprintf("host=%s port=%s dbname=%s user=%s password='%s'",
			u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/"), u.User.Username(), quoted),
	} {
		t.Run(name, func(t *testing.T) { migrated(t, owner, sealer) })
	}
}

func TestAMigrationThatWasCutShortIsTriedAgain(t *testing.T) {
	t.Parallel()
	all := versions(t)
	cases := map[string]int{"the first": all[0], "one in the middle": all[len(all)/2], "the last": all[len(all)-1], "one of a newer program": 999}
	for i, version := range all[1:] {
		if version > all[i]+1 {
			cases["one that follows a gap in the numbers"] = version
		}
	}
	for name, version := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, sealer := dbtest.Empty(t), newSealer(t)
			conn := connect(t, owner)
			migrated(t, owner, sealer)
			// The state after a server was killed within the transaction: all earlier migrations, and the dirty mark.
			undo(t, conn, version)
			execute(t, conn, fmt.Sprintf("truncate schema_migrations; insert into schema_migrations values (%d, true)", version))
			migrated(t, owner, sealer)
		})
	}
}

func TestADatabaseOfAnotherDevelopmentBuildIsRefused(t *testing.T) {
	t.Parallel()
	for name, differ := range map[string]string{
		"whose migration differs":                   "update migration_digests set sha256 = 'other' where version = 3",
		"from before migrations had digests":        "drop table migration_digests",
		"that has a migration which this one lacks": "insert into migration_digests values (0, 'another')",
		"even if its last migration was cut short":  "update schema_migrations set dirty = true; delete from migration_digests where version = 3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t)
			execute(t, d.Owner(t), differ)
			_, err := db.Migrate(t.Context(), d.OwnerURL, d.Sealer)
			wants(t, err, fault.Precondition)
			if said := fault.From(err).Message; !strings.Contains(said, "another development build") {
				t.Errorf("it says %q", said)
			}
		})
	}
}

// undo runs the down migrations, to the one before version.
func undo(t testing.TB, conn *pgx.Conn, version int) {
	t.Helper()
	files, err := filepath.Glob("migrations/*.down.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	slices.Reverse(files)
	for _, file := range files {
		if filepath.Base(file) < fmt.Sprintf("%06d", version) {
			break
		}
		statements, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		execute(t, conn, string(statements))
	}
}

// versions returns the numbers of the migrations, in order.
func versions(t testing.TB) (all []int) {
	t.Helper()
	files, err := filepath.Glob("migrations/*.up.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	for _, file := range files {
		version, err := strconv.Atoi(filepath.Base(file)[:6])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, version)
	}
	return all
}

func TestADatabaseThatCannotBeBroughtUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url  string
		code fault.Code
	}{
		"nothing listens":       {"postgres://arbe@127.0.0.1:1/arbe", fault.Unavailable},
		"no such host":          {"postgres://arbe@nowhere.invalid/arbe", fault.Unavailable},
		"no URL":                {"nonsense", fault.Invalid},
		"an escape that is not": {"postgres://%zz", fault.Invalid},
		"a port that is not":    {"postgres://arbe@localhost:port/arbe", fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := db.Migrate(t.Context(), c.url, newSealer(t))
			wants(t, err, c.code)
			_, err = db.Open(t.Context(), c.url, db.Options{})
			wants(t, err, c.code)
			wants(t, db.Down(t.Context(), c.url), c.code)
		})
	}
	t.Run("no such database", func(t *testing.T) {
		t.Parallel()
		_, err := db.Migrate(t.Context(), strings.Replace(dbtest.Empty(t), "/arbe_test_", "/nowhere_", 1), newSealer(t))
		wants(t, err, fault.Precondition)
	})
	t.Run("a newer arbe was here", func(t *testing.T) {
		t.Parallel()
		d := dbtest.New(t)
		execute(t, d.Owner(t), "update schema_migrations set version = 999")
		_, err := db.Migrate(t.Context(), d.OwnerURL, d.Sealer)
		wants(t, err, fault.Precondition)
	})
	t.Run("a caller who gave up", func(t *testing.T) {
		t.Parallel()
		d := dbtest.New(t)
		holder := d.Owner(t)
		execute(t, holder, "select pg_advisory_lock(hashtext('arbe.migrate'))")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		migrated := make(chan error, 1)
		go func() {
			_, err := db.Migrate(ctx, d.OwnerURL, d.Sealer)
			migrated <- err
		}()
		for waits := false; !waits; {
			err := holder.QueryRow(t.Context(), `select exists (select from pg_locks join pg_database on pg_database.oid = database
				where datname = current_database() and locktype = 'advisory' and not granted)`).Scan(&waits)
			if err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		if err := <-migrated; fault.CodeOf(err) != fault.Canceled {
			t.Errorf("got %v", err)
		}
	})
}
