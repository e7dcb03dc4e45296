package fanout_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream/fanout"
	"github.com/arbe-dev/arbe/internal/stream/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience is how long a test waits for an expected event.
const patience = 3 * time.Minute

// bench is a database with one house, in which only the test commits.
type bench struct {
	*dbtest.Database
	t     *testing.T
	store *store.Store
	house string
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10), t: t}
	b.store = &store.Store{DB: b.DB}
	if err := b.Owner(t).QueryRow(t.Context(), "insert into houses (name) values ('Home') returning id").Scan(&b.house); err != nil {
		t.Fatal(err)
	}
	return b
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

// append appends in a transaction, so that Postgres notifies all servers.
func (b *bench) append(ref store.Ref, ids ...string) (entries []entry.Entry) {
	b.t.Helper()
	var drafts []entry.Draft
	for _, id := range ids {
		drafts = append(drafts, entry.Draft{ID: id, Type: "test", Payload: []byte("{}")})
	}
	err := b.store.In(b.t.Context(), ref, func(tx pgx.Tx) (err error) {
		_, entries, err = store.Append(b.t.Context(), tx, ref, drafts)
		return err
	})
	if err != nil {
		b.t.Fatal(fault.From(err).Detail())
	}
	return entries
}

// hub is one server's Hub, with the calls of its hooks.
type hub struct {
	*fanout.Hub
	t     *testing.T
	calls chan string
}

func (b *bench) hub() *hub {
	b.t.Helper()
	h := &hub{t: b.t, calls: make(chan string, 100)}
	var err error
	h.Hub, err = fanout.Open(b.t.Context(), b.store, slog.New(slog.DiscardHandler), fanout.Hooks{
		Changed: func(streams []int64) {
			if streams == nil {
				h.calls <- "lost"
				return
			}
			h.calls <- fmt.Sprint("changed ", streams)
		},
		Appended: func(_ uint32, stream, tail int64) { h.calls <- fmt.Sprint("appended ", stream, " ", tail) },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(h.Close)
	h.want("lost") // notifications before it listened
	return h
}

// want waits for the next calls of the hooks.
func (h *hub) want(calls ...string) {
	h.t.Helper()
	var got []string
	for range calls {
		select {
		case call := <-h.calls:
			got = append(got, call)
		case <-time.After(patience):
			h.t.Fatalf("the hooks were called %q, want %q", got, calls)
		}
	}
	if !slices.Equal(got, calls) {
		h.t.Fatalf("the hooks were called %q, want %q", got, calls)
	}
}

// watch watches a log. The channel receives each event as text, and at last why the watch ended.
func (h *hub) watch(ref store.Ref, after int64) <-chan string {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	h.t.Cleanup(cancel)
	events, err := h.Watch(ctx, ref, 0, after)
	if err != nil {
		h.t.Fatal(fault.From(err).Detail())
	}
	sent := make(chan string, 100)
	go func() {
		for e, err := range events {
			switch {
			case err != nil:
				sent <- string(fault.CodeOf(err))
			case e.Entry != nil:
				sent <- e.Entry.ID
			case e.Delta != nil:
				sent <- "delta " + string(e.Delta.Data)
			case e.CaughtUp:
				sent <- "caught up"
			case e.Closed:
				sent <- "closed"
			}
		}
	}()
	return sent
}

func wantSent(t *testing.T, sent <-chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-sent:
			if got != w {
				t.Fatalf("it is sent %q, want %q", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("it is not sent %q", w)
		}
	}
}

func TestAWatcherIsSent(t *testing.T) {
	t.Parallel()
	t.Run("existing entries, and those that any server commits", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ref, _ := b.stream("s")
		b.append(ref, "a", "b")
		sent := b.hub().watch(ref, 1)
		wantSent(t, sent, "b", "caught up")
		b.append(ref, "c")
		wantSent(t, sent, "c")
	})
	t.Run("offered entries, without a notification", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ref, id := b.stream("s")
		h := b.hub()
		h.Offer(id, func() []entry.Entry {
			t.Error("it is asked for entries that are not watched")
			return nil
		})
		sent := h.watch(ref, 0)
		wantSent(t, sent, "caught up")
		if _, err := b.Owner(t).Exec(t.Context(), `insert into entries (stream_id, seq, house_id, id, type, payload, ts)
			values ($1, 1, $2, 'in the log', 'test', '{}', now())`, id, b.house); err != nil {
			t.Fatal(err)
		}
		h.Offer(id, func() []entry.Entry { return []entry.Entry{{Seq: 1, ID: "offered"}} })
		h.Closed(id, 1)
		wantSent(t, sent, "offered", "closed")
	})
	t.Run("deltas of any server", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ref, _ := b.stream("s")
		one, other := b.hub(), b.hub()
		here, there := one.watch(ref, 0), other.watch(ref, 0)
		wantSent(t, here, "caught up")
		wantSent(t, there, "caught up")
		if err := one.Publish(t.Context(), ref, fanout.Delta{EntryID: "x", Data: []byte("typing")}); err != nil {
			t.Fatal(err)
		}
		wantSent(t, here, "delta typing")
		wantSent(t, there, "delta typing")
	})
	t.Run("that the hub has ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ref, _ := b.stream("s")
		h := b.hub()
		sent := h.watch(ref, 0)
		wantSent(t, sent, "caught up")
		h.End()
		wantSent(t, sent, "unavailable")
		if _, err := h.Watch(t.Context(), ref, 0, 0); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("a watch begins with %v", err)
		}
	})
}

func TestTheOwnerOfAHubIsInformed(t *testing.T) {
	t.Parallel()
	t.Run("of commits with a notification", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ref, id := b.stream("s")
		h := b.hub()
		b.append(ref, "a", "b")
		h.want(fmt.Sprintf("changed [%d]", id), fmt.Sprintf("appended %d 2", id))
	})
	t.Run("of commits that another hub notifies of, but not of its own notifications", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one, other := b.hub(), b.hub()
		one.Notify(7, 3)
		one.want("changed [7]")
		other.want("changed [7]", "appended 7 3")
		other.Notify(8, 1)
		one.want("changed [8]", "appended 8 1")
	})
	t.Run("even if the other hub's connection died in between", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one, other := b.hub(), b.hub()
		one.Notify(7, 3)
		other.want("changed [7]", "appended 7 3")
		if _, err := b.Owner(t).Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'arbe notify'"); err != nil {
			t.Fatal(err)
		}
		one.Notify(8, 1)
		other.want("changed [8]", "appended 8 1")
	})
	t.Run("even if the other hub closes at once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one, other := b.hub(), b.hub()
		one.End()
		one.Notify(7, 3)
		one.Close()
		other.want("changed [7]", "appended 7 3")
	})
	t.Run("that notifications may have been lost", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		h := b.hub()
		if _, err := b.Owner(t).Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'arbe listen'"); err != nil {
			t.Fatal(err)
		}
		h.want("lost")
	})
}
