package push_test

import (
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/push"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a house of Ada and Bob, and a push service.
type bench struct {
	*dbtest.Database
	log      *stream.Log
	threads  *thread.Threads
	inboxes  *inbox.Inboxes
	owner    *pgx.Conn
	ada, bob db.Scope
	config   push.Config
	pusher   *push.Pusher
	service  *service

	mu  sync.Mutex
	now time.Time
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

// setup also makes tests faster: people are notified immediately.
func setup(t testing.TB) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10), service: newService(t), now: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)}
	var err error
	b.log, err = stream.Open(t.Context(), b.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(b.log.Close)
	b.threads, b.inboxes, b.owner = thread.New(b.DB, b.log), inbox.New(b.DB), b.Owner(t)
	var house string
	must(t, b.owner.QueryRow(t.Context(), "insert into houses (name) values ('Home') returning id").Scan(&house))
	for scope, name := range map[*db.Scope]string{&b.ada: "Ada Lovelace", &b.bob: "Bob"} {
		scope.House = house
		must(t, b.owner.QueryRow(t.Context(), "insert into agents (kind, name) values ('human', $1) returning id", name).Scan(&scope.Agent))
		b.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", house, scope.Agent)
	}
	at, err := url.Parse(b.service.URL)
	must(t, err)
	hosts, err := outbound.ParseHosts(at.Host)
	must(t, err)
	b.config = push.Config{
		DB: b.DB, Inboxes: b.inboxes, DeviceKey: []byte(strings.Repeat("k", 32)), VAPIDSeed: []byte(strings.Repeat("v", 32)), URL: "https://arbe.example.com",
		PrivateHosts: hosts, Logger: slog.New(slog.DiscardHandler), Now: b.time, Wait: time.Nanosecond,
	}
	b.pusher = b.newPusher(t)
	return b
}

func (b *bench) newPusher(t testing.TB) *push.Pusher {
	t.Helper()
	p, err := push.New(b.config)
	must(t, err)
	return p
}

func (b *bench) time() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) setTime(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
}

func (b *bench) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	_, err := b.owner.Exec(t.Context(), statement, args...)
	must(t, err)
}

// mention has Ada mention Bob in a new thread.
func (b *bench) mention(t testing.TB, name string) thread.Thread {
	t.Helper()
	th, err := b.threads.Create(t.Context(), b.ada, thread.Draft{Name: name})
	must(t, err)
	b.again(t, th)
	return th
}

// again has Ada mention Bob once more, and returns the position of the message.
func (b *bench) again(t testing.TB, th thread.Thread) int64 {
	t.Helper()
	got, err := b.log.Append(t.Context(), th.Stream(), entry.NewDraft("", b.ada.Agent, entry.Chat{Text: "@bob look"}))
	must(t, err)
	must(t, b.DB.In(t.Context(), db.Scope{House: th.House}, func(tx pgx.Tx) error {
		return b.inboxes.MentionTx(t.Context(), tx, th.ID, []string{b.bob.Agent}, got[0].Seq)
	}))
	return got[0].Seq
}

// device adds a device of Bob at the push service.
func (b *bench) device(t testing.TB) *device {
	t.Helper()
	d := b.service.newDevice(t)
	var err error
	d.id, err = b.pusher.Add(t.Context(), db.Scope{Agent: b.bob.Agent}, d.address, "Firefox on Linux", nil)
	must(t, err)
	return d
}

func (b *bench) sweep(t testing.TB) {
	t.Helper()
	must(t, b.pusher.Sweep(t.Context()))
}

// later lets the pause of a device or a mail pass.
func (b *bench) later(t testing.TB) {
	t.Helper()
	b.exec(t, "update push_devices set not_before = now()")
	b.exec(t, "update notification_settings set not_before = now()")
}
