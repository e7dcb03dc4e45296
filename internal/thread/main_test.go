package thread_test

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a house with a person and a bot, and its threads.
type bench struct {
	*dbtest.Database
	threads *thread.Threads
	log     *stream.Log
	scope   db.Scope
	bot     string
}

func setup(t testing.TB) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10)}
	err := b.Owner(t).QueryRow(t.Context(), `
		with h as (insert into houses (name) values ('Home') returning id),
		     a as (insert into agents (kind, name) values ('human', 'Ada') returning id),
		     p as (insert into agents (kind, name, runtime) values ('bot', 'Pi', 'pi') returning id),
		     m as (insert into members (house_id, agent_id, role) select h.id, a.id, 'owner' from h, a union all select h.id, p.id, 'member' from h, p)
		select h.id, a.id::text, p.id::text from h, a, p`).Scan(&b.scope.House, &b.scope.Agent, &b.bot)
	must(t, err)
	b.log, err = stream.Open(t.Context(), b.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(b.log.Close)
	b.threads = thread.New(b.DB, b.log)
	return b
}

// thread makes a thread.
func (b *bench) thread(t *testing.T, d thread.Draft) thread.Thread {
	t.Helper()
	th, err := b.threads.Create(t.Context(), b.scope, d)
	must(t, err)
	return th
}

// get returns the current thread and its log.
func (b *bench) get(t *testing.T, id string) (thread.Thread, []entry.Entry) {
	t.Helper()
	th, err := b.threads.Get(t.Context(), b.scope, id)
	must(t, err)
	log, _, err := b.log.Read(t.Context(), th.Stream(), stream.Range{})
	must(t, err)
	return th, log
}

// set changes a thread's status as arbe itself does.
func (b *bench) set(t *testing.T, id string, to thread.Status) error {
	t.Helper()
	return b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) error {
		return b.threads.SetStatusTx(t.Context(), tx, id, to, b.bot, "because")
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}
