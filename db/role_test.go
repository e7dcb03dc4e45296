package db_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

func TestTheServersRoleIsNobodySpecial(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	role := column[string](t, w.owner, "select 'arbe_server_' || oid from pg_database where datname = current_database()")[0]
	t.Run("it is the one that the server serves with", func(t *testing.T) {
		in(t, w.DB, db.Scope{}, func(tx pgx.Tx) {
			got := column[string](t, tx, "select unnest(array[session_user, current_user])::text")
			if got[0] != role || got[1] != role {
				t.Errorf("the server serves as %q, want %s", got, role)
			}
		})
	})
	for name, query := range map[string]string{
		"it and its group have no attribute": `select rolname::text from pg_roles where rolname in ($1, 'arbe_app')
			and (rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication)`,
		"only it can log in": "select rolname::text from pg_roles where rolname in ($1, 'arbe_app') and rolcanlogin <> (rolname = $1)",
		"it may connect to its database, and to no other but those that everybody may; it may make nothing in any": `select datname::text from pg_database d
			where has_database_privilege($1, oid, 'create') or has_database_privilege($1, oid, 'temporary') and datname = current_database()
				or datname = current_database() and not has_database_privilege($1, oid, 'connect')
				or datname = current_database() and exists (select from aclexplode(d.datacl) where grantee = 0)`,
		"it may make nothing in any schema":               "select nspname::text from pg_namespace where has_schema_privilege($1, oid, 'create')",
		"it may use no role's rights but arbe_app's":      `select rolname::text from pg_roles where pg_has_role($1, oid, 'member') and rolname not in ($1, 'arbe_app')`,
		"it may use no language that reaches the machine": "select lanname::text from pg_language where has_language_privilege($1, oid, 'usage') and not lanpltrusted and lanname not in ('c', 'internal')",
		"it may use no other server, and no tablespace": `select fdwname::text from pg_foreign_data_wrapper where has_foreign_data_wrapper_privilege($1, oid, 'usage')
			union all select srvname::text from pg_foreign_server where has_server_privilege($1, oid, 'usage')
			union all select spcname::text from pg_tablespace where has_tablespace_privilege($1, oid, 'create') and spcname <> 'pg_default'`,
		"it may set nothing that is a superuser's": `select name from pg_settings where context in ('superuser', 'superuser-backend') and has_parameter_privilege($1, name, 'set')
			union all select name from pg_settings where has_parameter_privilege($1, name, 'alter system')`,
		"it may call nothing that reaches files, programs or other servers": ` -- those that end in _old ask by themselves
			select oid::regprocedure::text from pg_proc
			where proname ~ '^(pg_read_|pg_ls_|pg_stat_file|pg_file_|lo_import|lo_export|dblink|pg_reload_conf|pg_rotate_logfile|pg_promote|pg_switch_wal|pg_backup_)'
				and proname !~ '_old$' and has_function_privilege($1, oid, 'execute')`,
		"it holds no large object, and nobody else's is open to it": `select oid::text from pg_largeobject_metadata where $1 <> ''`,
		"they own nothing": `select d.classid::regclass || ' ' || d.objid from pg_shdepend d join pg_roles r on r.oid = d.refobjid
			where d.deptype = 'o' and r.rolname in ($1, 'arbe_app')`,
		"it is in no group but arbe_app, which is in none": `select g.rolname::text from pg_auth_members m
			join pg_roles r on r.oid = m.member join pg_roles g on g.oid = m.roleid
			where r.rolname in ($1, 'arbe_app') and not (r.rolname = $1 and g.rolname = 'arbe_app' and not m.admin_option)`,
	} {
		t.Run(name, func(t *testing.T) {
			if got := column[string](t, w.owner, query, role); len(got) > 0 {
				t.Errorf("but: %v", got)
			}
		})
	}

	owner := w.owner.Config().User
	for name, statement := range map[string]string{
		"become the owner":                 "set role " + owner,
		"be the owner's session":           "set session authorization " + owner,
		"lift its limits":                  "alter role current_user bypassrls",
		"become superuser":                 "alter role current_user superuser",
		"make a role":                      "create role arbe_intruder",
		"make a table":                     "create table public.intruder ()",
		"make a temporary table":           "create temp table intruder ()",
		"make a temporary type":            "create domain pg_temp.timestamptz as timestamptz",
		"read what the owner keeps sealed": "select from sealed_settings",
		"take a file in":                   "select lo_import('/etc/hostname')",
		"read a file into a table":         "copy signing_keys from '/etc/hostname'",
		"change how jobs were migrated":    "delete from river.river_migration",
		"reach another server":             "create extension dblink",
		"make a schema":                    "create schema intruder",
		"make a function":                  "create function public.intruder() returns int language sql return 1",
		"make an extension":                "create extension file_fdw",
		"turn row-level security off":      "alter table threads disable row level security",
		"look past row-level security":     "set local row_security = off; select from threads",
		"widen a policy":                   "alter policy tenant on threads using (true)",
		"drop a policy":                    "drop policy tenant on threads",
		"disable the log's trigger":        "alter table entries disable trigger append_only",
		"silence all triggers":             "set session_replication_role = replica",
		"add a trigger":                    "create trigger intruder after insert on threads for each row execute function set_updated_at()",
		"replace the function that writes": "drop function append_entries",
		"grant itself more":                "grant select on sealed_settings to arbe_app",
		"read the server's files":          "select pg_read_file('postgresql.conf')",
		"run a program":                    "copy threads to program 'true'",
		"read passwords":                   "select rolpassword from pg_authid",
	} {
		t.Run("it cannot "+name, func(t *testing.T) {
			t.Parallel()
			conn, err := pgx.Connect(t.Context(), w.ServerURL)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			// Without arguments, the statements of one string are one transaction.
			if _, err := conn.Exec(t.Context(), statement); db.State(err) != refused {
				t.Errorf("it was not refused: %v", err)
			}
		})
	}
}
