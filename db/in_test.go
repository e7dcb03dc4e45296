package db_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
)

// rename makes a change that shows whether a transaction was committed.
func rename(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if tag, err := tx.Exec(t.Context(), "update houses set name = 'renamed'"); err != nil || tag.RowsAffected() != 1 {
		t.Errorf("renaming the house: %d rows, %v", tag.RowsAffected(), err)
	}
}

func TestATransactionIsAllOrNothing(t *testing.T) {
	t.Parallel()
	failure := errors.New("f failed")
	for _, c := range []struct {
		name      string
		end       func() error
		committed bool
	}{
		{"it commits when f returns nil", func() error { return nil }, true},
		{"it rolls back when f fails, and says why", func() error { return failure }, false},
		{"it rolls back when f panics, and goes on panicking", func() error { panic(failure) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t)
			h := newHouse(t, d.Owner(t), "as it was")
			var err error
			func() {
				defer func() {
					if p := recover(); p != nil {
						err = p.(error)
					}
				}()
				err = d.DB.In(t.Context(), h.scope(), func(tx pgx.Tx) error {
					rename(t, tx)
					return c.end()
				})
			}()
			if c.committed != (err == nil) || !c.committed && err != failure {
				t.Errorf("In says %v", err)
			}
			got := column[string](t, d.Owner(t), "select name from houses")[0]
			if c.committed != (got == "renamed") {
				t.Errorf("the house is now %q", got)
			}
		})
	}
	t.Run("it says which constraint stopped the commit", func(t *testing.T) {
		t.Parallel()
		d := dbtest.New(t)
		h := newHouse(t, d.Owner(t), "as it was")
		err := d.DB.In(t.Context(), h.scope(), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "update houses set default_environment_id = 'nowhere'")
			return err
		})
		if !db.Violates(err, "houses_id_default_environment_id_fkey") {
			t.Errorf("In says %v", err)
		}
	})
}

func TestAScopeEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	h := newHouse(t, d.Owner(t), "ours")
	one, err := db.Open(t.Context(), d.ServerURL, db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	for range 2 {
		for scope, want := range map[db.Scope]int{h.scope(): 2, {House: h.id}: 2, {Agent: h.owner}: 0, {}: 0} {
			in(t, one, scope, func(tx pgx.Tx) {
				if n := column[int](t, tx, "select count(*) from threads")[0]; n != want {
					t.Errorf("%+v sees %d threads, want %d", scope, n, want)
				}
			})
		}
	}
	if n := column[int](t, one.Pool(), "select count(*) from houses")[0]; n != 0 {
		t.Errorf("outside a transaction %d houses are visible", n)
	}
}

func TestAScopeIsAnIDAndNoStatement(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	h := newHouse(t, d.Owner(t), "ours")
	for name, scope := range map[string]db.Scope{
		"a quote in the house":       {House: "x'; set local app.house_id = '" + h.id},
		"a quote in the agent":       {House: h.id, Agent: "x'; drop table threads; --"},
		"a backslash":                {House: `x\`},
		"a line break":               {House: h.id + "\n"},
		"a zero byte":                {House: h.id + "\x00"},
		"a house that is too long":   {House: strings.Repeat("x", 65)},
		"an agent that is no uuid":   {House: h.id, Agent: "alice"},
		"an agent with more behind":  {House: h.id, Agent: h.owner + "0"},
		"letters of other alphabets": {House: "дом"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := d.DB.In(t.Context(), scope, func(pgx.Tx) error {
				t.Error("f is called")
				return nil
			})
			wants(t, err, fault.NotFound)
		})
	}
}

func TestALostConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(ctx context.Context, tx pgx.Tx, owner *pgx.Conn) error{
		"when the back end is terminated by its own statement": func(ctx context.Context, tx pgx.Tx, _ *pgx.Conn) error {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		},
		"when it is gone before the next statement": func(ctx context.Context, tx pgx.Tx, owner *pgx.Conn) error {
			if err := terminate(ctx, tx, owner); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "select 1")
			return err
		},
		"when it is gone before the commit": terminate,
		"when f was idle for too long": func(ctx context.Context, tx pgx.Tx, _ *pgx.Conn) error {
			if _, err := tx.Exec(ctx, "set local idle_in_transaction_session_timeout = 1"); err != nil {
				return err
			}
			_, err := tx.Conn().WaitForNotification(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t)
			owner := d.Owner(t)
			h := newHouse(t, owner, "as it was")
			err := d.DB.In(t.Context(), h.scope(), func(tx pgx.Tx) error {
				rename(t, tx)
				return lose(t.Context(), tx, owner)
			})
			wants(t, err, fault.Unavailable)
			if got := column[string](t, owner, "select name from houses")[0]; got != "as it was" {
				t.Errorf("the house is %q", got)
			}
			// The pool recovers by itself.
			in(t, d.DB, h.scope(), func(tx pgx.Tx) { rename(t, tx) })
		})
	}
}

func TestACutConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	wire := newWire(t, d.ServerURL)
	through, err := db.Open(t.Context(), wire.url, db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	for name, lose := range map[string]func(tx pgx.Tx) error{
		"between two statements": func(tx pgx.Tx) error {
			wire.cut()
			_, err := tx.Exec(t.Context(), "select 1")
			return err
		},
		"in the middle of an answer": func(tx pgx.Tx) error {
			rows, err := tx.Query(t.Context(), "select repeat('x', 1000) from generate_series(1, 100000)")
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				wire.cut()
			}
			return rows.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := through.In(t.Context(), db.Scope{}, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "select 1"); err != nil {
					t.Fatalf("before the cut: %v", err)
				}
				return lose(tx)
			})
			wants(t, err, fault.Unavailable)
		})
	}
}

// wire is a connection to Postgres that can be cut without a message from Postgres.
type wire struct {
	url   string
	mu    sync.Mutex
	conns []net.Conn
}

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	postgres := u.Host
	u.Host = listener.Addr().String()
	w := &wire{url: u.String()}
	t.Cleanup(func() { listener.Close(); w.cut() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", postgres)
			if err != nil {
				near.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, near, far)
			w.mu.Unlock()
			// When one side ends, the other must end too.
			go func() { io.Copy(near, far); near.Close() }()
			go func() { io.Copy(far, near); far.Close() }()
		}
	}()
	return w
}

// cut ends every connection.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		conn.Close()
	}
	w.conns = nil
}

// terminate ends tx's backend from outside and waits until it is gone.
func terminate(ctx context.Context, tx pgx.Tx, owner *pgx.Conn) error {
	_, err := owner.Exec(ctx, "select pg_terminate_backend($1, 10000)", int(tx.Conn().PgConn().PID()))
	return err
}

func TestACallerWhoGaveUpIsNoOutage(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := d.DB.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		cancel()
		_, err := tx.Exec(ctx, "select 1")
		return err
	})
	if fault.CodeOf(err) != fault.Canceled {
		t.Errorf("In says %v", err)
	}
}

func TestATransactionThatIsNotAnsweredIsALostConnection(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	brief, err := db.Open(t.Context(), d.ServerURL, db.Options{TransactionTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(brief.Close)
	ask := func(ctx context.Context, statement string) error {
		return brief.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statement)
			return err
		})
	}
	if err := ask(t.Context(), "select pg_sleep(60)"); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("it says %v", err)
	}
	if err := ask(t.Context(), "select"); err != nil {
		t.Errorf("after it: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := ask(ctx, "select pg_sleep(60)"); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("to a caller who gave up it says %v", err)
	}
}
