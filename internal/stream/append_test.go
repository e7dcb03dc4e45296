package stream_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

func TestAppend(t *testing.T) {
	t.Parallel()
	b := setup(t)

	b.run(t, "entries get positions from 1 on, in their order, and come back as they were written", func(t *testing.T, b *bench) {
		ref := b.stream("order")
		exact := `{"text" : "ü 1.50", "text":"twice", "n": 1e400}`
		got, err := b.log.Append(t.Context(), ref,
			entry.Draft{ID: "a", Author: b.member, Type: "chat", Payload: []byte(exact)}, entry.Draft{Type: "x", Payload: []byte(`null`)})
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Seq != 1 || got[1].Seq != 2 {
			t.Errorf("positions %d and %d, want 1 and 2", got[0].Seq, got[1].Seq)
		}
		if got[1].ID == "" || got[1].Author != "" {
			t.Errorf("the second entry has id %q and author %q, want an id of the log's choice and none", got[1].ID, got[1].Author)
		}
		read, tail, err := b.log.Read(t.Context(), ref, stream.Range{})
		if err != nil || tail != 2 || len(read) != 2 {
			t.Fatalf("read %d entries up to %d: %v", len(read), tail, err)
		}
		if string(read[0].Payload) != exact {
			t.Errorf("payload %s, want it exactly as written: %s", read[0].Payload, exact)
		}
		for i := range read {
			if read[i].ID != got[i].ID || read[i].Author != got[i].Author || !read[i].Time.Equal(got[i].Time) || read[i].StreamID != "order" {
				t.Errorf("read %+v, but the append answered %+v", read[i], got[i])
			}
		}
	})

	b.run(t, "a repeated id returns the first write's entry, whatever the second one says", func(t *testing.T, b *bench) {
		ref := b.stream("again")
		first := b.say(ref, "x", "first")
		b.say(ref, "y", "other")
		if second := b.say(ref, "x", "second"); second.Seq != first.Seq || text(second) != "first" {
			t.Errorf("the second write answered %d %q, want %d %q", second.Seq, text(second), first.Seq, "first")
		}
	})

	b.run(t, "the same id twice in one batch is one entry", func(t *testing.T, b *bench) {
		ref := b.stream("batch")
		got, err := b.log.Append(t.Context(), ref, b.chat("x", "first"), b.chat("y", "other"), b.chat("x", "second"))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 3 || got[0].Seq != 1 || got[1].Seq != 2 || got[2].Seq != 1 || text(got[2]) != "first" {
			t.Errorf("got %v", got)
		}
	})

	b.run(t, "the same id from many writers at once is one entry and one answer", func(t *testing.T, b *bench) {
		ref := b.stream("race")
		const writers = 16
		var seqs [writers]int64
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				got, err := b.log.Append(t.Context(), ref, b.chat("x", "one of many"), b.chat("", "own"))
				if err != nil {
					t.Error(err)
					return
				}
				seqs[i] = got[0].Seq
			})
		}
		all.Wait()
		for _, seq := range seqs {
			if seq != 1 {
				t.Errorf("positions %v, want 1 for all", seqs)
				break
			}
		}
		if _, tail, _ := b.log.Read(t.Context(), ref, stream.Range{}); tail != writers+1 {
			t.Errorf("the log has %d entries, want %d", tail, writers+1)
		}
	})

	b.run(t, "an empty append writes nothing", func(t *testing.T, b *bench) {
		if got, err := b.log.Append(t.Context(), b.stream("empty")); err != nil || len(got) != 0 {
			t.Errorf("got %v, %v", got, err)
		}
	})

	b.run(t, "a payload of a mebibyte goes in and comes out", func(t *testing.T, b *bench) {
		ref := b.stream("large")
		w := b.tail(b.log, ref, 0)
		w.caughtUp()
		large := strings.Repeat("ü", 1<<19)
		b.say(ref, "large", large)
		if got := text(w.entry()); got != large {
			t.Errorf("the tail sent %d bytes, want %d", len(got), len(large))
		}
		if got, err := b.log.Get(t.Context(), ref, "large"); err != nil || text(got) != large {
			t.Errorf("got %d bytes, %v", len(got.Payload), err)
		}
	})

	b.run(t, "errors name the reason, and nothing is written", func(t *testing.T, b *bench) {
		ref := b.stream("refused")
		closed := b.stream("closed")
		if _, err := b.Owner(t).Exec(t.Context(), "update streams set closed_at = now() where name = 'closed'"); err != nil {
			t.Fatal(err)
		}
		good := b.chat("good", "good")
		for name, c := range map[string]struct {
			ref   stream.Ref
			draft entry.Draft
			want  fault.Code
		}{
			"no such stream":         {stream.Ref{House: b.house, Name: "nowhere"}, good, fault.NotFound},
			"another house's stream": {stream.Ref{House: "other", Name: ref.Name}, good, fault.NotFound},
			"a closed stream":        {closed, good, fault.Precondition},
			"a stranger":             {ref, entry.Draft{Author: "6f9619ff-8b86-d011-b42d-00c04fc964ff", Type: "chat", Payload: []byte(`{}`)}, fault.Forbidden},
			"no agent's id":          {ref, entry.Draft{Author: "Ada", Type: "chat", Payload: []byte(`{}`)}, fault.Invalid},
			"no JSON":                {ref, entry.Draft{Type: "chat", Payload: []byte(`{`)}, fault.Invalid},
			"an empty payload":       {ref, entry.Draft{Type: "chat"}, fault.Invalid},
			"invalid UTF-8":          {ref, entry.Draft{Type: "chat", Payload: []byte("\"\xff\"")}, fault.Invalid},
			"a NUL in the id":        {ref, entry.Draft{ID: "a\x00b", Type: "chat", Payload: []byte(`{}`)}, fault.Invalid},
		} {
			_, err := b.log.Append(t.Context(), c.ref, good, c.draft)
			if got := fault.CodeOf(err); got != c.want {
				t.Errorf("%s: %q (%v), want %q", name, got, err, c.want)
			} else if fault.From(err).Next == "" {
				t.Errorf("%s: no next step", name)
			}
		}
		if _, tail, _ := b.log.Read(t.Context(), ref, stream.Range{}); tail != 0 {
			t.Errorf("%d entries were written", tail)
		}
	})
}

func TestAppendTx(t *testing.T) {
	t.Parallel()
	b := setup(t)

	b.run(t, "entries appear with the commit, and a rollback leaves no gap", func(t *testing.T, b *bench) {
		ref := b.stream("tx")
		w := b.tail(b.log, ref, 0)
		w.caughtUp()
		undo := errors.New("undo")
		write := func(id string, end error) error {
			return b.DB.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) error {
				if _, err := b.log.AppendTx(t.Context(), tx, ref, b.chat(id, id)); err != nil {
					return err
				}
				return end
			})
		}
		if err := write("undone", undo); !errors.Is(err, undo) {
			t.Fatal(err)
		}
		if err := write("done", nil); err != nil {
			t.Fatal(err)
		}
		if e := w.entry(); e.ID != "done" || e.Seq != 1 {
			t.Errorf("the tail sent %s at %d, want done at 1", e.ID, e.Seq)
		}
	})

	b.run(t, "its errors are those of Append", func(t *testing.T, b *bench) {
		err := b.DB.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) error {
			_, err := b.log.AppendTx(t.Context(), tx, stream.Ref{House: b.house, Name: "nowhere"}, b.chat("", "x"))
			return err
		})
		wantCode(t, err, fault.NotFound)
	})

	b.run(t, "a name that is taken is refused", func(t *testing.T, b *bench) {
		ref := b.stream("taken")
		err := b.DB.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) error { return stream.CreateTx(t.Context(), tx, ref) })
		wantCode(t, err, fault.Exists)
	})
}

func TestAppendOverADroppedConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)

	b.run(t, "is retried and writes one entry", func(t *testing.T, b *bench) {
		ref := b.stream("dropped")
		owner := b.Owner(t)
		// Block the write, so that the connection breaks in the middle of the append.
		lock, err := owner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lock.Exec(t.Context(), "lock table entries in exclusive mode"); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := b.log.Append(t.Context(), ref, b.chat("", "once"))
			done <- err
		}()
		killed := 0
		for killed == 0 {
			if err := lock.QueryRow(t.Context(), `select count(pg_terminate_backend(pid)) from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock'`).Scan(&killed); err != nil {
				t.Fatal(err)
			}
			if killed == 0 {
				if _, err := lock.Exec(t.Context(), "select pg_stat_clear_snapshot()"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := lock.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatalf("the append failed: %s", fault.From(err).Detail())
		}
		if _, tail, _ := b.log.Read(t.Context(), ref, stream.Range{}); tail != 1 {
			t.Errorf("the log has %d entries, want 1", tail)
		}
	})

	b.run(t, "writes one entry if only the answer to the commit was lost", func(t *testing.T, b *bench) {
		ref := b.stream("unanswered")
		l, proxy := b.proxied()

		// The first append to a stream also asks where it ends. The test must not lose that answer.
		if _, err := l.Append(t.Context(), ref, b.chat("", "before")); err != nil {
			t.Fatal(err)
		}
		lost := proxy.LoseCommit(nil)
		got, err := l.Append(t.Context(), ref, b.chat("", "once"), b.chat("", "and this"))
		if err != nil {
			t.Fatalf("the append failed: %s", fault.From(err).Detail())
		}
		select {
		case <-lost:
		default:
			t.Fatal("no commit passed the proxy")
		}
		if _, tail, _ := b.log.Read(t.Context(), ref, stream.Range{}); tail != 3 || got[0].Seq != 2 || got[1].Seq != 3 {
			t.Errorf("answered %v, and the log has %d entries, want 3", seqs(got), tail)
		}
	})

	b.run(t, "ends with its context", func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.log.Append(ctx, b.stream("ended"), b.chat("", "x")); fault.CodeOf(err) != fault.Canceled {
			t.Errorf("got %v", err)
		}
	})
}
