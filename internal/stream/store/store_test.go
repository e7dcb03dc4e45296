package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

// logs is a database with one house, its member, and a store for its logs.
type logs struct {
	*dbtest.Database
	store.Store
	house, member string
}

func newLogs(t *testing.T) *logs {
	t.Helper()
	l := &logs{Database: dbtest.Reuse(t, 10)}
	l.Store.DB = l.Database.DB
	err := l.Owner(t).QueryRow(t.Context(), `
		with h as (insert into houses (name) values ('Home') returning id),
		     a as (insert into agents (kind, name) values ('human', 'Ada') returning id)
		insert into members (house_id, agent_id, role) select h.id, a.id, 'owner' from h, a returning house_id, agent_id::text`).
		Scan(&l.house, &l.member)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// create creates a log. If it is a fork, it inherits the entries of source up to a position.
func (l *logs) create(t *testing.T, name string, source *int64, upto *int64) (store.Ref, int64) {
	t.Helper()
	var id int64
	err := l.Owner(t).QueryRow(t.Context(), `insert into streams (house_id, name, source_id, fork_seq, fork_sub)
		values ($1, $2, $3::bigint, $4, case when $3 is not null then 0 end) returning id`, l.house, name, source, upto).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	return store.Ref{House: l.house, Name: name}, id
}

// append appends drafts and returns their entries.
func (l *logs) append(t *testing.T, ref store.Ref, drafts ...entry.Draft) (entries []entry.Entry) {
	t.Helper()
	err := l.In(t.Context(), ref, func(tx pgx.Tx) (err error) {
		_, entries, err = store.Append(t.Context(), tx, ref, drafts)
		return err
	})
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	return entries
}

// draft returns a draft of a kind with an incompressible payload of about so many bytes.
func draft(id, kind string, bytes int) entry.Draft {
	text := make([]byte, bytes)
	for i := range text {
		text[i] = byte('a' + rand.IntN(26))
	}
	payload, _ := json.Marshal(map[string]string{"text": string(text)})
	return entry.Draft{ID: id, Type: kind, Payload: payload}
}

// brief formats the fields of entries that tests compare.
func brief(entries []entry.Entry) (list []string) {
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%d %s %s %s %d", e.Seq, e.ID, e.Type, e.Author, len(e.Payload)))
	}
	return list
}

func TestAppend(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	ref, id := l.create(t, "log", nil, nil)

	t.Run("each draft becomes an entry at the next position", func(t *testing.T) {
		by := draft("b", "chat", 10)
		by.Author = l.member
		got := l.append(t, ref, draft("a", "chat", 10), by)
		if want := []string{"1 a chat  21", "2 b chat " + l.member + " 21"}; !slices.Equal(brief(got), want) {
			t.Errorf("%q, want %q", brief(got), want)
		}
		for _, e := range got {
			if e.StreamID != "log" || time.Since(e.Time) > time.Hour || e.Time.Location() != time.UTC {
				t.Errorf("it is in %q at %s", e.StreamID, e.Time)
			}
		}
	})
	t.Run("an id that the log has returns the existing entry", func(t *testing.T) {
		got := l.append(t, ref, draft("c", "chat", 5), draft("a", "signal.other", 500), draft("c", "chat", 7))
		if want := []string{"3 c chat  16", "1 a chat  21", "3 c chat  16"}; !slices.Equal(brief(got), want) {
			t.Errorf("%q, want %q", brief(got), want)
		}
	})
	t.Run("the log's tail moves", func(t *testing.T) {
		if end, err := l.Find(t.Context(), ref); err != nil || end != (store.End{ID: id, Tail: 3}) {
			t.Errorf("%+v, %v", end, err)
		}
	})
	t.Run("a transaction that fails leaves nothing and takes no position", func(t *testing.T) {
		failed := errors.New("the caller's own")
		err := l.In(t.Context(), ref, func(tx pgx.Tx) error {
			if _, _, err := store.Append(t.Context(), tx, ref, []entry.Draft{draft("lost", "chat", 5)}); err != nil {
				return err
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Error(err)
		}
		if got := l.append(t, ref, draft("d", "chat", 5)); got[0].Seq != 4 {
			t.Errorf("the next entry is at %d", got[0].Seq)
		}
	})
	t.Run("another house sees no log", func(t *testing.T) {
		var other string
		if err := l.Owner(t).QueryRow(t.Context(), "insert into houses (name) values ('Other') returning id").Scan(&other); err != nil {
			t.Fatal(err)
		}
		foreign := store.Ref{House: other, Name: "log"}
		err := l.In(t.Context(), foreign, func(tx pgx.Tx) error {
			entries, err := store.Read(t.Context(), tx, foreign, id, store.Range{}, 1<<20)
			if len(entries) > 0 {
				t.Errorf("it reads %q", brief(entries))
			}
			if _, err := store.Get(t.Context(), tx, foreign, id, "a"); fault.CodeOf(err) != fault.NotFound {
				t.Errorf("it gets an entry: %v", err)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		err = l.In(t.Context(), foreign, func(tx pgx.Tx) error {
			_, _, err := store.Append(t.Context(), tx, foreign, []entry.Draft{draft("x", "chat", 5)})
			return err
		})
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("it appends: %v", err)
		}
	})
}

// TestReadAgreesWithWhatWasWritten compares ranges of logs, forks and forks of forks, which have small and large
// entries in random order, with lists in memory.
func TestReadAgreesWithWhatWasWritten(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	type log struct {
		ref store.Ref
		id  int64
		all []entry.Entry // including the inherited ones
	}
	var family []log
	kinds := []string{"chat", "command", "signal.thread.status_changed", "signal.turn.started", "signals"}
	fill := func(g *log, prefix string) {
		var drafts []entry.Draft
		for i := range 20 + rand.IntN(20) {
			bytes := rand.IntN(100)
			if rand.IntN(6) == 0 { // stored outside the row, or compressed
				bytes = 2000 + rand.IntN(20_000)
			}
			drafts = append(drafts, draft(fmt.Sprint(prefix, i), kinds[rand.IntN(len(kinds))], bytes))
		}
		g.all = append(slices.Clip(g.all), l.append(t, g.ref, drafts...)...)
	}
	for depth := range 4 {
		g := log{}
		if depth == 0 {
			g.ref, g.id = l.create(t, "root", nil, nil)
		} else {
			source := family[depth-1]
			upto := int64(rand.IntN(len(source.all) + 1))
			g.ref, g.id = l.create(t, fmt.Sprint("fork", depth), &source.id, &upto)
			g.all = source.all[:upto]
		}
		fill(&g, fmt.Sprint("d", depth, "-"))
		family = append(family, g)
	}

	cut := func(entries []entry.Entry, r store.Range, bytes int64) []entry.Entry {
		limit := r.Limit
		if limit == 0 {
			limit = 100
		}
		var kept []entry.Entry
		for len(entries) > 0 && len(kept) < limit && bytes > 0 {
			e := entries[0]
			if r.Last {
				e = entries[len(entries)-1]
				entries = entries[:len(entries)-1]
			} else {
				entries = entries[1:]
			}
			kept, bytes = append(kept, e), bytes-int64(len(e.Payload))
		}
		if r.Last {
			slices.Reverse(kept)
		}
		return kept
	}
	within := func(g log, r store.Range) (entries []entry.Entry) {
		for _, e := range g.all {
			if e.Seq > r.After && (r.Before == 0 || e.Seq < r.Before) {
				entries = append(entries, e)
			}
		}
		return entries
	}
	for range 300 {
		g := family[rand.IntN(len(family))]
		n := int64(len(g.all))
		r := store.Range{After: rand.Int64N(n + 2), Last: rand.IntN(2) == 0}
		if rand.IntN(2) == 0 {
			r.Before = r.After + rand.Int64N(n+3)
		}
		if rand.IntN(2) == 0 {
			r.Limit = 1 + rand.IntN(40)
		}
		bytes := int64(1 + rand.IntN(60_000))
		var got, picked []entry.Entry
		types := []string{"chat", "signal"}
		err := l.In(t.Context(), g.ref, func(tx pgx.Tx) (err error) {
			if got, err = store.Read(t.Context(), tx, g.ref, g.id, r, bytes); err == nil {
				picked, _, err = store.Pick(t.Context(), tx, g.ref, g.id, r, store.Kinds{Types: types}, n, bytes)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := cut(within(g, r), r, bytes); !slices.Equal(brief(got), brief(want)) {
			t.Fatalf("%s %+v, %d bytes: it reads\n%s\nwant\n%s", g.ref.Name, r, bytes, strings.Join(brief(got), "\n"), strings.Join(brief(want), "\n"))
		}
		of := slices.DeleteFunc(within(g, r), func(e entry.Entry) bool { return e.Type != "chat" && !strings.HasPrefix(e.Type, "signal.") })
		if want := cut(of, r, bytes); !slices.Equal(brief(picked), brief(want)) {
			t.Fatalf("%s %+v, %d bytes: it picks\n%s\nwant\n%s", g.ref.Name, r, bytes, strings.Join(brief(picked), "\n"), strings.Join(brief(want), "\n"))
		}
	}

	t.Run("an entry is found by its id, an inherited one too", func(t *testing.T) {
		g := family[len(family)-1]
		copied := int64(slices.IndexFunc(g.all, func(e entry.Entry) bool { return strings.HasPrefix(e.ID, "d3-") })) // a fork's own
		err := l.In(t.Context(), g.ref, func(tx pgx.Tx) error {
			for _, e := range g.all {
				got, err := store.Get(t.Context(), tx, g.ref, g.id, e.ID)
				if err != nil || string(got.Payload) != string(e.Payload) || got.Seq != e.Seq {
					t.Errorf("%s: %+v, %v", e.ID, got, err)
				}
				own, err := store.Has(t.Context(), tx, g.id, "no such entry", e.ID)
				if err != nil || own != (e.Seq >= copied) {
					t.Errorf("%s is its own: %t, %v", e.ID, own, err)
				}
			}
			if _, err := store.Get(t.Context(), tx, g.ref, g.id, "no such entry"); fault.CodeOf(err) != fault.NotFound {
				t.Errorf("an entry that is not there: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A caller that picks entries of some kinds continues where the last call stopped, until it has searched everything.
func TestPickGoesOnFromWhereItStoppedLooking(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	ref, id := l.create(t, "log", nil, nil)
	var drafts []entry.Draft
	for i := range 30 {
		kind := "output"
		if i%7 == 3 {
			kind = "chat"
		}
		drafts = append(drafts, draft(fmt.Sprint("e", i), kind, 10))
	}
	l.append(t, ref, drafts...)
	for _, last := range []bool{false, true} {
		var seen []int64
		r := store.Range{Limit: 2, Last: last}
		for range 10 {
			var entries []entry.Entry
			var searched int64
			err := l.In(t.Context(), ref, func(tx pgx.Tx) (err error) {
				entries, searched, err = store.Pick(t.Context(), tx, ref, id, r, store.Kinds{Types: []string{"chat"}}, 30, 1<<20)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				seen = append(seen, e.Seq)
			}
			if last && searched <= 1 || !last && searched >= 30 {
				break
			}
			if last {
				r.Before = searched
			} else {
				r.After = searched
			}
		}
		slices.Sort(seen)
		if want := []int64{4, 11, 18, 25}; !slices.Equal(seen, want) {
			t.Errorf("from the end: %t: it picks %d, want %d", last, seen, want)
		}
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	ref, id := l.create(t, "log", nil, nil)
	l.append(t, ref, draft("a", "chunk", 10), draft("b", "chunk", 20), draft("c", "chunk", 9000), draft("d", "chunk", 10))
	scan := func(t *testing.T, set func(*store.Scan)) (s *store.Scan, got []string) {
		t.Helper()
		err := l.In(t.Context(), ref, func(tx pgx.Tx) error {
			got = nil
			s = store.NewScan(tx, ref, store.Range{}, 1<<20, func(e *entry.Entry) { got = append(got, fmt.Sprint(e.Seq, e.ID, e.Type, len(e.Payload))) })
			set(s)
			return s.Run(t.Context(), id)
		})
		if err != nil {
			t.Fatal(err)
		}
		return s, got
	}

	t.Run("it passes on all entries", func(t *testing.T) {
		s, got := scan(t, func(*store.Scan) {})
		if want := []string{"1achunk21", "2bchunk31", "3cchunk9011", "4dchunk21"}; !slices.Equal(got, want) || s.At != 4 {
			t.Errorf("%q up to %d", got, s.At)
		}
	})
	t.Run("a scan with FastOnly ends before a large entry", func(t *testing.T) {
		s, got := scan(t, func(s *store.Scan) { s.FastOnly = true })
		if len(got) != 2 || s.At != 2 {
			t.Errorf("%q up to %d", got, s.At)
		}
	})
	t.Run("a scan of payloads alone has the given type", func(t *testing.T) {
		_, got := scan(t, func(s *store.Scan) { s.Only, s.FastOnly = "chunk", true })
		if want := []string{"1chunk21", "2chunk31"}; !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
	t.Run("it is over when rows, bytes or positions are used up", func(t *testing.T) {
		for _, c := range []struct {
			set  func(*store.Scan)
			want int
		}{
			{func(s *store.Scan) { s.Rows = 1 }, 1},
			{func(s *store.Scan) { s.Bytes = 22 }, 2}, // the entry that exceeds them is the last one
			{func(s *store.Scan) { s.Bytes = 0 }, 0},
			{func(s *store.Scan) { s.At = 4 }, 0},
		} {
			if s, got := scan(t, c.set); len(got) != c.want || !s.Over(5) {
				t.Errorf("%q, want %d", got, c.want)
			}
		}
	})
}

// Timestamp decodes what Postgres sends.
func TestTimestamp(t *testing.T) {
	t.Parallel()
	conn := dbtest.New(t).Owner(t)
	for _, text := range []string{"2000-01-01 00:00:00Z", "1999-12-31 23:59:59.999999Z", "2026-02-28 12:34:56.789012Z", "9999-12-31 23:59:59Z"} {
		result := conn.PgConn().ExecParams(t.Context(), "select $1::timestamptz", [][]byte{[]byte(text)}, nil, nil, store.BinaryFormat).Read()
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		want, err := time.Parse("2006-01-02 15:04:05.999999Z", text)
		if got := store.Timestamp(result.Rows[0][0]); err != nil || !got.Equal(want) {
			t.Errorf("%s is %s (%v)", text, got, err)
		}
	}
}

// A call survives a restart of Postgres, which leaves a pool of dead connections, and ends with its context.
func TestInRetriesWhileTheDatabaseDropsConnections(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	ref, _ := l.create(t, "log", nil, nil)
	proxy := dbtest.NewProxy(t, l.ServerURL)
	d, err := db.Open(t.Context(), proxy.URL, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	s := store.Store{DB: d}

	runs := 0
	err = s.In(t.Context(), ref, func(tx pgx.Tx) error {
		if runs++; runs <= 3 {
			proxy.Cut("")
		}
		_, err := store.FindTx(t.Context(), tx, ref)
		return err
	})
	if err != nil || runs < 4 { // the pool may also hand out a connection that a cut has just ended
		t.Errorf("%d runs: %v", runs, err)
	}

	t.Run("other errors are not repeated", func(t *testing.T) {
		runs := 0
		err := s.In(t.Context(), ref, func(pgx.Tx) error { runs++; return pgx.ErrNoRows })
		if runs != 1 || fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%d runs: %v", runs, err)
		}
	})
	t.Run("it ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		err := s.In(ctx, ref, func(pgx.Tx) error {
			runs++
			cancel()
			return fault.New(fault.Unavailable, "away", "try again")
		})
		if runs != 1 || err == nil {
			t.Errorf("%d runs: %v", runs, err)
		}
	})
}

func TestEndsAreOfAllHousesAndLeaveOutWhatIsGone(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	ref, open := l.create(t, "open", nil, nil)
	l.append(t, ref, draft("a", "chat", 5))
	_, empty := l.create(t, "empty", nil, nil)
	_, closed := l.create(t, "closed", nil, nil)
	owner := l.Owner(t)
	if _, err := owner.Exec(t.Context(), "update streams set closed_at = now() where id = $1", closed); err != nil {
		t.Fatal(err)
	}
	var foreign int64
	err := owner.QueryRow(t.Context(), `with h as (insert into houses (name) values ('Other') returning id)
		insert into streams (house_id, name) select id, 'theirs' from h returning id`).Scan(&foreign)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := l.Ends(t.Context(), []int64{open, empty, closed, foreign, 999_999})
	want := map[int64]store.End{open: {ID: open, Tail: 1}, empty: {ID: empty}, closed: {ID: closed, Closed: true}, foreign: {ID: foreign}}
	if err != nil || len(ends) != len(want) {
		t.Fatalf("%+v, %v", ends, err)
	}
	for id, end := range want {
		if ends[id] != end {
			t.Errorf("%+v, want %+v", ends[id], end)
		}
	}
}
