package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Reuse is [NewPool] with a database that an earlier test of this process may have used. It is for the packages with the
// most tests, because making a database, and the first queries of its sessions, cost more than most tests do.
//
// A database is used again only if its test left the schema, the settings and the rows of its migrations as they were. All
// other rows are deleted, sequences begin again, and nothing that the test left running can reach the database any more.
// Statistics of the planner, and the space of deleted rows, remain: a test that looks at plans takes [New].
//
// The test's connections pass through this process, which a benchmark would measure. So a benchmark gets a database of its own.
// A test that limits connections, or tells new ones from old ones, takes [NewPool].
func Reuse(t testing.TB, conns int32) *Database {
	t.Helper()
	if _, measures := t.(*testing.B); measures {
		return NewPool(t, conns)
	}
	s, err := spare(t.Context())
	if err != nil {
		t.Fatalf("making the test's database: %s", fault.From(err).Detail())
	}
	entrance, err := enter(s.sessions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		entrance.close()
		ctx, cancel := context.WithTimeout(context.Background(), wipeTimeout)
		defer cancel()
		if clean, err := s.wipe(ctx, entrance.lost.Load()); err != nil || !clean {
			if err := s.drop(); err != nil {
				t.Errorf("dropping the test's database: %v", err)
			}
			return
		}
		spares.mu.Lock()
		defer spares.mu.Unlock()
		spares.list = append(spares.list, s)
	})
	through := func(raw string) string {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = entrance.listener.Addr().String()
		return u.String()
	}
	d := &Database{OwnerURL: through(s.ownerURL), ServerURL: through(s.serverURL), Sealer: shared.sealer}
	if d.DB, err = db.Open(t.Context(), d.ServerURL, db.Options{MaxConns: conns}); err != nil {
		t.Fatalf("opening the test's database: %v", err)
	}
	t.Cleanup(d.DB.Close)
	return d
}

// wipeTimeout limits how long a database is made ready for the next test. After that it is dropped.
const wipeTimeout = time.Minute

// spares are the databases of this process that no test uses.
var spares struct {
	mu   sync.Mutex
	list []*reusable
}

// reusable is a database that tests use one after another.
type reusable struct {
	*sessions
	name                string
	ownerURL, serverURL string
	owner               *pgx.Conn
	// made is the database's fingerprint when it was made.
	made string
}

// spare returns a database that no test uses, and makes one if all are in use.
func spare(ctx context.Context) (*reusable, error) {
	spares.mu.Lock()
	if n := len(spares.list); n > 0 {
		s := spares.list[n-1]
		spares.list = spares.list[:n-1]
		spares.mu.Unlock()
		return s, nil
	}
	spares.mu.Unlock()
	name, err := makeDatabase("")
	if err != nil {
		return nil, err
	}
	s := &reusable{name: name, ownerURL: withDatabase(shared.url, name)}
	if err := s.prepare(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("%w; %v", err, s.drop())
	}
	return s, nil
}

func (s *reusable) prepare(ctx context.Context) (err error) {
	u, err := url.Parse(s.ownerURL)
	if err != nil {
		return err
	}
	s.sessions = newSessions(u.Host)
	if s.serverURL, err = db.ServerURL(ctx, s.ownerURL, shared.sealer); err != nil {
		return err
	}
	if s.owner, err = pgx.Connect(ctx, s.ownerURL); err != nil {
		return err
	}
	s.made, err = s.fingerprint(ctx)
	return err
}

// drop drops the database.
func (s *reusable) drop() error {
	if s.sessions != nil {
		s.sessions.close()
	}
	if s.owner != nil {
		s.owner.Close(context.Background())
	}
	return execute("drop database " + s.name + " with (force)")
}

// migrated are the tables with rows of the migrations, and of the first start of a server.
const migrated = `('public.migration_digests', 'public.schema_migrations', 'public.installation', 'public.sealed_settings', 'river.river_migration')`

// fingerprint returns a text that changes with the schema, the settings and the rows of the migrations. Each change of a catalog's row
// gives it another xmin; statistics do not.
func (s *reusable) fingerprint(ctx context.Context) (text string, err error) {
	const ours = "(select oid from pg_namespace where nspname in ('public', 'river'))"
	err = s.owner.QueryRow(ctx, `
		select concat_ws(' ',
			(select concat(count(*), ':', sum(hashtext(concat(oid, ' ', xmin)))) from pg_class where relnamespace in `+ours+`),
			(select concat(count(*), ':', sum(hashtext(concat(oid, ' ', xmin)))) from pg_proc where pronamespace in `+ours+`),
			(select concat(count(*), ':', sum(hashtext(concat(oid, ' ', xmin)))) from pg_namespace where nspname !~ '^pg_'), -- those of temporary tables stay
			(select concat(count(*), ':', sum(hashtext(concat(oid, ' ', xmin)))) from pg_constraint where connamespace in `+ours+`),
			(select concat(count(*), ':', sum(hashtext(concat(oid, ' ', xmin)))) from pg_trigger),
			(select concat(count(*), ':', sum(hashtext(concat(oid, ' ', xmin)))) from pg_policy),
			(select concat(count(*), ':', sum(hashtext(concat(attrelid, ' ', attnum, ' ', xmin)))) from pg_attribute where attrelid > 16383),
			(select concat(count(*), ':', sum(hashtext(concat(setrole, ' ', xmin)))) from pg_db_role_setting),
			(select string_agg(x::text, ' ') from public.installation x),
			(select string_agg(x::text, ' ') from public.sealed_settings x),
			(select count(*) from public.schema_migrations), (select count(*) from public.migration_digests), (select count(*) from river.river_migration),
			(select sum(hashtext(d::text)) from pg_database d where datname = current_database()))`).Scan(&text)
	return text, err
}

// bloatMost is the largest size of a database that is used again, in bytes. Deleted rows of large tests would delay later ones.
const bloatMost = 48 << 20

// wipe restores the database to its state when it was made. busy says that Postgres may still be executing a statement of the last
// test. wipe reports false if the database cannot be used again.
func (s *reusable) wipe(ctx context.Context, busy bool) (clean bool, err error) {
	if busy {
		// Waits until each has ended.
		if _, err := s.owner.Exec(ctx, `select pg_terminate_backend(pid, 60000) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and pid <> all ($1) and backend_type = 'client backend'`, s.processes()); err != nil {
			return false, err
		}
	}
	var size int64
	if err := s.owner.QueryRow(ctx, "select pg_database_size(current_database())").Scan(&size); err != nil || size > bloatMost {
		return false, err
	}
	if now, err := s.fingerprint(ctx); err != nil || now != s.made {
		return false, err
	}
	_, err = s.owner.Exec(ctx, `do $$ declare r regclass; begin
		set local session_replication_role = replica; -- no trigger, and no foreign key
		for r in select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where n.nspname in ('public', 'river') and c.relkind = 'r' and concat(n.nspname, '.', c.relname) not in `+migrated+`
		loop
			execute format('delete from %s', r);
		end loop;
		perform setval(c.oid, 1, false) from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where n.nspname in ('public', 'river') and c.relkind = 'S';
	end $$`)
	return err == nil, err
}

// dropSpares drops the databases that no test uses any more.
func dropSpares() {
	spares.mu.Lock()
	defer spares.mu.Unlock()
	for _, s := range spares.list {
		s.drop() //nolint:errcheck // a Postgres that has gone has dropped them
	}
	spares.list = nil
}
