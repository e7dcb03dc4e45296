package thread_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/thread"
)

// says appends chats to a new thread, and returns it with the id of its stream.
func (b *bench) says(t *testing.T, texts ...string) (th thread.Thread, stream int64) {
	t.Helper()
	th = b.thread(t, thread.Draft{})
	drafts := make([]entry.Draft, len(texts))
	for i, text := range texts {
		drafts[i] = entry.NewDraft("", b.scope.Agent, entry.Chat{Text: text})
	}
	for len(drafts) > 0 {
		n := min(len(drafts), 500)
		_, err := b.log.Append(t.Context(), th.Stream(), drafts[:n]...)
		must(t, err)
		drafts = drafts[n:]
	}
	must(t, b.Owner(t).QueryRow(t.Context(), "select stream_id from decisions where thread_id = $1", th.ID).Scan(&stream))
	return th, stream
}

// index makes the entries of a stream searchable.
func (b *bench) index(t *testing.T, stream int64) {
	t.Helper()
	_, err := b.Owner(t).Exec(t.Context(), "update decisions d set decided = (select max(seq) from entries e where e.stream_id = d.stream_id) where stream_id = $1", stream)
	must(t, err)
	must(t, b.DB.In(t.Context(), db.Scope{}, func(tx pgx.Tx) error {
		more, err := query.New().IndexNext(t.Context(), tx, []int64{stream}, 60_000)
		if len(more) > 0 {
			t.Errorf("there are more entries in %v", more)
		}
		return err
	}))
}

// found returns how many entries a search finds.
func (b *bench) found(t *testing.T, text string) int {
	t.Helper()
	found, err := b.threads.Search(t.Context(), b.scope, text, 10_000)
	must(t, err)
	return len(found)
}

// TestASearchUsesTheIndex counts what the transaction of a search reads, as the server's role: a plan that EXPLAIN shows
// to the owner says nothing about it, because row-level security does not apply to the owner.
func TestASearchUsesTheIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, stream := b.says(t, "the zebra of our house", "and nothing more")
	b.index(t, stream)
	// Another house has the same words 20,000 times, and ours has 20,000 others.
	owner := b.Owner(t)
	for _, statement := range []string{
		"insert into houses (name) values ('Other')",
		"insert into streams (house_id, name) select id, 'arbe-thread-other' from houses where name = 'Other'",
		`insert into threads (id, house_id, stream_id) select 'other', id, 'arbe-thread-other' from houses where name = 'Other'`,
		`insert into entry_words (house_id, thread_id, stream_id, seq, ts, words)
			select h.id, 'other', 1000000, n, now(), array_to_tsvector(array[house_word(h.id), 'zebra', 'n' || n]) from houses h, generate_series(1, 20000) n where name = 'Other'`,
		fmt.Sprintf(`insert into entry_words (house_id, thread_id, stream_id, seq, ts, words)
			select house_id, thread_id, stream_id, n, now(), array_to_tsvector(array[house_word(house_id), 'n' || n]) from decisions, generate_series(1000, 21000) n where stream_id = %d`, stream),
		"analyze entry_words",
	} {
		_, err := owner.Exec(t.Context(), statement)
		must(t, err)
	}
	for range 8 { // beyond the fifth, Postgres may keep a plan for all words
		must(t, b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) error {
			rows, err := query.New().SearchEntries(t.Context(), tx, "'zeb':* & 'house':*", 10)
			if err != nil || len(rows) != 1 {
				t.Errorf("it finds %d entries (%v)", len(rows), err)
			}
			var index, read, sequential int64
			if err := tx.QueryRow(t.Context(), `
				select i.idx_scan, i.idx_tup_fetch, s.seq_scan
				from (select coalesce(sum(pg_stat_get_xact_numscans(indexrelid)), 0)::bigint as idx_scan, coalesce(sum(pg_stat_get_xact_tuples_returned(indexrelid)), 0)::bigint as idx_tup_fetch
					from pg_index where indexrelid = 'entry_words_search'::regclass) i,
				     (select pg_stat_get_xact_numscans('entry_words'::regclass) as seq_scan) s`).Scan(&index, &read, &sequential); err != nil {
				return err
			}
			if index == 0 || sequential > 0 || read > 10 {
				t.Errorf("it searches the index %d times, where it meets %d entries, and reads the table %d times", index, read, sequential)
			}
			return nil
		}))
	}
}

func TestASearchFindsNothingOfOtherHouses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, stream := b.says(t, "a zebra")
	b.index(t, stream)
	house := b.scope.House
	for scope, want := range map[db.Scope]int{b.scope: 1, {House: "another"}: 0, {}: 0, {Agent: b.scope.Agent}: 0} {
		must(t, b.DB.In(t.Context(), scope, func(tx pgx.Tx) error {
			for _, words := range []string{"'zebra'", "'zebra' | 'x'", "!'x' & 'zebra'"} {
				rows, err := query.New().SearchEntries(t.Context(), tx, words, 10)
				if err != nil || len(rows) != want {
					t.Errorf("%+v: %s finds %d entries (%v)", scope, words, len(rows), err)
				}
			}
			// The word of a house is none that somebody can search for, and no words are not all.
			for _, words := range []string{"' " + house + "'", "'" + house + "'", "'<b>'"} {
				rows, err := query.New().SearchEntries(t.Context(), tx, words, 10)
				if err != nil || len(rows) > 0 {
					t.Errorf("%+v: %s finds %d entries (%v)", scope, words, len(rows), err)
				}
			}
			return nil
		}))
	}
}

// TestOlderEntriesBecomeSearchable: the migration leaves them to the servers.
func TestOlderEntriesBecomeSearchable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	many := strings.Fields(strings.Repeat("zebra ", 2500))
	long, _ := b.says(t, many...)
	b.says(t, "the first zebra")
	forked, err := b.threads.Fork(t.Context(), b.scope, long.ID, thread.Fork{})
	must(t, err)
	_, err = b.log.Append(t.Context(), forked.Stream(), entry.NewDraft("", b.scope.Agent, entry.Chat{Text: "zebra of the fork"}))
	must(t, err)
	owner := b.Owner(t)
	// As they were when an older version had written and decided them.
	_, err = owner.Exec(t.Context(), "update decisions d set unindexed = 9223372036854775807, decided = (select max(seq) from entries e where e.stream_id = d.stream_id)")
	must(t, err)
	if n := b.found(t, "zebra"); n != 0 {
		t.Fatalf("%d are found before", n)
	}
	before := 0
	for step := 1; ; step++ {
		more := false
		must(t, b.DB.In(t.Context(), db.Scope{}, func(tx pgx.Tx) (err error) {
			more, err = query.New().IndexOlder(t.Context(), tx, 1000)
			return err
		}))
		n := b.found(t, "zebra")
		if n-before > 1000 || step == 1 && b.found(t, "fork") != 1 || step > 10 {
			t.Fatalf("step %d adds %d, to %d", step, n-before, before)
		}
		before = n
		if step == 2 { // a server is killed, and another one goes on
			break
		}
		if !more {
			t.Fatalf("it ends after %d steps, with %d", step, n)
		}
	}
	must(t, b.threads.IndexOlder(t.Context()))
	if n := b.found(t, "zebra"); n != len(many)+2 {
		t.Errorf("%d are found, want %d", n, len(many)+2)
	}
	left := 0
	if err := owner.QueryRow(t.Context(), "select count(*) from decisions where unindexed > 0").Scan(&left); err != nil || left > 0 {
		t.Errorf("%d threads are left (%v)", left, err)
	}
	t.Run("not in the name of a house", func(t *testing.T) {
		err := b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) error {
			_, err := query.New().IndexOlder(t.Context(), tx, 1000)
			return err
		})
		if db.State(err) != "42501" {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("a new thread has none", func(t *testing.T) {
		b.says(t, "x")
		if err := owner.QueryRow(t.Context(), "select count(*) from decisions where unindexed > 0").Scan(&left); err != nil || left > 0 {
			t.Errorf("%d threads have some (%v)", left, err)
		}
	})
}
