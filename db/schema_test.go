package db_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

// The SQLSTATEs of violated constraints.
const (
	notNull    = "23502"
	foreignKey = "23503"
	unique     = "23505"
	check      = "23514"
)

// asOwner runs one statement as the owner of the schema, to whom row-level security does not apply, and rolls it
// back. It also checks deferred constraints.
func asOwner(t testing.TB, owner *pgx.Conn, statement string, args ...any) error {
	t.Helper()
	tx, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "set constraints all immediate"); err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), statement, args...)
	return err
}

func TestNoEdgeLeadsIntoAnotherHouse(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o, s := w.ours, w.stranger
	for _, c := range []struct {
		name, statement string
		row             string // the row that would hold the edge
		own, others     string // where the edge would lead
	}{
		{"a thread's driver is a member of its house", "update threads set agent_id = $2 where id = $1", o.driven, o.owner, s.bot},
		{"a thread's environment", "update threads set environment_id = $2 where id = $1", o.driven, o.environment, s.environment},
		{"a thread's sandbox", "update threads set sandbox_id = $2 where id = $1", o.chat, o.sandbox, s.sandbox},
		{"a thread's parent", "update threads set parent_thread_id = $2 where id = $1", o.driven, o.chat, s.chat},
		{"a thread's stream", "update threads set stream_id = $2 where id = $1", o.driven, o.spare, s.spare},
		{"a sandbox's environment", "update sandboxes set environment_id = $2 where id = $1", o.sandbox, o.environment, s.environment},
		{"a house's default environment", "update houses set default_environment_id = $2 where id = $1", o.id, o.environment, s.environment},
		{"a house's primary thread", "update houses set primary_thread_id = $2 where id = $1", o.id, o.driven, s.chat},
		{"an artifact's thread", "update artifacts set thread_id = $2 where id = $1", o.artifact, o.chat, s.chat},
		{"an artifact's log", "update artifacts set stream_id = (select id from streams where name = $2) where id = $1", o.artifact, o.spare, s.spare},
		{"an artifact's bytes", "update artifacts set blob_id = (select id from blobs where house_id = $2) where id = $1", o.artifact, o.id, s.id},
		{"a limited key's agent", "update api_keys set agent_id = $2 where name = $1", o.limitedKey, o.owner, s.bot},
		{"an invite's owner", "update invites set created_by = $2 where house_id = $1", o.id, o.owner, s.owner},
		{"a limited key's house", "update api_keys set house_id = $2 where name = $1", o.limitedKey, o.id, s.id},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := asOwner(t, w.owner, c.statement, c.row, c.own); err != nil {
				t.Errorf("its own house's row is refused: %v", err)
			}
			if err := asOwner(t, w.owner, c.statement, c.row, c.others); db.State(err) != foreignKey {
				t.Errorf("another house's row is not refused: %v", err)
			}
		})
	}
	t.Run("an addressee may be anyone", func(t *testing.T) {
		if err := asOwner(t, w.owner, "update threads set parent_agent_id = $2 where id = $1", o.chat, s.owner); err != nil {
			t.Error(err)
		}
	})
}

func TestEachInvariantIsTheDatabasesOwn(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o := w.ours
	const (
		agent   = "insert into agents (kind, runtime) values ($1, $2)"
		member  = "update members set role = $1"
		sandbox = "update sandboxes set status = $1"
		chat    = "update threads set status = $1 where agent_id is null"
		driven  = "update threads set status = $1 where agent_id is not null"
	)
	args := func(a ...any) []any { return a }
	for _, c := range []struct {
		name, statement string
		args            []any
		state           string // empty: it is allowed
	}{
		{"a human has no runtime", agent, args("human", nil), ""},
		{"a human with a runtime", agent, args("human", "pi"), check},
		{"a bot has a runtime", agent, args("bot", "codex"), ""},
		{"a bot without a runtime", agent, args("bot", nil), check},
		{"an agent of a third kind", agent, args("ghost", nil), check},
		{"an agent of no kind", agent, args(nil, nil), notNull},
		{"an owner", member, args("owner"), ""},
		{"a member", member, args("member"), ""},
		{"a third role", member, args("admin"), check},
		{"no role", member, args(nil), notNull},
		{"a member twice", "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", args(o.id, o.owner), unique},
		{"a pending sandbox", sandbox, args("pending"), ""},
		{"a live sandbox", sandbox, args("live"), ""},
		{"a dead sandbox", sandbox, args("dead"), ""},
		{"a sandbox in another state", sandbox, args("paused"), check},
		{"a sandbox without a recipe", "update sandboxes set environment_id = null", nil, notNull},
		{"an open chat", chat, args("open"), ""},
		{"a closed chat", chat, args("closed"), ""},
		{"a chat with a driven thread's status", chat, args("idle"), check},
		{"a running chat", chat, args("running"), check},
		{"an idle driven thread", driven, args("idle"), ""},
		{"a running one", driven, args("running"), ""},
		{"a completed one", driven, args("completed"), ""},
		{"a failed one", driven, args("failed"), ""},
		{"a cancelled one", driven, args("cancelled"), ""},
		{"a driven thread with a chat's status", driven, args("open"), check},
		{"a stuck one", driven, args("stuck"), check},
		{"a blocked one", driven, args("blocked"), check},
		{"a thread of no status", chat, args(nil), notNull},
		{"a chat that gets a driver and keeps its status", "update threads set agent_id = $2 where id = $1", args(o.chat, o.bot), check},
		{"a driven thread that stands alone", "update threads set parent_thread_id = null where id = $1", args(o.driven), ""},
		{"a direct message", "update threads set parent_agent_id = $2 where id = $1", args(o.chat, o.bot), ""},
		{"two parents", "update threads set parent_agent_id = $2 where id = $1", args(o.driven, o.bot), check},
		{"two threads on one stream", "update threads set stream_id = $2 where id = $1", args(o.driven, o.stream), unique},
		{"a thread on no stream", "update threads set stream_id = 'nowhere' where id = $1", args(o.driven), foreignKey},
		{"one value per secret's name", "insert into secrets (house_id, name, vault_secret_id) values ($1, 'TOKEN', gen_random_uuid())", args(o.id), unique},
		{"another name in the same house", "insert into secrets (house_id, name, vault_secret_id) select $1, 'OTHER', id from sealed_values where house_id = $1", args(o.id), ""},
		{"a name that no variable can have", "insert into secrets (house_id, name, vault_secret_id) select $1, 'MY-KEY', id from sealed_values where house_id = $1", args(o.id), check},
		{"another house's sealed value", "insert into secrets (house_id, name, vault_secret_id) select $1, 'OTHER', id from sealed_values where house_id = $2", args(o.id, w.stranger.id), foreignKey},
		{"a secret without a sealed value", "insert into secrets (house_id, name) values ($1, 'OTHER')", args(o.id), notNull},
		{"one stream per name", "insert into streams (house_id, name) values ($1, $2)", args(o.id, o.stream), unique},
		{"a binding to a secret that is not there yet", `update environments set secret_bindings = '[{"name":"LATER","required":true}]'`, nil, ""},
		{"a thread's tokens set back", "update threads set token_epoch = 1", nil, "428C9"},
		{"one blob per content", "insert into blobs (house_id, sha256, size) values ($1, sha256('x'), 1)", args(o.id), unique},
		{"a blob of a hash that is none", "insert into blobs (house_id, sha256, size) values ($1, 'x', 1)", args(o.id), check},
		{"a blob without its size", "update blobs set size = null", nil, check},
		{"a blob that an artifact has", "delete from blobs", nil, foreignKey},
		{"an artifact whose bytes are in two places", "update artifacts set byte_ref = 'git:x'", nil, check},
		{"an artifact whose metadata is a list", "update artifacts set metadata = '[]'", nil, check},
		{"an invite for an admin", "update invites set role = 'admin'", nil, check},
		{"two invites with one hash", "update invites set hash = 'x'", nil, unique},
		{"two credentials with one hash", "update api_keys set hash = 'x'", nil, unique},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := asOwner(t, w.owner, c.statement, c.args...); db.State(err) != c.state || (err != nil) != (c.state != "") {
				t.Errorf("SQLSTATE %q, want %q: %v", db.State(err), c.state, err)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	t.Run("a short id is 12 characters of Crockford's base 32, and another each time", func(t *testing.T) {
		ids := column[string](t, w.owner, "select generate_short_id() from generate_series(1, 1000)")
		seen := map[rune]bool{}
		for _, id := range ids {
			if !regexp.MustCompile(`^[0-9abcdefghjkmnpqrstvwxyz]{12}$`).MatchString(id) {
				t.Fatalf("%q is no short id", id)
			}
			for _, r := range id {
				seen[r] = true
			}
		}
		slices.Sort(ids)
		if n := len(slices.Compact(ids)); n != 1000 || len(seen) != 32 {
			t.Errorf("%d different ids of 1000, %d different characters of 32", n, len(seen))
		}
	})
	t.Run("every id but an agent's is a short id", func(t *testing.T) {
		for _, table := range []string{"houses", "environments", "secrets", "sandboxes", "threads", "api_keys", "artifacts", "blobs"} {
			got := column[string](t, w.owner, "select column_default from information_schema.columns where table_schema = 'public' and table_name = $1 and column_name = 'id'", table)
			if !slices.Equal(got, []string{"generate_short_id()"}) {
				t.Errorf("%s.id is by default %q", table, got)
			}
		}
	})
	for _, c := range []struct{ name, expression, from string }{
		{"a thread is open, untagged, and changed when it was made", "status = 'open' and tags = '{}' and updated_at = created_at", "threads where agent_id is null"},
		{"a sandbox is pending and not ephemeral", "status = 'pending' and not ephemeral and destroyed_at is null", "sandboxes"},
		{"an environment is empty and binds nothing", "config = '{}' and secret_bindings = '[]'", "environments"},
		{"a stream is open, empty and holds JSON", "closed_at is null and not exists (select from entries where stream_id = streams.id) and content_type = 'application/json'", "streams where name like 'spare-%'"},
		{"an agent's id is a random uuid", "substr(id::text, 15, 1) = '4'", "agents"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := column[bool](t, w.owner, "select "+c.expression+" from "+c.from)
			if len(got) == 0 || slices.Contains(got, false) {
				t.Errorf("%s: %v", c.expression, got)
			}
		})
	}
	t.Run("a thread's updated_at is Postgres' own", func(t *testing.T) {
		got := column[bool](t, w.owner, "update threads set updated_at = 'epoch' where house_id = $1 returning updated_at = now() and updated_at > created_at", w.ours.id)
		if !slices.Equal(got, []bool{true, true}) {
			t.Errorf("the caller's time stays: %v", got)
		}
	})
}

// An index on house_id alone would repeat the beginning of another index here (000 lists some).
func TestEveryAccessPathHasItsIndex(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	var got []string
	for _, definition := range column[string](t, w.owner, "select indexdef from pg_indexes where schemaname = 'public'") {
		uniqueness, rest, _ := strings.Cut(definition, "INDEX ")
		_, rest, _ = strings.Cut(rest, " ON ")
		got = append(got, strings.TrimPrefix(uniqueness, "CREATE ")+strings.TrimPrefix(strings.TrimPrefix(rest, "ONLY "), "public."))
	}
	for _, want := range []string{
		"threads USING btree (parent_thread_id)",
		"threads USING btree (sandbox_id)",
		"threads USING btree (house_id) WHERE (pinned_at IS NOT NULL)",
		"threads USING gin (tags)",
		"threads USING btree (house_id, id text_pattern_ops)",
		"threads USING btree (house_id, name) WHERE (name IS NOT NULL)",
		"sandboxes USING btree (house_id, id text_pattern_ops)",
		"UNIQUE threads USING btree (id)",
		"UNIQUE threads USING btree (stream_id)",
		"UNIQUE threads USING btree (house_id, id)",
		"members USING btree (agent_id)",
		"UNIQUE members USING btree (house_id, agent_id)",
		"environments USING gin (secret_bindings)",
		"UNIQUE environments USING btree (house_id, id)",
		"UNIQUE secrets USING btree (house_id, name)",
		"UNIQUE sandboxes USING btree (house_id, id)",
		"UNIQUE streams USING btree (house_id, name)",
		"UNIQUE entries USING btree (stream_id, seq)",
		"UNIQUE entries USING btree (stream_id, id)",
		"artifacts USING btree (house_id, created_at, id)",
		"artifacts USING btree (stream_id, created_at, id)",
		"artifacts USING btree (blob_id)",
		"UNIQUE blobs USING btree (house_id, sha256)",
		"UNIQUE api_keys USING btree (hash)",
		"UNIQUE login_sessions USING btree (hash)",
		"UNIQUE login_links USING btree (hash)",
		"UNIQUE invites USING btree (hash)",
		"invites USING btree (house_id, created_at, id)",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no index on %s", want)
		}
	}
}
