package db_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

// catalog returns everything that migrations make, one line each, in a stable order and without details that differ
// between databases.
func catalog(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	return column[string](t, conn, `
		with ours as (select oid, nspname from pg_namespace where nspname in ('public', 'river'))
		select line from (
			select 'schema ' || nspname || coalesce(' ' || array_to_string(array(select a::text from unnest(nspacl) a order by 1), ' '), '')
				from pg_namespace join ours using (oid, nspname)
			union all
			select format('relation %s %s rls=%s,%s %s %s', oid::regclass, relkind, relrowsecurity, relforcerowsecurity,
					(select string_agg(a::text, ' ' order by a::text) from unnest(relacl) a), obj_description(oid))
				from pg_class where relnamespace in (select oid from ours) and relkind <> 'i'
			union all
			select format('column %s.%s %s notnull=%s identity=%s default=%s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod),
					attnotnull, attidentity, pg_get_expr(adbin, adrelid), attacl, col_description(attrelid, attnum))
				from pg_attribute join pg_class c on c.oid = attrelid left join pg_attrdef on adrelid = attrelid and adnum = attnum
				where relnamespace in (select oid from ours) and relkind in ('r', 'p', 'v') and attnum > 0 and not attisdropped
			union all
			select format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
				from pg_constraint where connamespace in (select oid from ours)
			union all
			select format('view %s %s %s', oid::regclass, reloptions, pg_get_viewdef(oid)) from pg_class where relkind = 'v' and relnamespace in (select oid from ours)
			union all
			select 'index ' || indexdef from pg_indexes where schemaname in (select nspname from ours)
			union all
			select format('policy %s %s %s %s %s %s %s', tablename, policyname, permissive, roles, cmd, qual, with_check)
				from pg_policies where schemaname in (select nspname from ours)
			union all
			select format('function %s %s', (select string_agg(a::text, ' ' order by a::text) from unnest(proacl) a), pg_get_functiondef(oid))
				from pg_proc where pronamespace in (select oid from ours) and prokind = 'f'
			union all
			select 'trigger ' || pg_get_triggerdef(t.oid) || ' ' || tgenabled::text
				from pg_trigger t join pg_class c on c.oid = tgrelid where relnamespace in (select oid from ours) and not tgisinternal
			union all
			select format('type %s %s', oid::regtype, typtype)
				from pg_type where typnamespace in (select oid from ours) and typtype in ('e', 'd', 'r')
		) all_of_it (line) order by line collate "C"`)
}

// differences returns the lines that only one of two catalogs has.
func differences(before, after []string) string {
	var b strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			b.WriteString("- " + line + "\n")
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			b.WriteString("+ " + line + "\n")
		}
	}
	return b.String()
}

func TestMigrationsGoUpAndDown(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	conn := d.Owner(t)
	full := catalog(t, conn)
	for _, kind := range []string{"schema river", "relation threads", "column threads.", "constraint ", "index ", "policy ", "function ", "trigger "} {
		if !slices.ContainsFunc(full, func(line string) bool { return strings.HasPrefix(line, kind) }) {
			t.Errorf("the catalog shows no %q", kind)
		}
	}
	empty, err := pgx.Connect(t.Context(), dbtest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close(t.Context())
	nothing := catalog(t, empty)

	newHouse(t, conn, "in the way") // data does not stop a migration
	for range 2 {
		if err := db.Down(t.Context(), d.OwnerURL); err != nil {
			t.Fatalf("down: %s", fault.From(err).Detail())
		}
		if diff := differences(nothing, catalog(t, conn)); diff != "" {
			t.Fatalf("down leaves a database that is not as it was:\n%s", diff)
		}
		if _, err := db.Migrate(t.Context(), d.OwnerURL, d.Sealer); err != nil {
			t.Fatalf("up again: %s", fault.From(err).Detail())
		}
		if diff := differences(full, catalog(t, conn)); diff != "" {
			t.Fatalf("up again is another schema:\n%s", diff)
		}
	}
}
