package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

// refused is the SQLSTATE if a privilege or a row-level policy stops a statement.
const refused = "42501"

// owned reads from the catalog which tables a house owns, and by which column, so a table that is added later must be
// isolated too. It leaves out partitions, which nobody reaches directly.
func owned(t testing.TB, owner *pgx.Conn) map[string]string {
	t.Helper()
	key := map[string]string{"houses": "id"}
	for _, table := range column[string](t, owner, `
		select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid
		where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and not c.relispartition
			and a.attname = 'house_id' and not a.attisdropped`) {
		key[table] = "house_id"
	}
	return key
}

func TestAHouseIsAllThatATransactionOfItReaches(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	key := owned(t, w.owner)
	if len(key) < 9 {
		t.Fatalf("the catalog names too few house-owned tables: %v", key)
	}
	columns := map[string]string{}
	for table := range key {
		columns[table] = insertable(t, w.owner, table)
	}
	for table, id := range key {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			count := "select count(*) from " + table + " where " + id + " = $1"
			row := strangersRow(t, w, table, id)

			t.Run("its own rows are there", func(t *testing.T) {
				in(t, w.DB, db.Scope{House: w.ours.id}, func(tx pgx.Tx) {
					if n := column[int](t, tx, count, w.ours.id)[0]; n == 0 {
						t.Error("the house sees none of its own rows")
					}
				})
			})
			t.Run("no row of another house is read", func(t *testing.T) {
				in(t, w.DB, w.ours.scope(), func(tx pgx.Tx) {
					if n := column[int](t, tx, "select count(*) from "+table+" where "+id+" is distinct from $1 and "+notMine(table), w.ours.id)[0]; n != 0 {
						t.Errorf("%d rows of another house are visible", n)
					}
				})
			})
			t.Run("a transaction that names no house sees nothing", func(t *testing.T) {
				in(t, w.DB, db.Scope{}, func(tx pgx.Tx) {
					if n := column[int](t, tx, "select count(*) from "+table)[0]; n != 0 {
						t.Errorf("%d rows are visible", n)
					}
				})
			})
			for _, c := range []struct{ name, statement string }{
				{"no row of another house is changed", "update " + table + " set " + id + " = " + id + " where " + id + " = $1"},
				{"no row of another house is taken over", "update " + table + " set " + id + " = current_house() where " + id + " = $1"},
				{"no row of another house is deleted", "delete from " + table + " where " + id + " = $1"},
			} {
				t.Run(c.name, func(t *testing.T) {
					n, err := attempt(t, w.DB, w.ours.scope(), c.statement, w.stranger.id)
					if n != 0 || err != nil && !isRefused(err) {
						t.Errorf("reached %d rows: %v", n, err)
					}
				})
			}
			for _, c := range []struct {
				name, statement string
				argument        any
			}{
				{"no row is added to another house", fmt.Sprintf("insert into %s (%s) select %[2]s from jsonb_populate_record(null::%[1]s, $1)", table, columns[table]), row},
				{"no row is given to another house", "update " + table + " set " + id + " = $1 where " + id + " = current_house()", w.stranger.id},
			} {
				t.Run(c.name, func(t *testing.T) {
					if n, err := attempt(t, w.DB, w.ours.scope(), c.statement, c.argument); !isRefused(err) {
						t.Errorf("it was not refused: %d rows, %v", n, err)
					}
				})
			}
		})
	}
}

// isRefused reports whether Postgres refused a statement: the role may not run it, or it writes to a read-only view.
func isRefused(err error) bool {
	const noRowsToView = "55000"
	return db.State(err) == refused || db.State(err) == noRowsToView
}

// notMine excludes rows that belong to the agent rather than to a house: its keys for all houses.
func notMine(table string) string {
	if table == "api_keys" {
		return "house_id is not null"
	}
	return "true"
}

// insertable returns the columns that the server's role may fill in, or every column if it may insert nothing: then
// Postgres refuses the table itself.
func insertable(t testing.TB, owner *pgx.Conn, table string) string {
	t.Helper()
	names := func(condition string) []string {
		return column[string](t, owner, "select attname::text from pg_attribute where attrelid = $1::text::regclass and attnum > 0 and not attisdropped and "+condition, table)
	}
	if some := names("has_column_privilege('arbe_app', attrelid, attnum, 'insert') and attidentity = ''"); len(some) > 0 {
		return strings.Join(some, ", ")
	}
	return strings.Join(names("true"), ", ")
}

// strangersRow returns a row of the other house, as the owner sees it.
func strangersRow(t testing.TB, w two, table, id string) string {
	t.Helper()
	var row string
	conn := w.Owner(t)
	if err := conn.QueryRow(t.Context(), "select to_jsonb(x)::text from "+table+" x where "+id+" = $1 limit 1", w.stranger.id).Scan(&row); err != nil {
		t.Fatalf("the test's houses have no row in %s: %v", table, err)
	}
	return row
}

func TestEveryTableTheServerReachesHasRowLevelSecurity(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	open := column[string](t, w.owner, `
		select c.relname::text from pg_class c
		where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and not c.relrowsecurity
			and not (c.relkind = 'v' and coalesce(c.reloptions, '{}') @> array['security_invoker=true']) -- it shows what its reader may read
			and has_any_column_privilege('arbe_app', c.oid, 'select, insert, update, references')`)
	if len(open) > 0 {
		t.Errorf("the server's role reaches tables without row-level security: %v", open)
	}
	for _, table := range []string{"sealed_settings", "schema_migrations", "entries_0", "entries_15"} {
		for _, statement := range []string{"select from %s", "delete from %s", "truncate %s"} {
			statement = fmt.Sprintf(statement, table)
			t.Run(statement, func(t *testing.T) {
				t.Parallel()
				if _, err := attempt(t, w.DB, w.ours.scope(), statement); db.State(err) != refused {
					t.Errorf("it was not refused: %v", err)
				}
			})
		}
	}
}

func TestWhoIsVisible(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o, s := w.ours, w.stranger
	for _, c := range []struct {
		name, query string
		scope       db.Scope
		want        []string
	}{
		{"the agents of the house", "select id::text from agents", db.Scope{House: o.id}, []string{o.owner, o.bot}},
		{"an agent without a house sees itself", "select id::text from agents", db.Scope{Agent: o.owner}, []string{o.owner}},
		{"nobody sees nobody", "select id::text from agents", db.Scope{}, nil},
		{"an agent sees which houses it is in", "select id from houses", db.Scope{Agent: o.owner}, []string{o.id}},
		{"and its own membership alone", "select agent_id::text from members", db.Scope{Agent: o.owner}, []string{o.owner}},
		{"the keys of a house are the ones limited to it and one's own", "select name from api_keys", o.scope(), []string{o.limitedKey, o.key}},
		{"a colleague's key for all houses is not a house's", "select name from api_keys", db.Scope{House: o.id, Agent: o.bot}, []string{o.limitedKey}},
		{"one's own session", "select agent_id::text from login_sessions", o.scope(), []string{o.owner}},
		{"not a colleague's session", "select agent_id::text from login_sessions", db.Scope{House: o.id, Agent: o.bot}, nil},
		{"the secrets of the house", "select name from secrets", o.scope(), []string{"TOKEN"}},
		{"for the server itself too", "select name from secrets", db.Scope{House: o.id}, []string{"TOKEN"}},
		{"no secret for a bot", "select name from secrets", db.Scope{House: o.id, Agent: o.bot}, nil},
		{"no sealed value for a bot", "select id::text from sealed_values", db.Scope{House: o.id, Agent: o.bot}, nil},
		{"no key for a bot", "select house_id from house_keys", db.Scope{House: o.id, Agent: o.bot}, nil},
		{"not a stranger's session", "select agent_id::text from login_sessions", db.Scope{House: o.id, Agent: s.bot}, nil},
		{"one's own account of a login provider", "select agent_id::text from login_identities", o.scope(), []string{o.owner}},
		{"not a colleague's account", "select agent_id::text from login_identities", db.Scope{House: o.id, Agent: o.bot}, nil},
		{"how one wants to be told", "select agent_id::text from notification_settings", o.scope(), []string{o.owner}},
		{"not how a colleague does", "select agent_id::text from notification_settings", db.Scope{House: o.id, Agent: o.bot}, nil},
		{"one's own devices", "select agent_id::text from push_devices", o.scope(), []string{o.owner}},
		{"not a colleague's devices", "select agent_id::text from push_devices", db.Scope{House: o.id, Agent: o.bot}, nil},
		{"one's own login link", "select agent_id::text from login_links", o.scope(), []string{o.owner}},
		{"not a colleague's login link", "select agent_id::text from login_links", db.Scope{House: o.id, Agent: o.bot}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in(t, w.DB, c.scope, func(tx pgx.Tx) {
				got := column[string](t, tx, c.query)
				slices.Sort(got)
				slices.Sort(c.want)
				if !slices.Equal(got, c.want) {
					t.Errorf("saw %v, want %v", got, c.want)
				}
			})
		})
	}
}

// newColleague adds a person to our house.
func newColleague(t testing.TB, w two) (id string) {
	t.Helper()
	err := w.owner.QueryRow(t.Context(), `
		with a as (insert into agents (kind, name) values ('human', 'colleague') returning id)
		insert into members (house_id, agent_id, role) select $1, id, 'member' from a returning agent_id::text`, w.ours.id).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestWhatIsRefusedToAnAgent(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o, s := w.ours, w.stranger
	for _, c := range []struct {
		name, statement string
		args            []any
	}{
		{"giving a bot another runtime", "update agents set runtime = 'codex' where id = $1", []any{o.bot}},
		{"making a bot a person", "update agents set kind = 'human', runtime = null where id = $1", []any{o.bot}},
		{"giving a policy to another bot", "update activation_policies set agent_id = $1", []any{s.bot}},
		{"deleting an agent", "delete from agents where id = $1", []any{o.bot}},
		{"a session for someone else", "insert into login_sessions (hash, agent_id, expires_at) values ('x', $1, now())", []any{o.bot}},
		{"a longer session", "update login_sessions set expires_at = now() + interval '1 year' where agent_id = $1", []any{o.owner}},
		{"a login link for someone else", "insert into login_links (hash, agent_id, expires_at) values ('x', $1, now())", []any{s.owner}},
		{"an account that logs in somebody else", "insert into login_identities (issuer, subject, agent_id, email) values ('i', 's', $1, '')", []any{s.owner}},
		{"an account that moves to somebody else", "update login_identities set agent_id = $1 where subject = $2", []any{s.owner, o.id}},
		{"another subject of an account", "update login_identities set subject = 'other' where agent_id = $1", []any{o.owner}},
		{"a login of a program without its code", "update device_logins set approved = true, agent_id = $1", []any{o.owner}},
		{"more guesses of codes", "update device_login_guesses set wrong = 0 where agent_id = $1", []any{o.owner}},
		{"a device of somebody else", "update push_devices set agent_id = $1", []any{s.owner}},
		{"a device past the limit", "insert into push_devices (agent_id, endpoint, sealed) values ($1, 'x', 'x')", []any{o.owner}},
		{"settings of somebody else", "insert into notification_settings (agent_id) values ($1)", []any{o.bot}},
		{"using a link again", "update login_links set used_at = null where agent_id = $1", []any{o.owner}},
		{"a key for all houses of someone else", "insert into api_keys (agent_id, name, hash) values ($1, 'x', 'x')", []any{o.bot}},
		{"widening a colleague's key to all houses", "update api_keys set house_id = null where agent_id = $1", []any{o.bot}},
		{"a key for a colleague, of the house", "insert into api_keys (agent_id, house_id, name, hash) values ($1, current_house(), 'x', 'x')", []any{newColleague(t, w)}},
		{"a longer key", "update api_keys set expires_at = null where agent_id = $1", []any{o.owner}},
		{"a key that is not revoked any more, by its making", "update api_keys set hash = 'x' where agent_id = $1", []any{o.owner}},
		{"the keys that sign tokens, with a house's eyes", "insert into signing_keys (sealed) values ('x')", nil},
		{"an invite that can be used longer", "update invites set expires_at = now() + interval '1 year' where created_by = $1", []any{o.owner}},
		{"an invite to become an owner, of one to become a member", "update invites set role = 'owner' where created_by = $1", []any{o.owner}},
		{"moving a sealed value to another house", "update sealed_values set house_id = $1", []any{s.id}},
		{"deleting a key, which loses its trace", "delete from api_keys where agent_id = $1", []any{o.owner}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if n, err := attempt(t, w.DB, o.scope(), c.statement, c.args...); db.State(err) != refused {
				t.Errorf("it was not refused: %d rows, %v", n, err)
			}
		})
	}
	t.Run("only a bot of the house is renamed, and oneself", func(t *testing.T) {
		t.Parallel()
		for agent, want := range map[string]int64{o.bot: 1, o.owner: 1, newColleague(t, w): 0, s.bot: 0, s.owner: 0} {
			if n, err := attempt(t, w.DB, o.scope(), "update agents set name = 'x' where id = $1", agent); n != want || err != nil {
				t.Errorf("%d agents were renamed, want %d: %v", n, want, err)
			}
		}
	})
	t.Run("ending a stranger's session reaches nothing", func(t *testing.T) {
		t.Parallel()
		if n, err := attempt(t, w.DB, o.scope(), "delete from login_sessions where agent_id = $1", s.owner); n != 0 || err != nil {
			t.Errorf("%d sessions were ended: %v", n, err)
		}
	})
}

func TestAppendWritesIntoItsOwnHouseInTheNameOfItsMembers(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o, s := w.ours, w.stranger
	const statement = "select from append_entries($1, array['second'], array[$2::uuid], array['chat'], array['{}'::json])"
	for _, c := range []struct {
		name   string
		scope  db.Scope
		stream string
		author any
		state  string
	}{
		{"a member into its house's stream", o.scope(), o.stream, o.owner, ""},
		{"arbe itself, who is no agent", o.scope(), o.stream, nil, ""},
		{"not into another house's stream", o.scope(), s.stream, o.owner, "P0002"},
		{"not into another house's stream in the name of its member", o.scope(), s.stream, s.owner, "P0002"},
		{"not in the name of someone who is not in the house", o.scope(), o.stream, s.owner, refused},
		{"not in the name of someone who does not exist", o.scope(), o.stream, "00000000-0000-4000-8000-000000000000", refused},
		{"not without a house", db.Scope{Agent: o.owner}, o.stream, o.owner, "P0002"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n, err := attempt(t, w.DB, c.scope, statement, c.stream, c.author)
			if db.State(err) != c.state || (c.state == "") != (n == 1) {
				t.Errorf("%d entries, SQLSTATE %q: %v", n, db.State(err), err)
			}
		})
	}
}

// A batch may span houses, so no transaction of a house may write one. Each of its rows names its house. If the
// stream is not in that house, or the author is not a member of it, nothing is written.
func TestABatchWritesIntoTheHousesOfItsStreamsInTheNameOfTheirMembers(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o, s := w.ours, w.stranger
	id := func(stream string) (id int64) {
		return column[int64](t, w.owner, "select id from streams where name = $1", stream)[0]
	}
	// One draft into each of two streams. The function must find the end of the second stream itself.
	const batchOfTwo = `select from append_batch($1, $2, array[1, null], array[1, 2], array[1, 1], array['second', 'third'],
		$3::text[]::uuid[], array['chat', 'chat'], array['{}', '{}']::json[])`
	for _, c := range []struct {
		name    string
		scope   db.Scope
		houses  []string
		authors []any
		written []string // ids
		state   string
	}{
		{"members, into their houses' streams", db.Scope{}, []string{o.id, s.id}, []any{o.owner, s.owner}, []string{"second", "third"}, ""},
		{"arbe itself, who is no agent", db.Scope{}, []string{o.id, s.id}, []any{nil, nil}, []string{"second", "third"}, ""},
		{"not into a stream of another house than it says", db.Scope{}, []string{o.id, o.id}, []any{o.owner, o.owner}, []string{"second"}, ""},
		{"not in the name of a member of another house of the batch", db.Scope{}, []string{o.id, s.id}, []any{o.owner, o.owner}, []string{"second"}, ""},
		{"not in the name of someone who does not exist", db.Scope{}, []string{o.id, s.id}, []any{"00000000-0000-4000-8000-000000000000", s.owner}, []string{"third"}, ""},
		{"not by a transaction of a house", o.scope(), []string{o.id, s.id}, []any{o.owner, s.owner}, nil, refused},
		{"not by one, into its own house's stream", o.scope(), []string{o.id, o.id}, []any{o.owner, o.owner}, nil, refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx, err := w.DB.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			if c.scope != (db.Scope{}) {
				if _, err := tx.Exec(t.Context(), "select set_config('app.house_id', $1, true)", c.scope.House); err != nil {
					t.Fatal(err)
				}
			}
			_, err = tx.Exec(t.Context(), batchOfTwo, []int64{id(o.stream), id(s.stream)}, c.houses, c.authors)
			if db.State(err) != c.state {
				t.Fatalf("SQLSTATE %q: %v", db.State(err), err)
			}
			if err != nil {
				return
			}
			var got []string
			for _, house := range []string{o.id, s.id} {
				if _, err := tx.Exec(t.Context(), "select set_config('app.house_id', $1, true)", house); err != nil {
					t.Fatal(err)
				}
				got = append(got, column[string](t, tx, "select id from entries where id <> 'first'")...)
			}
			if !slices.Equal(got, c.written) {
				t.Errorf("wrote %q, want %q", got, c.written)
			}
		})
	}
}

// A lone entry is written exactly where a batch would write it.
func TestALoneEntryIsWrittenIntoTheHouseOfItsStreamInTheNameOfAMember(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o, s := w.ours, w.stranger
	stream := column[int64](t, w.owner, "select id from streams where name = $1", o.stream)[0]
	if _, err := w.owner.Exec(t.Context(), "create schema trap"); err != nil {
		t.Fatal(err)
	}
	const taken = "23505"
	for _, c := range []struct {
		name   string
		scope  db.Scope
		house  string
		author any
		seq    int64
		id     string
		before string // done by the owner, in the same transaction
		want   string // "true", "false" or a SQLSTATE
	}{
		{name: "a member, into their house's stream", house: o.id, author: o.owner, want: "true"},
		{name: "arbe itself, who is no agent", house: o.id, want: "true"},
		{name: "not into a stream of another house than it says", house: s.id, author: s.owner, want: "false"},
		{name: "not in the name of a member of another house", house: o.id, author: s.owner, want: "false"},
		{name: "not in the name of someone who does not exist", house: o.id, author: "00000000-0000-4000-8000-000000000000", want: "false"},
		{name: "not into a closed stream", house: o.id, author: o.owner, before: "update streams set closed_at = now()", want: "false"},
		{name: "not where an entry is", house: o.id, author: o.owner, seq: 1, want: taken},
		{name: "not with an id that is there", house: o.id, author: o.owner, id: "first", want: taken},
		{name: "not in the name of whom the caller's path finds among members", house: o.id, author: s.owner, want: "false",
			before: "create table trap.members as select house_id, '" + s.owner + "'::uuid as agent_id from members; set local search_path = trap, public"},
		{name: "not by a transaction of a house", scope: o.scope(), house: o.id, author: o.owner, want: refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx, err := w.owner.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			for _, statement := range []string{c.before, "set local role arbe_app", "set local app.house_id = '" + c.scope.House + "'"} {
				if _, err := tx.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			if c.seq == 0 {
				c.seq = 2
			}
			if c.id == "" {
				c.id = "second"
			}
			var written bool
			err = tx.QueryRow(t.Context(), "select append_one($1, $2, $3, $4, $5::text::uuid, 'chat', '{}') is not null", stream, c.house, c.seq, c.id, c.author).Scan(&written)
			got := fmt.Sprint(written)
			if err != nil {
				got = db.State(err)
			}
			if got != c.want {
				t.Errorf("got %s, want %s: %v", got, c.want, err)
			}
		})
	}
}

func TestMembershipsRevealNothingToANonMember(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o := w.ours
	for kind, id := range map[string]string{"house": o.id, "thread": o.driven, "environment": o.environment, "sandbox": o.sandbox} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for agent, want := range map[string][]string{o.owner: {o.id + " owner"}, o.bot: {o.id + " member"}, w.stranger.owner: nil} {
				in(t, w.DB, db.Scope{}, func(tx pgx.Tx) {
					got := column[string](t, tx, "select house_id || ' ' || role from memberships_of(array[$1], array[$2], array[$3]::uuid[])", kind, id, agent)
					if !slices.Equal(got, want) {
						t.Errorf("got %q, want %q", got, want)
					}
				})
			}
		})
	}
	t.Run("an unknown kind or id is nowhere", func(t *testing.T) {
		t.Parallel()
		in(t, w.DB, o.scope(), func(tx pgx.Tx) {
			got := column[string](t, tx, `select house_id from memberships_of(array['secret', 'thread', null], array[$1, $2, null], array[$3, $3, $3]::uuid[])`, o.secret, o.sandbox, o.owner)
			if len(got) > 0 {
				t.Errorf("got %q", got)
			}
		})
	})
}
