package db_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
)

func TestAnEntryStaysAsItIs(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	const restricted = "23001"
	for name, statement := range map[string]string{
		"changed":                      "update entries set payload = '{}'",
		"deleted":                      "delete from entries",
		"truncated":                    "truncate entries",
		"truncated with what it is of": "truncate houses cascade",
	} {
		t.Run("it cannot be "+name, func(t *testing.T) {
			if _, err := attempt(t, w.DB, w.ours.scope(), statement); db.State(err) != refused {
				t.Errorf("by the server: %v", err)
			}
			if err := asOwner(t, w.owner, statement); db.State(err) != restricted {
				t.Errorf("by the owner: %v", err)
			}
		})
	}
	for _, partition := range column[string](t, w.owner, "select distinct tableoid::regclass::text from entries") {
		for _, statement := range []string{"update " + partition + " set seq = seq + 1", "delete from " + partition, "truncate " + partition} {
			t.Run("nor through its partition: "+statement, func(t *testing.T) {
				if err := asOwner(t, w.owner, statement); db.State(err) != restricted {
					t.Error(err)
				}
			})
		}
	}
	t.Run("it cannot be written past append_entries and append_batch", func(t *testing.T) {
		_, err := attempt(t, w.DB, w.ours.scope(), `insert into entries (stream_id, seq, house_id, id, type, payload, ts)
			select id, 2, house_id, 'forged', 'chat', '{}', now() from streams where name = $1`, w.ours.stream)
		if db.State(err) != refused {
			t.Error(err)
		}
	})
	t.Run("nor can a stream be opened again", func(t *testing.T) {
		if _, err := attempt(t, w.DB, w.ours.scope(), "update streams set closed_at = null"); db.State(err) != refused {
			t.Error(err)
		}
	})
}

// deleteAsServer deletes exactly one row under the server's role, in the scope of our house, and commits.
func deleteAsServer(t *testing.T, w two, statement string, args ...any) {
	t.Helper()
	err := w.DB.In(t.Context(), w.ours.scope(), func(tx pgx.Tx) error {
		tag, err := tx.Exec(t.Context(), statement, args...)
		if err == nil && tag.RowsAffected() != 1 {
			t.Errorf("%s reached %d rows", statement, tag.RowsAffected())
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestDeletingAThreadTakesItsLogAndItsChildrenWithIt(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	deleteAsServer(t, w, "delete from threads where id = $1", w.ours.chat)
	for query, want := range map[string]int{
		"select count(*) from threads where house_id = $1":                              0,
		"select count(*) from entries where house_id = $1":                              0,
		"select count(*) from streams where house_id = $1":                              1, // the stream without a thread
		"select count(*) from houses where id = $1 and primary_thread_id is null":       1,
		"select count(*) from houses where id = $1 and default_environment_id is null":  0,
		"select count(*) from sandboxes where house_id = $1":                            1,
		"select count(*) from threads where house_id <> $1":                             2,
		"select count(*) from entries where house_id <> $1":                             2,
		"select count(*) from streams where house_id <> $1 and name not like 'spare-%'": 2,
	} {
		if n := column[int](t, w.owner, query, w.ours.id)[0]; n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
}

func TestDeletingAHouseClearsAllOfItAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	key := owned(t, w.owner)
	before := map[string]int{}
	count := func(table, comparison string) int {
		return column[int](t, w.owner, "select count(*) from "+table+" where "+key[table]+comparison+" $1", w.ours.id)[0]
	}
	for table := range key {
		before[table] = count(table, " <>")
	}
	deleteAsServer(t, w, "delete from houses where id = $1", w.ours.id)
	for table := range key {
		if n := count(table, " ="); n != 0 {
			t.Errorf("%d rows stay in %s", n, table)
		}
		if n := count(table, " <>"); n != before[table] || n == 0 {
			t.Errorf("another house has %d rows in %s, had %d", n, table, before[table])
		}
	}
	if n := column[int](t, w.owner, "select count(*) from agents")[0]; n != 4 {
		t.Errorf("%d agents of 4 stay: they are no house's", n)
	}
}

func TestDeletingASandboxLeavesItsThreads(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	thread := func() string {
		return column[string](t, w.owner, "select (to_jsonb(t) - 'updated_at')::text from threads t where id = $1", w.ours.driven)[0]
	}
	want := column[string](t, w.owner, "select (to_jsonb(t) - 'updated_at' || '{\"sandbox_id\": null}')::text from threads t where id = $1", w.ours.driven)[0]
	if thread() == want {
		t.Fatal("the thread is on no sandbox")
	}
	deleteAsServer(t, w, "delete from sandboxes where id = $1", w.ours.sandbox)
	if got := thread(); got != want {
		t.Errorf("the thread is now\n%s\nwant\n%s", got, want)
	}
}

func TestWhatIsInUseStays(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o := w.ours
	for name, c := range map[string]struct{ statement, id string }{
		"a thread's or sandbox' environment": {"delete from environments where id = $1", o.environment},
		"the member who drives a thread":     {"delete from members where agent_id = $1", o.bot},
		"the agent who drives a thread":      {"delete from agents where id = $1", o.bot},
		"a thread's stream":                  {"delete from streams where name = $1", o.stream},
	} {
		t.Run(name, func(t *testing.T) {
			if err := asOwner(t, w.owner, c.statement, c.id); db.State(err) != foreignKey {
				t.Error(err)
			}
		})
	}
}

func TestWhoLeavesAHouseLosesItsKeysToIt(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	o := w.ours
	if _, err := w.owner.Exec(t.Context(), "update threads set agent_id = $2 where id = $1", o.driven, o.owner); err != nil {
		t.Fatal(err)
	}
	deleteAsServer(t, w, "delete from members where agent_id = $1", o.bot)
	got := column[string](t, w.owner, "select name from api_keys where agent_id in ($1, $2)", o.owner, o.bot)
	if !slices.Equal(got, []string{o.key}) {
		t.Errorf("the keys left are %v, want %s alone", got, o.key)
	}
}
