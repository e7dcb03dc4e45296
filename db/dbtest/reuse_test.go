package dbtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db/dbtest"
)

// used is what a test sees of the database that it was given.
type used struct {
	database string
	process  uint32
	agents   int
}

// use runs a test on a reused database, and returns what it saw before it began.
func use(t *testing.T, f func(d *dbtest.Database, owner *pgx.Conn)) (u used) {
	t.Run("", func(t *testing.T) {
		d := dbtest.Reuse(t, 2)
		owner := d.Owner(t)
		u.process = owner.PgConn().PID()
		err := owner.QueryRow(t.Context(), "select current_database(), (select count(*) from agents)").Scan(&u.database, &u.agents)
		if err != nil {
			t.Fatal(err)
		}
		f(d, owner)
	})
	return u
}

func run(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestADatabaseIsUsedAgainWithoutItsRows(t *testing.T) {
	const add = "insert into agents (kind, name) values ('human', 'Ann')"
	first := use(t, func(_ *dbtest.Database, owner *pgx.Conn) { run(t, owner, add) })
	second := use(t, func(_ *dbtest.Database, owner *pgx.Conn) {
		run(t, owner, add)
		// None of these lasts longer than the connection.
		run(t, owner, "set search_path = pg_catalog; create temporary table mine (n int); prepare mine as select 1; select pg_advisory_lock(1); listen mine")
		run(t, owner, "begin")
	})
	third := use(t, func(_ *dbtest.Database, owner *pgx.Conn) {
		var path string
		var temporary, prepared, locks, listens int
		err := owner.QueryRow(t.Context(), `select current_setting('search_path'), (select count(*) from pg_class where relname = 'mine'),
			(select count(*) from pg_prepared_statements where name = 'mine'), (select count(*) from pg_listening_channels()),
			(select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database()))`).
			Scan(&path, &temporary, &prepared, &listens, &locks)
		if err != nil || path == "pg_catalog" || temporary+prepared+locks+listens != 0 {
			t.Errorf("the session has the path %q, %d tables, %d statements, %d channels and %d locks, %v", path, temporary, prepared, listens, locks, err)
		}
	})
	if first.database != second.database || second.database != third.database {
		t.Errorf("the tests got %+v, %+v and %+v", first, second, third)
	}
	if first.process != second.process || second.process != third.process {
		t.Errorf("the sessions are %+v, %+v and %+v", first, second, third)
	}
	if second.agents+third.agents != first.agents {
		t.Errorf("rows are left: %+v, %+v", second, third)
	}
}

// A session keeps what pgx prepared, so that the tests of a process do not plan the same statements again.
func TestASessionKeepsPreparedStatements(t *testing.T) {
	const query, mistaken = "select count(*) from agents where name = $1", "select count(*) from agents where nmae = $1"
	ask := func(t *testing.T, owner *pgx.Conn) (plans int) {
		var n int
		if err := owner.QueryRow(t.Context(), query, "Ann").Scan(&n); err != nil || n != 0 {
			t.Errorf("got %d rows, %v", n, err)
		}
		err := owner.QueryRow(t.Context(), "select coalesce(sum(custom_plans + generic_plans), 0) from pg_prepared_statements where statement = $1", query).Scan(&plans)
		if err != nil {
			t.Error(err)
		}
		return plans
	}
	for _, c := range []struct {
		name  string
		do    func(owner *pgx.Conn) error
		plans int // of the query in the test after it
	}{
		{"after nothing else", func(*pgx.Conn) error { return nil }, 2},
		{"after a statement with a mistake", func(owner *pgx.Conn) error {
			if err := owner.QueryRow(t.Context(), mistaken, "Ann").Scan(nil); err == nil {
				t.Error("there is no error")
			}
			return nil
		}, 1},
		{"in an aborted transaction", func(owner *pgx.Conn) error {
			run(t, owner, "begin")
			if _, err := owner.Exec(t.Context(), "select 1/0"); err == nil {
				t.Error("there is no error")
			}
			_, err := owner.Exec(t.Context(), "rollback")
			return err
		}, 2},
		{"after it was closed", func(owner *pgx.Conn) error { return owner.DeallocateAll(t.Context()) }, 1},
		{"after another was closed", func(owner *pgx.Conn) error {
			if _, err := owner.Prepare(t.Context(), "another", "select 1"); err != nil {
				return err
			}
			return owner.Deallocate(t.Context(), "another")
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			use(t, func(_ *dbtest.Database, owner *pgx.Conn) { run(t, owner, "deallocate all") })
			use(t, func(_ *dbtest.Database, owner *pgx.Conn) {
				if plans := ask(t, owner); plans != 1 {
					t.Errorf("the first test planned it %d times", plans)
				}
				if err := c.do(owner); err != nil {
					t.Error(err)
				}
			})
			use(t, func(_ *dbtest.Database, owner *pgx.Conn) {
				if plans := ask(t, owner); plans != c.plans {
					t.Errorf("it was planned %d times, want %d", plans, c.plans)
				}
			})
			// Closing one statement leaves those that an earlier client prepared.
			use(t, func(_ *dbtest.Database, owner *pgx.Conn) {
				if _, err := owner.Prepare(t.Context(), "another", "select 1"); err != nil {
					t.Error(err)
				}
				if err := owner.Deallocate(t.Context(), "another"); err != nil {
					t.Error(err)
				}
				ask(t, owner)
			})
		})
	}
}

func TestADatabaseWhoseTestChangedMoreThanRowsIsNotUsedAgain(t *testing.T) {
	for name, statement := range map[string]string{
		"a function": "create or replace function house_word(p_house text) returns text language sql immutable set search_path = pg_catalog, pg_temp as $$ select p_house $$",
		"a trigger":  "alter table threads disable trigger notify_change",
		"a table":    "create table public.another (n int)",
		"a column":   "alter table agents add column extra int",
		"a grant":    "grant select on agents to public",
		"a policy":   "alter table threads disable row level security",
		"a setting":  "do $$ begin execute format('alter database %I set work_mem = ''1MB''', current_database()); end $$",
		"a limit":    "do $$ begin execute format('alter database %I connection limit 50', current_database()); end $$",
		"its digest": "delete from migration_digests",
	} {
		t.Run(name, func(t *testing.T) {
			first := use(t, func(_ *dbtest.Database, owner *pgx.Conn) { run(t, owner, statement) })
			if second := use(t, func(*dbtest.Database, *pgx.Conn) {}); second.database == first.database {
				t.Error("it is used again")
			}
		})
	}
}

func TestWhatATestLeavesRunningCannotReachTheNextOne(t *testing.T) {
	var left *pgconn.PgConn
	var url string
	first := use(t, func(d *dbtest.Database, _ *pgx.Conn) {
		conn, err := pgx.Connect(context.Background(), d.ServerURL)
		if err != nil {
			t.Fatal(err)
		}
		left, url = conn.PgConn(), d.ServerURL
		conn.PgConn().Exec(context.Background(), "select pg_sleep(60)") // still at work
	})
	second := use(t, func(*dbtest.Database, *pgx.Conn) {
		if conn, err := pgx.Connect(t.Context(), url); err == nil {
			conn.Close(t.Context())
			t.Error("it connects again")
		}
		if _, err := left.ReceiveMessage(t.Context()); err == nil {
			if _, err = left.ReceiveMessage(t.Context()); err == nil {
				t.Error("it is still connected")
			}
		}
	})
	if first.database != second.database {
		t.Errorf("the tests got %+v and %+v", first, second)
	}
}

func TestASessionThatPostgresEndedIsNotUsedAgain(t *testing.T) {
	first := use(t, func(*dbtest.Database, *pgx.Conn) {})
	second := use(t, func(d *dbtest.Database, owner *pgx.Conn) {
		var pid uint32
		if err := d.DB.Pool().QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		d.DB.Close()
		// Its session waits for the next connection now. It ends there.
		for range 2 {
			if _, err := owner.Exec(t.Context(), "select pg_terminate_backend(pid, 10000) from pg_stat_activity where pid = $1", int64(pid)); err != nil {
				t.Fatal(err)
			}
		}
		conn, err := pgx.Connect(t.Context(), d.ServerURL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if err := conn.Ping(t.Context()); err != nil {
			t.Errorf("the next connection says %v", err)
		}
	})
	if first.database != second.database {
		t.Errorf("the tests got %+v and %+v", first, second)
	}
}
