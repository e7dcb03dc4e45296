package db_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
)

// weaknesses returns what is wrong with our functions, one line each. A function with its owner's rights, or one that
// a trigger calls as the owner in a cascade, must mean the same under any search_path that its caller chose. Nobody
// may be able to call it without need.
func weaknesses(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	// The server's own statements, and the policies, defaults and functions that they use.
	uses := strings.Join(column[string](t, conn, `
		select pg_get_expr(polqual, polrelid) from pg_policy where polqual is not null
		union all select pg_get_expr(polwithcheck, polrelid) from pg_policy where polwithcheck is not null
		union all select pg_get_expr(adbin, adrelid) from pg_attrdef
		union all select pg_get_triggerdef(oid) from pg_trigger
		union all select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace and prosqlbody is not null`), "\n")
	files, err := filepath.Glob("queries/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no queries: %v", err)
	}
	for _, file := range append(files, "../internal/stream/commit/batch.go", "../internal/turn/turn.go", "../internal/jobs/fair.go", "../internal/jobs/queue.go") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		uses += string(text)
	}
	var found []string
	rows, err := conn.Query(t.Context(), `
		select p.proname::text, prosqlbody is not null,
			coalesce((select substr(c, 13) from unnest(proconfig) c where c like 'search_path=%'), ''),
			prosecdef, proowner = (select relowner from pg_class where oid = 'houses'::regclass),
			has_function_privilege('public', p.oid, 'execute'), has_function_privilege('arbe_app', p.oid, 'execute'),
			prorettype = 'trigger'::regtype, lanname::text
		from pg_proc p join pg_language l on l.oid = prolang
		where pronamespace in ('public'::regnamespace, 'river'::regnamespace) and (prosecdef or pronamespace = 'public'::regnamespace)
			and not exists (select from pg_depend where classid = 'pg_proc'::regclass and objid = p.oid and deptype = 'e') order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	var name, path, language string
	var bound, definer, owned, everybody, server, trigger bool
	_, err = pgx.ForEachRow(rows, []any{&name, &bound, &path, &definer, &owned, &everybody, &server, &trigger, &language}, func() error {
		is := func(wrong bool, what string) {
			if wrong {
				found = append(found, name+": "+what)
			}
		}
		is(!bound && path == "", "it sets no search_path, and was not bound when it was made")
		is(path != "" && path != "public, pg_temp" && path != "pg_catalog, pg_temp", "its search_path is "+path)
		is(language != "sql" && language != "plpgsql", "it is written in "+language)
		is(!owned, "it belongs to somebody else than the tables")
		is(everybody, "everybody may call it")
		is(server && trigger, "the server may put it on a table")
		is(server && !strings.Contains(uses, name+"("), "the server may call it, and never does")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestEveryFunctionMeansTheSameWhoeverCallsIt(t *testing.T) {
	t.Parallel()
	if found := weaknesses(t, dbtest.New(t).Owner(t)); len(found) > 0 {
		t.Errorf("these do not:\n%s", strings.Join(found, "\n"))
	}
	t.Run("and one that does not is named", func(t *testing.T) {
		conn := dbtest.New(t).Owner(t)
		for name, statement := range map[string]string{
			"no_path":     "create function no_path() returns int language plpgsql security definer as 'declare n int; begin return n; end'",
			"no_path_sql": "create function no_path_sql() returns int language sql as 'select 1::int'",
			"temp_first":  "create function temp_first() returns int language plpgsql security definer set search_path = pg_temp, public as 'begin return 1; end'",
			"no_temp":     "create function no_temp() returns int language plpgsql security definer set search_path = public as 'begin return 1; end'",
			"granted":     "create function granted() returns int language plpgsql set search_path = public, pg_temp as 'begin return 1; end'",
			"unused":      "create function unused() returns int language plpgsql set search_path = public, pg_temp as 'begin return 1; end'; grant execute on function unused to arbe_app",
		} {
			execute(t, conn, statement)
			if name != "granted" {
				execute(t, conn, "revoke execute on function "+name+" from public")
			}
			if !slices.ContainsFunc(weaknesses(t, conn), func(line string) bool { return strings.HasPrefix(line, name+": ") }) {
				t.Errorf("%s is not", name)
			}
		}
	})
}

// The server's role once became the owner this way. Both steps are blocked: the role cannot create a type, and no
// function of ours would accept one.
func TestATemporaryTypeIsNoWayToTheOwnersRights(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	owner := d.Owner(t)
	h := newHouse(t, owner, "Home")
	streamID := column[int64](t, owner, "select id from streams where house_id = $1 and name = $2", h.id, h.stream)[0]
	// Somebody lets it create temporary objects again.
	execute(t, owner, "do $$ begin execute format('grant temporary on database %I to arbe_app', current_database()); end $$")
	conn := connect(t, d.ServerURL)
	execute(t, conn, "create temporary sequence taken")
	execute(t, conn, `
		create function pg_temp.take(pg_catalog.timestamptz) returns boolean language plpgsql as $$ begin
			if current_user <> session_user then
				execute 'alter role ' || quote_ident(session_user) || ' superuser';
			end if;
			return true;
		end $$;
		create domain pg_temp.timestamptz as pg_catalog.timestamptz check (pg_temp.take(value))`)
	execute(t, conn, fmt.Sprintf("select append_one(%d, '%s', 2, 'taken', null, 'chat', '{}')", streamID, h.id))
	if column[bool](t, owner, "select rolsuper from pg_roles where rolname = $1", conn.Config().User)[0] {
		t.Error("the server's role became superuser")
	}
}

// Postgres plans a function in SQL again at each call, unless it can inline it. Making plans was half of the processor
// time that a question cost (migration 76). These functions are not called for each request, message or turn.
var plannedAtEachCall = []string{
	"active_turns", "add_notices", "artifact_bytes", "busy_sandboxes", "close_own_stream", "closed_streams", "delete_expired_streams",
	"delete_own_stream", "due_blobs", "forget_blob", "has_secret", "house_of_wake", "house_standing", "houses_beside",
	"houses_with_retention", "houses_with_secrets", "invite_of", "live_sandboxes", "login_identity_of", "note_api_keys_used", "note_sessions_used", "overdue_threads",
	"person_artifact_bytes", "running_threads", "spare_sandboxes", "touch_streams", "undecided_after", "unindexed_after",
	"unsaved_sandboxes",
}

func TestFunctionsThatAreCalledOftenKeepTheirPlans(t *testing.T) {
	t.Parallel()
	owner := dbtest.New(t).Owner(t)
	planned := column[string](t, owner, `
		select p.proname::text from pg_proc p join pg_language l on l.oid = p.prolang
		where p.pronamespace = 'public'::regnamespace and l.lanname = 'sql' and p.provolatile <> 'i' and (p.prosecdef or p.proconfig is not null)
		order by 1`)
	for _, name := range planned {
		if !slices.Contains(plannedAtEachCall, name) {
			t.Errorf("Postgres plans %s at each call: write it in PL/pgSQL, as migration 76 does, or name it in plannedAtEachCall if it is called rarely", name)
		}
	}
	for _, name := range plannedAtEachCall {
		if !slices.Contains(planned, name) {
			t.Errorf("Postgres does not plan %s at each call", name)
		}
	}
}
