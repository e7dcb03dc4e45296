package commit_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/commit"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a database with one house, and an open committer without readers.
type bench struct {
	*dbtest.Database
	t         *testing.T
	committer *commit.Committer
	house     string

	mu sync.Mutex
	// calls records the calls of the hooks: "committed" and the ids, "notify", "reconnected".
	calls []string
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10), t: t}
	if err := b.Owner(t).QueryRow(t.Context(), "insert into houses (name) values ('Home') returning id").Scan(&b.house); err != nil {
		t.Fatal(err)
	}
	var err error
	b.committer, err = commit.Open(t.Context(), &store.Store{DB: b.DB}, commit.Hooks{
		Committed: func(c commit.Commit) {
			call := "committed"
			for _, e := range c.Entries() {
				call += " " + e.ID
			}
			b.called(call)
		},
		Notify:      func(_, _ int64) { b.called("notify") },
		Reconnected: func() { b.called("reconnected") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.committer.Close)
	return b
}

func (b *bench) called(call string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, call)
}

// want compares all calls of the hooks so far, and forgets them.
func (b *bench) want(calls ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.calls, calls) {
		b.t.Errorf("the hooks were called %q, want %q", b.calls, calls)
	}
	b.calls = nil
}

// stream creates an empty stream.
func (b *bench) stream(name string) (ref store.Ref, id int64) {
	b.t.Helper()
	ref = store.Ref{House: b.house, Name: name}
	if err := b.Owner(b.t).QueryRow(b.t.Context(), "insert into streams (house_id, name) values ($1, $2) returning id", ref.House, ref.Name).Scan(&id); err != nil {
		b.t.Fatal(err)
	}
	return ref, id
}

func (b *bench) execute(statement string) {
	b.t.Helper()
	if _, err := b.Owner(b.t).Exec(b.t.Context(), statement); err != nil {
		b.t.Fatal(err)
	}
}

func drafts(ids ...string) (drafts []entry.Draft) {
	for _, id := range ids {
		drafts = append(drafts, entry.Draft{ID: id, Type: "test", Payload: []byte("{}")})
	}
	return drafts
}

// append appends drafts and returns the positions of their entries.
func (b *bench) append(ref store.Ref, ids ...string) (seqs []int64) {
	b.t.Helper()
	entries, err := b.committer.Append(b.t.Context(), ref, 0, drafts(ids...))
	if err != nil {
		b.t.Fatal(fault.From(err).Detail())
	}
	for _, e := range entries {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

func TestTheOwnerOfACommitterIsInformed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref, _ := b.stream("s")

	t.Run("of committed entries before the caller gets its result, and that other servers must be notified of a batch", func(t *testing.T) {
		if got := b.append(ref, "a", "b"); !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("they are at %v", got)
		}
		b.want("committed a b", "notify")
	})
	t.Run("of a new connection, before anything is written over it", func(t *testing.T) {
		b.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'arbe commit'")
		if got := b.append(ref, "c"); !slices.Equal(got, []int64{3}) {
			t.Errorf("it is at %v", got)
		}
		b.want("reconnected", "committed c", "notify")
	})
	t.Run("of entries that existed already, which Postgres has notified others of", func(t *testing.T) {
		if got := b.append(ref, "d", "a"); !slices.Equal(got, []int64{4, 1}) {
			t.Errorf("they are at %v", got)
		}
		b.want("committed d a")
	})
	t.Run("but not of refused entries", func(t *testing.T) {
		if _, err := b.committer.Append(t.Context(), ref, 0, []entry.Draft{{ID: "wrong", Type: "test", Payload: []byte("{")}}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("it is answered %v", err)
		}
		b.want()
	})
}

func TestAnAppendToAStreamByID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref, id := b.stream("s")
	b.append(ref, "a")
	b.execute("delete from streams where name = 's'")
	_, other := b.stream("s")

	if _, err := b.committer.Append(t.Context(), ref, id, drafts("b")); !errors.Is(err, commit.ErrMoved) {
		t.Errorf("to a stream that lost its name: %v", err)
	}
	got, err := b.committer.Append(t.Context(), ref, other, drafts("b"))
	if err != nil || got[0].Seq != 1 {
		t.Errorf("to the stream that has the name: %v, %v", got, err)
	}
}

// All streams wait for the writer of batches, so a large append must not occupy it.
func TestALargeAppendIsInNoBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref, _ := b.stream("s")
	b.append(ref, "first")
	var ids []string
	for i := range 2000 {
		ids = append(ids, fmt.Sprint(i))
	}
	before := b.committer.Stats()
	seqs := b.append(ref, ids...)
	if first, last := seqs[0], seqs[len(seqs)-1]; first != 2 || last != 2001 {
		t.Errorf("its entries are at %d to %d", first, last)
	}
	if after := b.committer.Stats(); after != before {
		t.Errorf("batches: %+v, before it %+v", after, before)
	}
	if got := b.append(ref, "last"); !slices.Equal(got, []int64{2002}) || b.committer.Stats().Batches != before.Batches+1 {
		t.Errorf("the next append of the stream is at %v, after %d batches", got, b.committer.Stats().Batches)
	}
}

func TestRemember(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref, id := b.stream("s")
	b.append(ref, "a")
	want := func(what string, wantID int64, wantType string, wantKnown bool) {
		t.Helper()
		if id, contentType, known := b.committer.Recall(ref); id != wantID || contentType != wantType || known != wantKnown {
			t.Errorf("%s: %d, %q, %t", what, id, contentType, known)
		}
	}
	want("nothing before Remember", 0, "", false)
	b.committer.Remember(ref, id, "text/plain", false)
	want("the content type", id, "text/plain", true)
	b.committer.Remember(ref, id+1, "text/plain", true)
	want("no content type of a stream that expires", 0, "", false)
}

func TestAClosedCommitterRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref, _ := b.stream("s")
	b.append(ref, "a")
	b.committer.Close()
	if _, err := b.committer.Append(t.Context(), ref, 0, drafts("b")); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("it is answered %v", err)
	}
}
