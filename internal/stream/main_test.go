package stream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a database with one house, its member, and an open Log.
type bench struct {
	*dbtest.Database
	t      testing.TB
	log    *stream.Log
	house  string
	member string
}

func setup(t testing.TB) *bench {
	t.Helper()
	return newBench(t, dbtest.Reuse(t, 10))
}

// newBench creates the house and its member in a migrated database, and opens a Log.
func newBench(t testing.TB, d *dbtest.Database) *bench {
	t.Helper()
	b := &bench{Database: d, t: t}
	err := b.Owner(t).QueryRow(t.Context(), `
		with h as (insert into houses (name) values ('Home') returning id),
		     a as (insert into agents (kind, name) values ('human', 'Ada') returning id)
		insert into members (house_id, agent_id, role) select h.id, a.id, 'owner' from h, a returning house_id, agent_id::text`).
		Scan(&b.house, &b.member)
	if err != nil {
		t.Fatal(err)
	}
	b.log = b.open()
	return b
}

// run runs a subtest with a bench of its own on the same house.
func (b *bench) run(t *testing.T, name string, f func(t *testing.T, b *bench)) {
	t.Run(name, func(t *testing.T) {
		own := *b
		own.t = t
		f(t, &own)
	})
}

// open opens one more Log on the database, as another server would.
func (b *bench) open() *stream.Log {
	b.t.Helper()
	l, err := stream.Open(b.t.Context(), b.DB, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatalf("opening the log: %s", fault.From(err).Detail())
	}
	b.t.Cleanup(l.Close)
	return l
}

// proxied opens one more Log on the database, which reaches it through a proxy.
func (b *bench) proxied() (*stream.Log, *dbtest.Proxy) {
	b.t.Helper()
	proxy := dbtest.NewProxy(b.t, b.ServerURL)
	d, err := db.Open(b.t.Context(), proxy.URL, db.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(d.Close)
	l, err := stream.Open(b.t.Context(), d, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(l.Close)
	return l, proxy
}

// stream creates an empty log.
func (b *bench) stream(name string) stream.Ref {
	b.t.Helper()
	ref := stream.Ref{House: b.house, Name: name}
	b.in(func(tx pgx.Tx) error { return stream.CreateTx(b.t.Context(), tx, ref) })
	return ref
}

func (b *bench) in(f func(tx pgx.Tx) error) {
	b.t.Helper()
	if err := b.DB.In(b.t.Context(), db.Scope{House: b.house}, f); err != nil {
		b.t.Fatal(err)
	}
}

// say appends a chat message with this id and returns its entry.
func (b *bench) say(ref stream.Ref, id, text string) entry.Entry {
	b.t.Helper()
	got, err := b.log.Append(b.t.Context(), ref, b.chat(id, text))
	if err != nil {
		b.t.Fatalf("appending: %s", fault.From(err).Detail())
	}
	return got[0]
}

func (b *bench) chat(id, text string) entry.Draft {
	return entry.NewDraft(id, b.member, entry.Chat{Text: text})
}

// tail follows a log in the background. The result receives its events, and at the end its error.
func (b *bench) tail(l *stream.Log, ref stream.Ref, after int64) *tail {
	ctx, cancel := context.WithCancel(b.t.Context())
	w := &tail{t: b.t, stop: cancel, events: make(chan stream.Event), ended: make(chan error, 1)}
	go func() {
		defer close(w.events)
		for ev, err := range l.Tail(ctx, ref, after) {
			if err != nil {
				w.ended <- err
				return
			}
			select {
			case w.events <- ev:
			case <-ctx.Done():
				// The sequence must end by itself now.
			}
		}
		w.ended <- nil
	}()
	b.t.Cleanup(cancel)
	return w
}

type tail struct {
	t      testing.TB
	stop   context.CancelFunc
	events chan stream.Event
	ended  chan error
}

// patience is how long a test waits for an expected event.
const patience = 3 * time.Minute

func (w *tail) next() stream.Event {
	w.t.Helper()
	select {
	case ev, ok := <-w.events:
		if !ok {
			w.t.Fatalf("the tail ended: %v", <-w.ended)
		}
		return ev
	case <-time.After(patience):
		w.t.Fatal("the tail sent nothing")
	}
	panic("unreachable")
}

// entry skips to the next entry.
func (w *tail) entry() entry.Entry {
	w.t.Helper()
	for {
		if ev := w.next(); ev.Entry != nil {
			return *ev.Entry
		}
	}
}

// caughtUp skips to the end of the replay and returns the ids of the replayed entries.
func (w *tail) caughtUp() (ids []string) {
	w.t.Helper()
	for {
		switch ev := w.next(); {
		case ev.Entry != nil:
			ids = append(ids, ev.Entry.ID)
		case ev.CaughtUp:
			return ids
		}
	}
}

// end waits for the tail's end and returns its error.
func (w *tail) end() error {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-w.events:
			if !ok {
				return <-w.ended
			}
		case <-deadline:
			w.t.Fatal("the tail did not end")
		}
	}
}

func wantCode(t testing.TB, err error, want fault.Code) {
	t.Helper()
	if got := fault.CodeOf(err); got != want {
		t.Fatalf("got %q (%v), want %q", got, err, want)
	}
}

func text(e entry.Entry) string {
	var c entry.Chat
	if err := json.Unmarshal(e.Payload, &c); err != nil {
		return fmt.Sprintf("not a chat: %v", err)
	}
	return c.Text
}
