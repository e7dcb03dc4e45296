package house_test

import (
	"log/slog"
	"reflect"
	"testing"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// setup returns the houses of a database. drivers and unavailable are this server's sandbox drivers.
func setup(t *testing.T, d *dbtest.Database, drivers map[string]sandbox.Driver, unavailable map[string]error) *house.Houses {
	t.Helper()
	log, err := stream.Open(t.Context(), d.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(log.Close)
	threads := thread.New(d.DB, log)
	return house.New(d.DB, log, threads, sandbox.NewResolver(sandbox.Config{
		DB: d.DB, Log: log, Threads: threads, Drivers: drivers, Unavailable: unavailable, Logger: slog.New(slog.DiscardHandler),
	}), bot.New(d.DB, threads))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	d := dbtest.Reuse(t, 10)
	count := func(t *testing.T, table string) (n int) {
		t.Helper()
		must(t, d.Owner(t).QueryRow(t.Context(), "select count(*) from "+table).Scan(&n))
		return n
	}
	// A driver that is unavailable here must not prevent a new house.
	houses := setup(t, d, nil, map[string]error{sandbox.DefaultDriver: fault.New(fault.Unavailable, "no runtime", "install it")})
	ada, err := houses.CreatePerson(t.Context(), " Ada ")
	must(t, err)
	scope := db.Scope{Agent: ada}

	t.Run("a person is in no house at first", func(t *testing.T) {
		a, err := houses.Agent(t.Context(), scope, ada)
		if err != nil || a.Name != "Ada" || a.Kind != "human" || a.Runtime != "" {
			t.Errorf("it is %v: %v", a, err)
		}
		if list, err := houses.List(t.Context(), ada, "", db.Cursor{}, 10); err != nil || len(list) != 0 {
			t.Errorf("they are in %v: %v", list, err)
		}
	})
	t.Run("a house is whole, or not at all", func(t *testing.T) {
		if _, err := setup(t, d, nil, nil).Create(t.Context(), ada, "Nowhere"); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("without the driver of its environment: %v", err)
		}
		if _, err := houses.Create(t.Context(), uuid.NewString(), "Nobody's"); err == nil {
			t.Error("an owner who is nobody is taken")
		}
		for _, table := range []string{"houses", "members", "bots", "environments", "threads", "streams", "entries"} {
			if n := count(t, table); n != 0 {
				t.Errorf("%d %s are left", n, table)
			}
		}
		h, err := houses.Create(t.Context(), ada, "Home")
		must(t, err)
		if h.Name != "Home" || h.Role != "owner" || h.PrimaryThread == "" || h.DefaultEnvironment == "" {
			t.Errorf("it is %+v", h)
		}
		if list, err := houses.List(t.Context(), ada, "", db.Cursor{}, 10); err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], h) {
			t.Errorf("the list is %v: %v", list, err)
		}
	})
	t.Run("a person has a name", func(t *testing.T) {
		for _, name := range []string{"", " ", "a\nb"} {
			if _, err := houses.CreatePerson(t.Context(), name); fault.CodeOf(err) != fault.Invalid {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
	t.Run("a house does not exist for people who are not in it", func(t *testing.T) {
		if _, err := houses.Get(t.Context(), db.Scope{House: "none", Agent: ada}); fault.CodeOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
}
