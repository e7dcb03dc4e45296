package db_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
)

// hearer owns a listener, and reports the listener's calls one after another.
type hearer struct {
	t *testing.T
	*db.Listener
	owner *pgx.Conn
	proxy *dbtest.Proxy
	calls chan string
	// proofs receives the times of Proved, if a test reads them.
	proofs chan time.Time
	// ask, if not nil, is the query of a new connection.
	ask func(context.Context, *pgx.Conn) error
}

// hears returns a listener on two channels that reaches the database through a proxy. It does not run yet.
func hears(t *testing.T) *hearer {
	t.Helper()
	d := dbtest.New(t)
	h := &hearer{t: t, owner: d.Owner(t), proxy: dbtest.NewProxy(t, d.ServerURL), calls: make(chan string, 100), proofs: make(chan time.Time)}
	through, err := db.Open(t.Context(), h.proxy.URL, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	h.Listener = &db.Listener{
		DB: through, Name: "arbe test", Channels: []string{"one", "Two"},
		ConnectTimeout: time.Minute, ProveEvery: 50 * time.Millisecond, ProveTimeout: time.Minute,
		Notified: func(n *pgconn.Notification) { h.calls <- n.Channel + ": " + n.Payload },
		Connected: func(ask db.Ask) error {
			h.calls <- "connected"
			if h.ask == nil {
				return nil
			}
			return ask(h.ask)
		},
		Proved: func(began time.Time) {
			select {
			case h.proofs <- began:
			default:
			}
		},
		Broken: func(error) { h.calls <- "broken" },
	}
	return h
}

// run runs the listener until the test ends.
func (h *hearer) run() (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	h.t.Cleanup(stop)
	return stop
}

func (h *hearer) notify(channel, payload string) {
	h.t.Helper()
	if _, err := h.owner.Exec(h.t.Context(), "select pg_notify($1, $2)", channel, payload); err != nil {
		h.t.Fatal(err)
	}
}

// want waits for the next calls.
func (h *hearer) want(calls ...string) {
	h.t.Helper()
	var got []string
	for range calls {
		select {
		case call := <-h.calls:
			got = append(got, call)
		case <-time.After(2 * time.Minute):
			h.t.Fatalf("it calls %q, and then nothing; want %q", got, calls)
		}
	}
	if !slices.Equal(got, calls) {
		h.t.Fatalf("it calls %q, want %q", got, calls)
	}
}

func TestAListener(t *testing.T) {
	t.Parallel()
	t.Run("hears all channels, in order, from when it is connected", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		h.notify("one", "before")
		h.run()
		h.want("connected")
		h.notify("one", "a")
		h.notify("Two", "b")
		h.notify("two", "nobody's")
		h.notify("one", "c")
		h.want("one: a", "Two: b", "one: c")
	})
	t.Run("that connects before it runs misses nothing in between", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		if err := h.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.want("connected")
		h.notify("one", "a")
		h.run()
		h.want("one: a")
	})
	t.Run("is known by its name", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		h.run()
		h.want("connected")
		var n int
		if err := h.owner.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'arbe test'").Scan(&n); err != nil || n != 1 {
			t.Errorf("%d connections have it, %v", n, err)
		}
	})
	t.Run("says that it cannot connect: at once to who waits, else once", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		h.proxy.Shut(true)
		if err := h.Connect(t.Context()); err == nil {
			t.Error("it connects")
		}
		h.run()
		h.want("broken")
		h.proxy.Shut(false)
		h.want("connected")
		h.notify("one", "a")
		h.want("one: a")
	})
	t.Run("replaces a connection that is cut, each time", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		h.run()
		h.want("connected")
		for i := range 3 {
			h.proxy.Cut(h.Name)
			h.want("broken", "connected")
			h.notify("one", fmt.Sprint(i))
			h.want(fmt.Sprint("one: ", i))
		}
	})
	t.Run("says once that its connection broke, however long there is no other", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		h.run()
		h.want("connected")
		h.proxy.Shut(true)
		h.proxy.Cut(h.Name)
		h.want("broken")
		refused := h.proxy.Refused()
		for range 5 { // it tries again
			<-refused
		}
		h.proxy.Shut(false)
		h.want("connected")
	})
	t.Run("replaces a connection that is silent", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		h.ProveTimeout = 5 * time.Second // longer than the next connection takes to prove
		h.run()
		h.want("connected")
		h.proxy.Silence(t, h.Name)
		h.notify("one", "into the silence")
		h.want("broken", "connected")
		h.notify("one", "a")
		h.want("one: a")
	})
	t.Run("proves that it heard all that was committed before", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		h.run()
		h.want("connected")
		for i := range 20 {
			h.notify("one", fmt.Sprint(i))
			committed := time.Now()
			for began := range h.proofs {
				if began.After(committed) {
					break
				}
			}
			select {
			case call := <-h.calls:
				if call != fmt.Sprint("one: ", i) {
					t.Fatalf("it calls %q", call)
				}
			default:
				t.Fatal("it proves, and did not hear")
			}
		}
	})
	t.Run("hears what comes while its new connection asks, and the question is a proof", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		h.ProveEvery = time.Hour
		proved := make(chan time.Time, 1)
		h.Proved = func(began time.Time) { proved <- began }
		var asked time.Time
		h.ask = func(ctx context.Context, conn *pgx.Conn) error {
			asked = time.Now()
			if _, ok := ctx.Deadline(); !ok {
				t.Error("it has no end")
			}
			h.notify("one", "meanwhile")
			return conn.Ping(ctx)
		}
		h.run()
		h.want("connected", "one: meanwhile")
		if began := <-proved; began.After(asked) {
			t.Error("it proves what it did not ask for")
		}
	})
	t.Run("gives up a connection that does not answer a question, or on which its owner fails", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		h.ProveTimeout = time.Second
		fail := true
		h.ask = func(ctx context.Context, conn *pgx.Conn) error {
			if !fail {
				return nil
			}
			fail = false
			_, err := conn.Exec(ctx, "select pg_sleep(60)")
			return err
		}
		h.run()
		h.want("connected", "broken", "connected")
	})
	t.Run("that is stopped closes its connection, and calls nothing more", func(t *testing.T) {
		t.Parallel()
		h := hears(t)
		stop := h.run()
		h.want("connected")
		stop()
		h.notify("one", "late")
		for left := 1; left > 0; {
			if err := h.owner.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'arbe test'").Scan(&left); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case call := <-h.calls:
			t.Errorf("it calls %q", call)
		default:
		}
	})
}
