package db_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
)

// notAdministrative are the tables of houses without a trigger that writes the audit log: what people and bots say and do,
// what the server keeps about its own work, and what belongs to an audited row.
var notAdministrative = []string{
	"approvals", "artifacts", "attached_files", "audit_events", "blob_chunks", "blob_garbage", "blobs", "chat_edits", "decisions", "entries", "entry_words", "expired",
	"file_edits", "house_disks", "log_shares", "log_sizes", "member_spending", "model_calls", "notices", "placed_files", "producers", "push_positions", "reactions", "readings", "run_calls", "sandbox_spending", "sandbox_trees", "sandboxes",
	"sealed_values", "search_cursors", "server_calls", "spending", "streams", "subscription_streams", "subscriptions",
	"thread_heads", "thread_summaries", "turns",
}

func TestEachTableOfAHouseIsInItsAuditLogOrIsNotAdministrative(t *testing.T) {
	t.Parallel()
	owner := dbtest.New(t).Owner(t)
	// unaudited returns the tables of houses that have neither the trigger nor a line in notAdministrative, or both.
	unaudited := func() (tables []string) {
		audited := column[string](t, owner, "select distinct tgrelid::regclass::text from pg_trigger where tgfoid = 'audit_change'::regproc and tgenabled = 'O'")
		for table := range owned(t, owner) {
			if is := slices.Contains(audited, table); is == slices.Contains(notAdministrative, table) {
				tables = append(tables, table)
			}
		}
		return tables
	}
	if found := unaudited(); len(found) > 0 {
		t.Errorf("name %v in notAdministrative, or give them the trigger audit as migration 80 does, and not both", found)
	}
	execute(t, owner, "create table door_codes (house_id text references houses (id), code text)")
	if found := unaudited(); !slices.Equal(found, []string{"door_codes"}) {
		t.Errorf("of a new table the test says %v", found)
	}
}

func TestTheServerCannotWriteTheAuditLog(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	for _, statement := range []string{
		"insert into audit_events (house_id, action, subject_kind, subject_id) values (current_house(), 'created', 'member', 'x')",
		"update audit_events set actor_name = 'somebody else'",
		"delete from audit_events",
		"truncate audit_events",
		"alter table members disable trigger audit",
		"create table pg_temp.trap (id text); create trigger audit after insert on pg_temp.trap for each row execute function audit_change('member', 'id', '', '{}', '{}')",
	} {
		if _, err := attempt(t, w.DB, w.ours.scope(), statement); db.State(err) != refused {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func TestOnlyOwnersSeeTheAuditLog(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o := w.ours
	for name, c := range map[string]struct {
		scope db.Scope
		sees  bool
	}{
		"an owner":            {o.scope(), true},
		"the server":          {db.Scope{House: o.id}, true},
		"a member":            {db.Scope{House: o.id, Agent: newColleague(t, w)}, false},
		"a bot":               {db.Scope{House: o.id, Agent: o.bot}, false},
		"an owner of another": {db.Scope{House: o.id, Agent: w.stranger.owner}, false},
	} {
		in(t, w.DB, c.scope, func(tx pgx.Tx) {
			if n := column[int](t, tx, "select count(*) from audit_events where house_id = $1", o.id)[0]; n > 0 != c.sees {
				t.Errorf("%s sees %d events", name, n)
			}
		})
	}
}

// Updates of counters, times of use and the like are the server's work, not changes that somebody made.
func TestWorkOfTheServerIsNotInTheAuditLog(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o := w.ours
	count := func() int { return column[int](t, w.owner, "select count(*) from audit_events")[0] }
	before := count()
	for statement, args := range map[string][]any{
		"update secrets set used_at = now() where house_id = $1":                                                               {o.id},
		"update environments set rebuilds = rebuilds + 1 where house_id = $1":                                                  {o.id},
		"update houses set roster = roster + 1, belongs_to = null, primary_thread_id = $2 where id = $1":                       {o.id, o.driven},
		"update members set read_from = now() where house_id = $1":                                                             {o.id},
		"update bots set handle = handle where house_id = $1":                                                                  {o.id},
		"update threads set name = 'other', status = 'running' where id = $1":                                                  {o.driven},
		"select note_api_keys_used(array[$1::text::bytea], array[now() + interval '1 hour'])":                                  {o.limitedKey},
		"with gone as (delete from invites where house_id = $1 and expires_at < now() returning id) select count(*) from gone": {o.id},
	} {
		if _, err := w.owner.Exec(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		if n := count(); n != before {
			t.Errorf("%s is %d events", statement, n-before)
			before = n
		}
	}
}

func TestALongNameIsCutOffInTheAuditLog(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	execute(t, w.owner, "update houses set name = repeat('x', 100000)")
	if n := column[int](t, w.owner, "select max(length(e::text)) from audit_events e")[0]; n > 2000 {
		t.Errorf("an event has %d characters", n)
	}
}
