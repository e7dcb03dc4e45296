package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// TestCloseLeavesNothing runs alone, so that all goroutines that are left are its own.
func TestCloseLeavesNothing(t *testing.T) {
	b := setup(t)
	ref := b.stream("s")
	var tails []*tail
	for range 10 {
		tails = append(tails, b.tail(b.log, ref, 0))
	}
	for _, w := range tails {
		w.caughtUp()
	}
	if err := b.log.Publish(t.Context(), ref, stream.Delta{EntryID: "x", Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	b.log.Close()
	for _, w := range tails {
		wantCode(t, w.end(), fault.Unavailable)
	}
	_, err := b.log.Append(t.Context(), ref, b.chat("", "late"))
	wantCode(t, err, fault.Unavailable)
	wantCode(t, b.tail(b.log, ref, 0).end(), fault.Unavailable)

	var stacks bytes.Buffer
	for deadline := time.Now().Add(patience); ; {
		stacks.Reset()
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
			t.Fatal(err)
		}
		running := func(pkg string) bool { return strings.Contains(stacks.String(), "internal/"+pkg+".") }
		if !slices.ContainsFunc([]string{"stream", "stream/commit", "stream/fanout", "stream/store"}, running) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("something still runs:\n%s", stacks.String())
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	b := setup(t)

	b.run(t, "replays from a position, says that it caught up once, and follows", func(t *testing.T, b *bench) {
		ref := b.stream("follow")
		b.say(ref, "a", "a")
		b.say(ref, "b", "b")
		w := b.tail(b.log, ref, 1)
		if ids := w.caughtUp(); !slices.Equal(ids, []string{"b"}) {
			t.Errorf("replayed %v, want b", ids)
		}
		b.say(ref, "c", "c")
		if ev := w.next(); ev.Entry == nil || ev.Entry.ID != "c" || ev.Seq != 3 {
			t.Errorf("got %+v, want entry c at 3", ev)
		}
		w.stop()
		if err := w.end(); err != nil {
			t.Errorf("a tail whose context ended gave %v, want just its end", err)
		}
	})

	b.run(t, "sees what another server wrote", func(t *testing.T, b *bench) {
		ref := b.stream("servers")
		w := b.tail(b.open(), ref, 0)
		w.caughtUp()
		for i := range 300 {
			b.say(ref, fmt.Sprint(i), "x")
		}
		for i := range 300 {
			if e := w.entry(); e.Seq != int64(i+1) || e.ID != fmt.Sprint(i) {
				t.Fatalf("got %s at %d, want %d", e.ID, e.Seq, i)
			}
		}
	})

	b.run(t, "the error for a position past the end names the position and the end", func(t *testing.T, b *bench) {
		ref := b.stream("short")
		b.say(ref, "a", "a")
		err := b.tail(b.log, ref, 7).end()
		wantCode(t, err, fault.OutOfRange)
		if !strings.Contains(err.Error(), "7") || !strings.Contains(err.Error(), "at 1") {
			t.Errorf("%q does not name both positions", err)
		}
		wantCode(t, b.tail(b.log, ref, -1).end(), fault.Invalid)
	})

	b.run(t, "a tail that is not read delays no other and misses nothing", func(t *testing.T, b *bench) {
		ref := b.stream("slow")
		slow, quick := b.tail(b.log, ref, 0), b.tail(b.log, ref, 0)
		slow.caughtUp()
		quick.caughtUp()
		// More than a topic keeps, so that the slow one must go back to the log.
		const n = 1000
		for i := range n {
			b.say(ref, fmt.Sprint(i), strings.Repeat("x", 1000))
			if e := quick.entry(); e.Seq != int64(i+1) {
				t.Fatalf("the quick one got %d, want %d", e.Seq, i+1)
			}
		}
		for i := range n {
			if e := slow.entry(); e.Seq != int64(i+1) {
				t.Fatalf("the slow one got %d, want %d", e.Seq, i+1)
			}
		}
	})

	b.run(t, "many entries that came at once are sent in order", func(t *testing.T, b *bench) {
		ref := b.stream("burst")
		w := b.tail(b.open(), ref, 0)
		w.caughtUp()
		const n = 3000
		owner := b.Owner(t)
		if _, err := owner.Exec(t.Context(), "select set_config('app.house_id', $1, false)", b.house); err != nil {
			t.Fatal(err)
		}
		if _, err := owner.Exec(t.Context(), `select count(*) from append_entries('burst',
			(select array_agg('id' || i) from generate_series(1, $1::int) i), array_fill(null::uuid, array[$1::int]),
			array_fill('chat'::text, array[$1::int]), array_fill('{"text":"x"}'::json, array[$1::int]))`, n); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if e := w.entry(); e.Seq != int64(i+1) {
				t.Fatalf("got %d, want %d", e.Seq, i+1)
			}
		}
	})
}

func TestTailOfADeletedStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.stream("s")
	b.say(ref, "old", "old")
	other := b.open()
	here, there := b.tail(b.log, ref, 0), b.tail(other, ref, 0)
	here.caughtUp()
	there.caughtUp()

	if _, err := b.Owner(t).Exec(t.Context(), "delete from streams where name = 's'"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, here.end(), fault.NotFound)
	wantCode(t, there.end(), fault.NotFound)
	wantCode(t, b.tail(b.log, ref, 0).end(), fault.NotFound)

	b.run(t, "a new log of the same name has none of its entries", func(t *testing.T, b *bench) {
		b.stream("s")
		w := b.tail(b.log, ref, 0)
		if ids := w.caughtUp(); len(ids) != 0 {
			t.Errorf("the new stream starts with %v", ids)
		}
		b.say(ref, "old", "new")
		if e := w.entry(); e.Seq != 1 || text(e) != "new" {
			t.Errorf("got %q at %d", text(e), e.Seq)
		}
	})
}

func TestADeletedStreamWithForksIsGone(t *testing.T) {
	t.Parallel()
	// delete_stream without its notification.
	const quietly = "update streams set deleted_at = now(), closed_at = now() where name = 's'"
	for name, how := range map[string]func(b *bench, ref stream.Ref){
		"when its notification comes": func(b *bench, ref stream.Ref) {
			if err := b.log.Delete(b.t.Context(), ref); err != nil {
				b.t.Fatal(err)
			}
		},
		"when its notification is lost": func(b *bench, _ stream.Ref) { execute(b, quietly) },
		"when the listening connection was down": func(b *bench, _ stream.Ref) {
			execute(b, quietly)
			execute(b, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'arbe listen'")
		},
		"when it was closed before": func(b *bench, _ stream.Ref) {
			execute(b, "alter table streams disable trigger notify_closed; update streams set closed_at = now() where name = 's';"+quietly)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ref, fork := b.stream("s"), stream.Ref{House: b.house, Name: "fork"}
			b.say(ref, "one", "1")
			nothing := func(string) ([]entry.Draft, error) { return nil, nil }
			if _, _, err := b.log.Create(t.Context(), fork, stream.CreateOptions{Fork: &stream.ForkPoint{Source: "s", Seq: -1}, Content: nothing}); err != nil {
				t.Fatal(err)
			}
			here, there := b.tail(b.log, ref, 0), b.tail(b.open(), ref, 0)
			here.caughtUp()
			there.caughtUp()
			how(b, ref)
			for _, w := range []*tail{here, there} {
				if err := w.end(); fault.CodeOf(err) != fault.NotFound {
					t.Errorf("a tail that follows it ends with %v", err)
				}
			}
			for door, ask := range map[string]func() error{
				"Tail":     func() error { return b.tail(b.log, ref, 0).end() },
				"Begin":    func() error { _, err := b.log.StartTail(t.Context(), stream.Stream{Ref: ref}, 0); return err },
				"Read":     func() error { _, _, err := b.log.Read(t.Context(), ref, stream.Range{}); return err },
				"Get":      func() error { _, err := b.log.Get(t.Context(), ref, "one"); return err },
				"Describe": func() error { _, err := b.log.Describe(t.Context(), ref); return err },
				"ReadFrom": func() error { _, err := b.log.ReadFrom(t.Context(), ref, 0, true, takeNothing); return err },
				"Append":   func() error { _, err := b.log.Append(t.Context(), ref, b.chat("", "x")); return err },
				"Write": func() error {
					_, err := b.log.Write(t.Context(), ref, stream.Write{ContentType: "application/json", Content: []entry.Draft{b.chat("", "x")}, Close: true})
					return err
				},
				"Publish": func() error { return b.log.Publish(t.Context(), ref, stream.Delta{EntryID: "x", Data: []byte("x")}) },
				"Delete":  func() error { return b.log.Delete(t.Context(), ref) },
			} {
				if err := ask(); fault.CodeOf(err) != fault.NotFound {
					t.Errorf("%s: %v", door, err)
				}
			}
			if entries, _, err := b.log.Read(t.Context(), fork, stream.Range{}); err != nil || len(entries) != 1 {
				t.Errorf("its fork has %d entries: %v", len(entries), err)
			}
		})
	}
}

func execute(b *bench, statement string) {
	b.t.Helper()
	if _, err := b.Owner(b.t).Exec(b.t.Context(), statement); err != nil {
		b.t.Fatal(err)
	}
}

func TestATailOfALogIgnoresALaterLogOfItsName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.stream("s")
	b.say(ref, "one", "1")
	s, err := b.log.Describe(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	running := b.tail(b.log, ref, 0)
	running.caughtUp()
	if err := b.log.Delete(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	wantCode(t, running.end(), fault.NotFound)
	b.stream("s")
	again := b.tail(b.log, ref, 0)
	again.caughtUp()
	_, err = b.log.StartTail(t.Context(), s, 0)
	wantCode(t, err, fault.NotFound)
}

func TestTailWithoutNotifications(t *testing.T) {
	t.Parallel()

	t.Run("an entry whose notification was lost is sent", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ref := b.stream("lost")
		w := b.tail(b.log, ref, 0)
		w.caughtUp()
		// As append_entries does, without its notification.
		if _, err := b.Owner(t).Exec(t.Context(), `insert into entries (stream_id, seq, house_id, id, type, payload, ts)
			select id, 1, house_id, 'quiet', 'chat', '{}', now() from streams where name = 'lost'`); err != nil {
			t.Fatal(err)
		}
		if e := w.entry(); e.ID != "quiet" {
			t.Errorf("got %s", e.ID)
		}
	})

	t.Run("entries written while the listening connection was down are sent", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ref := b.stream("down")
		elsewhere := b.open()
		w := b.tail(b.log, ref, 0)
		w.caughtUp()
		owner := b.Owner(t)
		for i := range 5 {
			if _, err := owner.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and application_name = 'arbe listen'`); err != nil {
				t.Fatal(err)
			}
			if _, err := elsewhere.Append(t.Context(), ref, b.chat(fmt.Sprint(i), "x")); err != nil {
				t.Fatal(err)
			}
			if e := w.entry(); e.ID != fmt.Sprint(i) {
				t.Errorf("got %s, want %d", e.ID, i)
			}
		}
	})

	t.Run("a log does not open without a database", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := stream.Open(ctx, b.DB, slog.New(slog.DiscardHandler)); err == nil {
			t.Error("it opened")
		}
	})
}
