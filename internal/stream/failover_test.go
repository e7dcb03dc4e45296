package stream_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// failOver simulates a failover to a database that lacks the last commits: the logs end at tail, and all connections of
// the server break.
func (b *bench) failOver(tail int64, refs ...stream.Ref) {
	b.t.Helper()
	owner := b.Owner(b.t)
	err := pgx.BeginFunc(b.t.Context(), owner, func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.t.Context(), "set local session_replication_role = replica"); err != nil { // no triggers
			return err
		}
		for _, ref := range refs {
			if _, err := tx.Exec(b.t.Context(), `delete from entries e using streams s
				where s.id = e.stream_id and s.house_id = $1 and s.name = $2 and e.seq > $3`, ref.House, ref.Name, tail); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := owner.Exec(b.t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and application_name like 'arbe%'`); err != nil {
		b.t.Fatal(err)
	}
}

func TestALogThatLostItsEndHasNoGap(t *testing.T) {
	t.Parallel()
	const before, after = 5, 3
	for name, write := range map[string]func(b *bench, refs []stream.Ref){
		"one after the other": func(b *bench, refs []stream.Ref) {
			for _, ref := range refs { // the first append finds a broken connection, the others remember the old tails
				b.say(ref, "one", "x")
				b.say(ref, "two", "x")
			}
		},
		"several entries at once": func(b *bench, refs []stream.Ref) {
			for _, ref := range refs {
				if _, err := b.log.Append(b.t.Context(), ref, b.chat("one", "x"), b.chat("two", "x")); err != nil {
					b.t.Fatal(err)
				}
			}
		},
		"all logs at once": func(b *bench, refs []stream.Ref) {
			var all sync.WaitGroup
			for _, ref := range refs {
				for _, id := range []string{"one", "two"} {
					all.Go(func() {
						if _, err := b.log.Append(b.t.Context(), ref, b.chat(id, "x")); err != nil {
							b.t.Error(fault.From(err).Detail())
						}
					})
				}
			}
			all.Wait()
		},
		"together with a refused append": func(b *bench, refs []stream.Ref) {
			var all sync.WaitGroup
			for _, ref := range refs {
				all.Go(func() {
					if _, err := b.log.Append(b.t.Context(), ref, entry.Draft{Type: "chat", Payload: []byte("{")}); fault.CodeOf(err) != fault.Invalid {
						b.t.Error(err)
					}
				})
				all.Go(func() { b.say(ref, "one", "x"); b.say(ref, "two", "x") })
			}
			all.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var refs []stream.Ref
			for i := range 8 {
				refs = append(refs, b.stream(fmt.Sprint("log ", i)))
				for n := range before {
					b.say(refs[i], fmt.Sprint("before ", n), "x")
				}
			}
			b.failOver(after, refs...)
			write(b, refs)
			for _, ref := range refs {
				b.wantGapless(ref, after+2)
			}
		})
	}
}

func TestATailOfALogThatLostItsEnd(t *testing.T) {
	t.Parallel()
	const before, after = 30, 20
	b := setup(t)
	ref := b.stream("log")
	large := strings.Repeat("x", 100<<10) // a page is a few of these
	for n := range before {
		b.say(ref, fmt.Sprint(n), large)
	}
	fast, slow := b.tail(b.log, ref, 0), b.tail(b.log, ref, 0)
	other := b.tail(b.open(), ref, 0) // on a server that writes nothing
	fast.caughtUp()
	other.caughtUp()
	slow.entry()

	b.failOver(after, ref)
	b.say(ref, "in place of a lost one", "x")

	b.run(t, "ends because its position is past the end, on every server", func(t *testing.T, b *bench) {
		for _, w := range []*tail{fast, other} {
			if err := w.end(); fault.CodeOf(err) != fault.OutOfRange {
				t.Errorf("it ended with %v", err)
			}
		}
	})
	b.run(t, "continues if it had not read that far", func(t *testing.T, b *bench) {
		for want := int64(2); want <= after; want++ {
			if e := slow.entry(); e.Seq != want {
				t.Fatalf("entry %d comes where %d should", e.Seq, want)
			}
		}
		if e := slow.entry(); e.Seq != after+1 || e.ID != "in place of a lost one" {
			t.Errorf("it is followed by %q at %d", e.ID, e.Seq)
		}
	})
}

func TestATailOfALogWithAHole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	told := make(chan time.Time, 1000)
	log, err := stream.Open(t.Context(), b.DB, slog.New(countWarnings{slog.DiscardHandler, told}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	ref := b.stream("log")
	b.say(ref, "first", "x")
	w := b.tail(log, ref, 0)
	w.caughtUp()
	_, err = b.Owner(t).Exec(t.Context(), `with far as (insert into entries (stream_id, seq, house_id, id, type, payload, ts)
		select id, 5, house_id, 'far', 'chat', '{}', now() from streams where name = 'log' returning stream_id) select pg_notify('arbe_stream', stream_id || ':5') from far`)
	if err != nil {
		t.Fatal(err)
	}
	const warnings = 6
	var first, last time.Time
	for i := range warnings {
		select {
		case last = <-told:
		case <-time.After(patience):
			t.Fatal("nothing is logged")
		}
		if i == 0 {
			first = last
		}
	}
	if took := last.Sub(first); took < 100*time.Millisecond {
		t.Errorf("it asked %d times within %s", warnings, took)
	}
	select {
	case e := <-w.events:
		t.Errorf("the tail sent %+v", e)
	default:
	}
}

// countWarnings sends the time of each warning.
type countWarnings struct {
	slog.Handler
	times chan time.Time
}

func (h countWarnings) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (h countWarnings) Handle(_ context.Context, r slog.Record) error {
	h.times <- r.Time
	return nil
}
