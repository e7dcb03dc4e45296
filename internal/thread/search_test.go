package thread_test

import (
	"fmt"
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
	for range 8 { // after five executions, Postgres may switch to a generic plan
		must(t, b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) error {
			rows, err := query.New().FindEntries(t.Context(), tx, query.FindEntriesParams{Words: "'zeb':* & 'house':*", Most: 10})
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
			if index == 0 || sequential > 0 || read > 20 { // twice for each of the eight searches
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
				rows, err := query.New().FindEntries(t.Context(), tx, query.FindEntriesParams{Words: words, Most: 10})
				if err != nil || len(rows) != want {
					t.Errorf("%+v: %s finds %d entries (%v)", scope, words, len(rows), err)
				}
			}
			// Nobody can search for the word of a house, and a query without words does not match everything.
			for _, words := range []string{"' " + house + "'", "'" + house + "'", "'<b>'"} {
				rows, err := query.New().FindEntries(t.Context(), tx, query.FindEntriesParams{Words: words, Most: 10})
				if err != nil || len(rows) > 0 {
					t.Errorf("%+v: %s finds %d entries (%v)", scope, words, len(rows), err)
				}
			}
			return nil
		}))
	}
}
