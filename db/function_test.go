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

// proven are the functions that neither set their search_path nor were bound when they were made, because they are
// called so often that a path would cost too much. Each is called with these statements, which reach all of its body,
// while everything it could name is shadowed. $1 is a stream and $2 its house, $3 a member, $4 a fork of the stream.
var proven = map[string][]string{
	"append_one": {
		"select append_one($1, $2, 2, 'by arbe', null, 'chat', '{}')",
		"select append_one($1, $2, 3, 'by a member', $3, 'chat', '{}')",
		"select append_one($4, $2, 2, 'to a fork', $3, 'chat', '{}')",
	},
}

// weaknesses says what is wrong with functions of ours, a line each. A function, with its owner's rights or called by
// a trigger that a cascade fires as the owner, must mean the same under whatever search_path its caller chose; and
// nobody may call it who need not.
func weaknesses(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	// What the server says, and what policies, defaults and functions say for it.
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
	for _, file := range append(files, "../internal/stream/commit/batch.go", "../internal/dispatch/turns.go") {
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
		is(!bound && path == "" && proven[name] == nil, "it sets no search_path, was not bound when it was made, and is not proven")
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

// shadow puts something in the place of every type and operator of Postgres, and of every relation and function that
// text names or that is ours, for who has it first in the search_path. What it puts there fails for who acts with the rights of another.
const shadow = `
	create schema shadow;
	create function shadow.spring() returns boolean language plpgsql set search_path = pg_catalog as $$ begin
		if current_user <> session_user then
			raise exception 'acts as %', current_user using errcode = 'XX000';
		end if;
		return true;
	end $$;
	do $$
	declare o record;
	begin
		for o in select typname from pg_type where typnamespace = 'pg_catalog'::regnamespace and typtype = 'b' and typcategory <> 'A' loop
			begin
				execute format('create domain shadow.%1$I as pg_catalog.%1$I check (shadow.spring())', o.typname);
			exception when others then null; -- nothing that a column may be of
			end;
		end loop;
		for o in select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') loop
			execute format('create view shadow.%1$I as select * from public.%1$I where shadow.spring() with check option', o.relname);
		end loop;
		for o in select oprname, oprleft::regtype l, oprright::regtype r, oprresult::regtype res, oid from pg_operator
				where oprnamespace = 'pg_catalog'::regnamespace and oprkind = 'b' loop
			begin
				execute format('create function shadow.op_%s(a %s, b %s) returns %s language plpgsql as $f$ begin perform shadow.spring(); return null; end $f$', o.oid, o.l, o.r, o.res);
				execute format('create operator shadow.%s (leftarg = %s, rightarg = %s, function = shadow.op_%s)', o.oprname, o.l, o.r, o.oid);
			exception when others then null; -- its types are no real ones
			end;
		end loop;
		for o in select proname, oidvectortypes(proargtypes) args, prorettype::regtype res, proretset from pg_proc
				where pronamespace in ('pg_catalog'::regnamespace, 'public'::regnamespace) and prokind = 'f' and proname !~ '(in|out|recv|send)$' loop
			begin
				execute format('create function shadow.%I(%s) returns %s %s language plpgsql as $f$ begin perform shadow.spring(); return; end $f$',
					o.proname, o.args, case when o.proretset then 'setof' else '' end, o.res);
			exception when others then
				begin
					execute format('create function shadow.%I(%s) returns %s language plpgsql as $f$ begin perform shadow.spring(); return null; end $f$', o.proname, o.args, o.res);
				exception when others then null; -- its types are no real ones
				end;
			end;
		end loop;
	end $$;
	grant usage on schema shadow to public;
	grant all on all tables in schema shadow to public;
	grant execute on all functions in schema shadow to public`

func TestAProvenFunctionNamesNothingThatCanBeShadowed(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	owner := d.Owner(t)
	h := newHouse(t, owner, "Home")
	streamID := column[int64](t, owner, "select id from streams where house_id = $1 and name = $2", h.id, h.stream)[0]
	execute(t, owner, fmt.Sprintf("insert into streams (house_id, name, source_id, fork_seq, fork_sub) values ('%s', 'a fork', %d, 1, 0)", h.id, streamID))
	fork := column[int64](t, owner, "select id from streams where name = 'a fork'")[0]
	execute(t, owner, shadow)
	for kind, query := range map[string]string{
		"types":     "select typname::text from pg_type where typnamespace = 'shadow'::regnamespace and typtype = 'd'",
		"relations": "select relname::text from pg_class where relnamespace = 'shadow'::regnamespace and relkind = 'v'",
		"operators": "select oprname::text from pg_operator where oprnamespace = 'shadow'::regnamespace",
		"functions": "select proname::text from pg_proc where pronamespace = 'shadow'::regnamespace and proname !~ '^op_'",
	} {
		want := map[string][]string{"types": {"timestamptz", "text", "int8", "json"}, "relations": {"entries", "streams", "members"},
			"operators": {"=", "-", "||"}, "functions": {"clock_timestamp", "current_house", "inherited_entries"}}[kind]
		if got := column[string](t, owner, query); !containsAll(got, want) {
			t.Fatalf("of the %s %v, not all are shadowed: %v", kind, want, got)
		}
	}
	call := func(t *testing.T, statement string) error {
		conn := connect(t, d.ServerURL)
		execute(t, conn, "set search_path = shadow, pg_catalog, public, pg_temp")
		// Its text is the server's own business, and may be shadowed.
		statement = strings.NewReplacer("select ", "select public.", "$1", fmt.Sprint(streamID), "$2", "'"+h.id+"'", "$3", "'"+h.owner+"'", "$4", fmt.Sprint(fork)).Replace(statement)
		_, err := conn.Exec(t.Context(), statement)
		return err
	}
	for name, statements := range proven {
		for _, statement := range statements {
			if err := call(t, statement); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n := column[int](t, owner, "select count(*) from entries where id in ('by arbe', 'by a member', 'to a fork')"); n[0] != 3 {
		t.Errorf("%d of 3 entries were written: the calls prove nothing", n[0])
	}
	t.Run("and one that does acts as the owner", func(t *testing.T) {
		body := column[string](t, owner, "select pg_get_functiondef('append_one'::regproc)")[0]
		for name, change := range map[string][2]string{
			"type":     {"AS $function$", "AS $function$ declare at timestamptz := pg_catalog.clock_timestamp();"},
			"function": {"pg_catalog.clock_timestamp()", "clock_timestamp()"},
			"operator": {"id operator(pg_catalog.=) p_stream", "id = p_stream"},
			"relation": {"from public.streams", "from streams"},
		} {
			planted := strings.Replace(strings.Replace(body, change[0], change[1], 1), "public.append_one(", "public.append_"+name+"(", 1)
			if !strings.Contains(planted, change[1]) {
				t.Fatalf("no %s was planted in:\n%s", name, body)
			}
			execute(t, owner, planted)
			if err := call(t, fmt.Sprintf("select append_%s($1, $2, 9, '%s', null, 'chat', '{}')", name, name)); err == nil || !strings.Contains(err.Error(), "acts as") {
				t.Errorf("a %s that is not qualified: %v", name, err)
			}
		}
	})
}

func containsAll(list, want []string) bool {
	return !slices.ContainsFunc(want, func(one string) bool { return !slices.Contains(list, one) })
}

// The server's role once became the owner this way. Both halves of it are closed: it makes no type of its own, and no
// function of ours would take one.
func TestATemporaryTypeIsNoWayToTheOwnersRights(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	owner := d.Owner(t)
	h := newHouse(t, owner, "Home")
	streamID := column[int64](t, owner, "select id from streams where house_id = $1 and name = $2", h.id, h.stream)[0]
	// Somebody lets it make temporary objects again.
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
