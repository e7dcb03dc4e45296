package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
)

// house is a tenant with a row in every table that houses own.
type house struct {
	id          string
	owner       string // a human
	bot         string
	environment string
	sandbox     string
	secret      string
	chat        string // the primary thread; driven is its child
	driven      string // driven by bot, on sandbox
	stream      string // chat's
	spare       string // a stream without a thread
	artifact    string // driven's, with bytes
	limitedKey  string // the bot's key for this house alone
	key         string // the owner's key for all houses
}

func (h house) scope() db.Scope { return db.Scope{House: h.id, Agent: h.owner} }

// newHouse makes a house, past row-level security.
func newHouse(t testing.TB, owner *pgx.Conn, name string) house {
	t.Helper()
	var h house
	err := owner.QueryRow(t.Context(), `
		with h as (insert into houses (name) values ($1) returning id)
		select h.id, 'arbe-thread-chat-' || h.id, 'spare-' || h.id, h.id || '-limited', h.id || '-all',
			gen_random_uuid(), gen_random_uuid() from h`, name).
		Scan(&h.id, &h.stream, &h.spare, &h.limitedKey, &h.key, &h.owner, &h.bot)
	if err != nil {
		t.Fatal(err)
	}
	insert := func(statement string, args ...any) (id string) {
		t.Helper()
		if err := owner.QueryRow(t.Context(), statement, args...).Scan(&id); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		return id
	}
	insert("insert into agents (id, kind, runtime, name) values ($1, 'human', null, 'owner'), ($2, 'bot', 'pi', 'bot') returning id", h.owner, h.bot)
	insert("insert into members (house_id, agent_id, role) values ($1, $2, 'owner'), ($1, $3, 'member') returning house_id", h.id, h.owner, h.bot)
	h.environment = insert("insert into environments (house_id, name) values ($1, 'default') returning id", h.id)
	insert("insert into house_keys (house_id, sealed) values ($1, 'x') returning house_id", h.id)
	h.secret = insert(`with v as (insert into sealed_values (house_id, sealed) values ($1, 'x') returning id)
		insert into secrets (house_id, name, vault_secret_id) select $1, 'TOKEN', id from v returning id`, h.id)
	insert("insert into model_endpoints (house_id, name, base_url) values ($1, 'local', 'https://models.example.com/v1') returning house_id", h.id)
	h.sandbox = insert("insert into sandboxes (house_id, environment_id, provider) values ($1, $2, 'local') returning id", h.id, h.environment)
	insert("insert into sandbox_trees (sandbox_id, house_id) values ($1, $2) returning sandbox_id", h.sandbox, h.id)
	insert("insert into sandbox_spending (house_id, day, provider) values ($1, now(), 'local') returning house_id", h.id)
	insert("insert into house_disks (house_id, machine_id, cached_bytes, most_bytes) values ($1, 'm', 1, 2) returning house_id", h.id)
	insert("insert into streams (house_id, name) values ($1, $2), ($1, $2 || '-driven'), ($1, $3) returning name", h.id, h.stream, h.spare)
	h.chat = insert("insert into threads (house_id, stream_id, environment_id) values ($1, $2, $3) returning id", h.id, h.stream, h.environment)
	h.driven = insert(`insert into threads (house_id, stream_id, parent_thread_id, agent_id, status, environment_id, sandbox_id)
		values ($1, $2 || '-driven', $3, $4, 'idle', $5, $6) returning id`, h.id, h.stream, h.chat, h.bot, h.environment, h.sandbox)
	insert("update houses set default_environment_id = $2, primary_thread_id = $3 where id = $1 returning id", h.id, h.environment, h.chat)
	insert(`insert into entries (stream_id, seq, house_id, id, author_agent_id, type, payload, ts)
		select id, 1, house_id, 'first', $2, 'chat', '{"text":"hello"}', now() from streams where name in ($1, $1 || '-driven') returning id`, h.stream, h.owner)
	insert(`insert into entry_words (house_id, thread_id, stream_id, seq, ts, words)
		select house_id, $2, id, 1, now(), to_tsvector('simple', 'hello') from streams where name = $1 returning 'ok'`, h.stream, h.chat)
	insert("insert into search_cursors (stream_id, house_id, thread_id, indexed) select id, house_id, $2, 1 from streams where name = $1 returning 'ok'", h.stream, h.chat)
	insert("insert into log_shares (stream_id, agent_id, house_id, bytes) select id, $2, house_id, 100 from streams where name = $1 returning 'ok'", h.stream, h.owner)
	insert("insert into log_sizes (stream_id, house_id, upto, entries, bytes) select id, house_id, 1, 1, 100 from streams where name = $1 returning 'ok'", h.stream)
	insert("insert into producers (stream_id, house_id, name, epoch, seq) select id, house_id, 'importer', 0, 0 from streams where name = $1 returning name", h.spare)
	insert(`with s as (insert into subscriptions (house_id, name, spec, base_url, kind, lease) values ($1, 'worker', '{}', '', 'pull-wake', '1 s') returning id, house_id)
		insert into subscription_streams (subscription_id, house_id, stream, explicit) select id, house_id, 'spare', true from s returning stream`, h.id)
	h.artifact = insert(`with b as (insert into blobs (house_id, sha256, size) values ($1, sha256('x'), 1) returning id),
		c as (insert into blob_chunks (house_id, blob_id, start, data) select $1, id, 0, 'x' from b)
		insert into artifacts (house_id, kind, blob_id, agent_id, thread_id, stream_id) select $1, 'file', b.id, $2, $3, s.id from b, streams s where s.name = $4 returning id`,
		h.id, h.bot, h.driven, h.stream+"-driven")
	insert("insert into attached_files (house_id, thread_id, artifact_id) values ($1, $2, $3) returning house_id", h.id, h.driven, h.artifact)
	insert("insert into placed_files (house_id, sandbox_id, artifact_id) values ($1, $2, $3) returning house_id", h.id, h.sandbox, h.artifact)
	insert("insert into api_keys (agent_id, house_id, name, hash) values ($1, $2, $3, $4) returning id", h.bot, h.id, h.limitedKey, []byte(h.limitedKey))
	insert("insert into api_keys (agent_id, house_id, name, hash) values ($1, null, $2, $3) returning id", h.owner, h.key, []byte(h.key))
	insert("insert into invites (house_id, hash, role, created_by, expires_at) values ($1, $2, 'member', $3, now() + interval '1 hour') returning id", h.id, []byte(h.id), h.owner)
	insert("insert into bots (house_id, agent_id, handle, tools) values ($1, $2, 'bot', '{}') returning handle", h.id, h.bot)
	insert("insert into activation_policies (house_id, agent_id, name, trigger) values ($1, $2, 'mentions', 'mention') returning id", h.id, h.bot)
	insert(`with t as (insert into turns (house_id, thread_id, agent_id, entry_id, reason, asked, asked_seqs) values ($1, $2, $3, 'e1', 'mention', '{e1}', '{1}') returning id),
		f as (insert into file_edits (house_id, turn_id, call_id, step, path, after, result) select $1, id, 'c', 's', '/workspace/a', 'x', '{}' from t)
		insert into model_calls (house_id, thread_id, turn_id, id, agent_id, model, input, output, cache_read, cache_write, cost_micros, cost_known, estimated)
		select $1, $2, id, '1', $3, 'anthropic/claude', 1, 1, 0, 0, 1, true, false from t returning turn_id`, h.id, h.chat, h.bot)
	insert("insert into readings (house_id, agent_id, thread_id, seq) values ($1, $2, $3, 1) returning house_id", h.id, h.owner, h.chat)
	insert("insert into notices (house_id, agent_id, thread_id, kind, first_seq, last_seq) values ($1, $2, $3, 'mention', 2, 3) returning house_id", h.id, h.owner, h.chat)
	insert(`insert into approvals (house_id, id, thread_id, turn_id, agent_id, call_id, tool, arguments, expires_at)
		select house_id, 'p1', thread_id, id, agent_id, 'c1', 'say', '{}', now() from turns where house_id = $1 and thread_id = $2 limit 1 returning house_id`, h.id, h.chat)
	insert(`insert into thread_summaries (house_id, thread_id, version, begins, summary, model, agent_id, unread, tail)
		values ($1, $2, 1, 1, 'they met', 'anthropic/claude', $3, '[]', 1) returning thread_id`, h.id, h.chat, h.bot)
	insert(`insert into chat_edits (house_id, thread_id, stream_id, seq, entry_id, text) select s.house_id, $2, s.id, 1, 'e1', 'said again' from streams s
		where s.house_id = $1 limit 1 returning entry_id`, h.id, h.chat)
	insert(`insert into reactions (house_id, thread_id, stream_id, seq, agent_id, emoji) select s.house_id, $2, s.id, 1, $3::uuid, '{👍}' from streams s
		where s.house_id = $1 limit 1 returning house_id`, h.id, h.chat, h.owner)
	insert("insert into spending (house_id, day, thread_id) values ($1, now(), $2) returning house_id", h.id, h.chat)
	insert("insert into member_spending (house_id, day, agent_id) values ($1, now(), $2) returning house_id", h.id, h.owner)
	insert("insert into run_calls (house_id, thread_id, epoch, agent_id, root, model, lapses_at, reserved_micros) values ($1, $2, 1, $3, 'e1', 'anthropic/claude', now(), 1) returning house_id", h.id, h.chat, h.bot)
	insert("insert into server_calls (id, house_id, question) values (gen_random_uuid(), $1, '{}') returning house_id", h.id)
	insert("insert into login_sessions (hash, agent_id, expires_at) values ($1, $2, now() + interval '1 hour') returning 'ok'", []byte(h.id), h.owner)
	insert("insert into login_links (hash, agent_id, expires_at) values ($1, $2, now() + interval '1 hour') returning 'ok'", []byte(h.id), h.owner)
	insert("insert into device_logins (device, code, client, address, expires_at, agent_id, approved) values ($1, $1, 'arbe', '', now() + interval '1 hour', $2, true) returning 'ok'", []byte(h.id), h.owner)
	insert("insert into device_login_guesses (agent_id) values ($1) returning 'ok'", h.owner)
	insert("insert into login_identities (issuer, subject, agent_id, email) values ('https://accounts.example.com', $1, $2, '') returning 'ok'", h.id, h.owner)
	insert("insert into notification_settings (agent_id) values ($1) returning 'ok'", h.owner)
	insert(`with d as (insert into push_devices (agent_id, endpoint, sealed) values ($2, sha256($1::text::bytea), 'x') returning id)
		insert into push_positions (house_id, agent_id, device_id, at) select $1, $2, id, now() from d returning house_id`, h.id, h.owner)
	insert("insert into expired (kind, id, house_id, days) values ('thread', 'gone-' || $1, $1, 30) returning id", h.id)
	insert("insert into group_roles (house_id, agent_id, role) values ($1, $2, 'owner') returning house_id", h.id, h.owner)
	return h
}

// two is a database with two unrelated houses.
type two struct {
	*dbtest.Database
	owner    *pgx.Conn
	ours     house
	stranger house
}

func newTwo(t testing.TB) two {
	t.Helper()
	d := dbtest.New(t)
	owner := d.Owner(t)
	return two{d, owner, newHouse(t, owner, "ours"), newHouse(t, owner, "a stranger's")}
}

var errUndo = errors.New("undo what the test did")

// in runs f in a scope and rolls its changes back, so that cases do not see each other.
func in(t testing.TB, d *db.DB, scope db.Scope, f func(tx pgx.Tx)) {
	t.Helper()
	err := d.In(t.Context(), scope, func(tx pgx.Tx) error {
		f(tx)
		return errUndo
	})
	if err != errUndo {
		t.Fatalf("the transaction failed: %v", err)
	}
}

// attempt runs one statement in its own transaction, rolls it back, and returns the number of affected rows.
func attempt(t testing.TB, d *db.DB, scope db.Scope, statement string, args ...any) (rows int64, err error) {
	t.Helper()
	in(t, d, scope, func(tx pgx.Tx) {
		tag, failed := tx.Exec(t.Context(), statement, args...)
		rows, err = tag.RowsAffected(), failed
	})
	return rows, err
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
}

// column returns the single column of a query.
func column[T any](t testing.TB, q querier, statement string, args ...any) []T {
	t.Helper()
	rows, err := q.Query(t.Context(), statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return values
}
