package stream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// make creates a log of JSON messages.
func (b *bench) make(name string, m stream.CreateOptions) stream.Stream {
	b.t.Helper()
	if m.ContentType == "" && m.Fork == nil {
		m.ContentType = "application/json"
	}
	if m.Content == nil {
		m.Content = func(string) ([]entry.Draft, error) { return nil, nil }
	}
	s, created, err := b.log.Create(b.t.Context(), stream.Ref{House: b.house, Name: name}, m)
	if err != nil || !created {
		b.t.Fatalf("making %s: created %t, %v", name, created, err)
	}
	return s
}

// count appends a range of numbers, one per append.
func (b *bench) count(ref stream.Ref, from, to int) {
	b.t.Helper()
	for i := from; i <= to; i++ {
		drafts, err := stream.Drafts("application/json", b.member, fmt.Append(nil, i))
		if err != nil {
			b.t.Fatal(err)
		}
		done, err := b.log.Write(b.t.Context(), ref, stream.Write{ContentType: "application/json", Content: drafts})
		if err != nil || done.Outcome != stream.Accepted {
			b.t.Fatalf("appending: %v, %v", done.Outcome, err)
		}
	}
}

// numbers returns the payloads in a range of a log.
func (b *bench) numbers(ref stream.Ref, r stream.Range) string {
	b.t.Helper()
	entries, _, err := b.log.Read(b.t.Context(), ref, r)
	if err != nil {
		b.t.Fatal(err)
	}
	return payloads(entries)
}

func payloads(entries []entry.Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, string(e.Payload))
	}
	return strings.Join(all, " ")
}

func TestForks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	source := b.make("source", stream.CreateOptions{})
	b.count(source.Ref, 1, 6)
	fork := b.make("fork", stream.CreateOptions{Fork: &stream.ForkPoint{Source: "source", Seq: 4}})
	b.count(fork.Ref, 50, 51) // at 5 and 6
	b.count(source.Ref, 7, 7)
	deep := b.make("deep", stream.CreateOptions{Fork: &stream.ForkPoint{Source: "fork", Seq: 2}})
	deeper := b.make("deeper", stream.CreateOptions{Fork: &stream.ForkPoint{Source: "fork", Seq: -1}})
	b.count(deeper.Ref, 70, 70)

	for _, c := range []struct {
		name string
		log  stream.Stream
		r    stream.Range
		want string
	}{
		{"the source continues without its forks", source, stream.Range{}, "1 2 3 4 5 6 7"},
		{"a fork has the source's entries up to a point, then its own", fork, stream.Range{}, "1 2 3 4 50 51"},
		{"a fork of what a fork inherited", deep, stream.Range{}, "1 2"},
		{"a fork of a fork", deeper, stream.Range{}, "1 2 3 4 50 51 70"},
		{"a page within what was inherited", deeper, stream.Range{After: 1, Limit: 2}, "2 3"},
		{"a page across all fork points", deeper, stream.Range{After: 3, Limit: 3}, "4 50 51"},
		{"a bounded page across a fork point", fork, stream.Range{After: 2, Before: 6}, "3 4 50"},
		{"the last page of all", deeper, stream.Range{Last: true, Limit: 3}, "50 51 70"},
		{"the last page across all fork points", deeper, stream.Range{Last: true, Before: 7, Limit: 4}, "3 4 50 51"},
		{"the last page within what was inherited", deeper, stream.Range{Last: true, Before: 4}, "1 2 3"},
		{"an empty range", fork, stream.Range{After: 3, Before: 4}, ""},
	} {
		b.run(t, c.name, func(t *testing.T, b *bench) {
			if got := b.numbers(c.log.Ref, c.r); got != c.want {
				t.Errorf("it holds %q, want %q", got, c.want)
			}
		})
	}
	b.run(t, "an inherited entry is found by its id, and a later one of the source is not", func(t *testing.T, b *bench) {
		all, _, err := b.log.Read(t.Context(), source.Ref, stream.Range{})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := b.log.Get(t.Context(), deeper.Ref, all[1].ID); err != nil || e.Seq != 2 {
			t.Errorf("the second is at %d (%v)", e.Seq, err)
		}
		_, err = b.log.Get(t.Context(), deeper.Ref, all[4].ID)
		wantCode(t, err, fault.NotFound)
	})
	b.run(t, "a tail sends what was inherited and what is appended, and nothing else of the source", func(t *testing.T, b *bench) {
		w := b.tail(b.log, deep.Ref, 0)
		if got := w.caughtUp(); len(got) != 2 {
			t.Fatalf("it sent %v", got)
		}
		b.count(source.Ref, 8, 8)
		b.count(deep.Ref, 90, 90)
		if e := w.entry(); string(e.Payload) != "90" || e.Seq != 3 {
			t.Errorf("it sent %s at %d", e.Payload, e.Seq)
		}
	})
	b.run(t, "a deleted source stays for its forks, and goes with the last one", func(t *testing.T, b *bench) {
		for _, ref := range []stream.Ref{source.Ref, fork.Ref, deep.Ref} {
			if err := b.log.Delete(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.log.Describe(t.Context(), source.Ref); !errors.Is(err, stream.ErrGone) {
			t.Errorf("the source is not gone: %v", err)
		}
		if got := b.numbers(deeper.Ref, stream.Range{}); got != "1 2 3 4 50 51 70" {
			t.Errorf("the last fork holds %q", got)
		}
		if err := b.log.Delete(t.Context(), deeper.Ref); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := b.Owner(t).QueryRow(t.Context(), "select (select count(*) from streams) + (select count(*) from entries)").Scan(&left); err != nil || left != 0 {
			t.Errorf("%d rows are left (%v)", left, err)
		}
	})
}

func TestAForkFindsInheritedEntriesByID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	source := b.stream("source")
	for _, id := range []string{"a", "b", "c", "d"} {
		b.say(source, id, "of the source")
	}
	fork := b.make("fork", stream.CreateOptions{Fork: &stream.ForkPoint{Source: "source", Seq: 3}}).Ref
	b.say(fork, "own", "of the fork")
	deep := b.make("deep", stream.CreateOptions{Fork: &stream.ForkPoint{Source: "fork", Seq: -1}}).Ref
	plain := b.stream("plain")

	appending := map[string]func(ref stream.Ref, drafts ...entry.Draft) ([]entry.Entry, error){
		"by itself": func(ref stream.Ref, drafts ...entry.Draft) ([]entry.Entry, error) {
			return b.log.Append(t.Context(), ref, drafts...)
		},
		"in a transaction": func(ref stream.Ref, drafts ...entry.Draft) (got []entry.Entry, err error) {
			err = b.DB.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) (err error) {
				got, err = b.log.AppendTx(t.Context(), tx, ref, drafts...)
				return err
			})
			return got, err
		},
	}
	for name, write := range appending {
		b.run(t, "an inherited id returns the inherited entry, "+name, func(t *testing.T, b *bench) {
			for want, id := range []string{"a", "b", "c", "own"} { // the third one is the fork's copy
				for _, ref := range []stream.Ref{fork, deep} {
					got, err := write(ref, b.chat(id, "again"))
					if err != nil || len(got) != 1 || got[0].Seq != int64(want+1) || text(got[0]) == "again" || got[0].StreamID != ref.Name {
						t.Errorf("%s in %s is %+v (%v)", id, ref.Name, got, err)
					}
				}
			}
		})
		b.run(t, "together with new ones, "+name, func(t *testing.T, b *bench) {
			ref := b.make("beside "+name, stream.CreateOptions{Fork: &stream.ForkPoint{Source: "fork", Seq: 4}}).Ref
			got, err := write(ref, b.chat("new", "one"), b.chat("a", "again"), b.chat("newer", "two"), b.chat("new", "again"), b.chat("own", "again"))
			if err != nil {
				t.Fatal(err)
			}
			var at []int64
			for _, e := range got {
				at = append(at, e.Seq)
			}
			if !slices.Equal(at, []int64{5, 1, 6, 5, 4}) || text(got[1]) != "of the source" {
				t.Errorf("they are at %v: %v", at, got)
			}
		})
	}
	b.run(t, "an id that the source used later is free", func(t *testing.T, b *bench) {
		if e := b.say(fork, "d", "of the fork too"); e.Seq != 5 || text(e) != "of the fork too" {
			t.Errorf("it is %+v", e)
		}
	})
	b.run(t, "among many appends at once, to forks and others, each is written once", func(t *testing.T, b *bench) {
		forks := []stream.Ref{fork, deep, plain}
		for i := range 4 {
			forks = append(forks, b.make(fmt.Sprint("crowd ", i), stream.CreateOptions{Fork: &stream.ForkPoint{Source: "deep", Seq: -1}}).Ref)
		}
		var work sync.WaitGroup
		for i := range 40 {
			for _, ref := range forks {
				work.Go(func() {
					for _, d := range []entry.Draft{b.chat("b", "again"), b.chat(fmt.Sprint("n", i%20), "new")} {
						if _, err := b.log.Append(t.Context(), ref, d); err != nil {
							t.Errorf("%s: %s", ref.Name, fault.From(err).Detail())
						}
					}
				})
			}
		}
		work.Wait()
		for _, ref := range forks {
			all, tail, err := b.log.Read(t.Context(), ref, stream.Range{})
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for i, e := range all {
				if e.Seq != int64(i+1) || seen[e.ID] || e.ID == "b" && ref != plain && (e.Seq != 2 || text(e) != "of the source") {
					t.Errorf("%s has %+v at %d", ref.Name, e, i)
				}
				seen[e.ID] = true
			}
			if int64(len(all)) != tail || len(all) < 21 {
				t.Errorf("%s has %d entries and ends at %d", ref.Name, len(all), tail)
			}
		}
	})
}

func TestAForkInATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	source := b.stream("source")
	b.say(source, "a", "one")
	b.say(source, "b", "two")
	ref := stream.Ref{House: b.house, Name: "fork"}
	fork := func(p stream.ForkPoint, end error) (seq int64, err error) {
		err = b.DB.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) (err error) {
			if seq, err = b.log.ForkTx(t.Context(), tx, ref, p); err != nil {
				return err
			}
			return end
		})
		return seq, err
	}
	b.run(t, "does not exist if the transaction fails", func(t *testing.T, b *bench) {
		failure := errors.New("later")
		if _, err := fork(stream.ForkPoint{Source: "source", Seq: 1}, failure); err != failure {
			t.Error(err)
		}
		_, err := b.log.Describe(t.Context(), ref)
		wantCode(t, err, fault.NotFound)
		if err := b.log.Delete(t.Context(), b.make("spare", stream.CreateOptions{Fork: &stream.ForkPoint{Source: "source", Seq: 2}}).Ref); err != nil {
			t.Error(err)
		}
	})
	b.run(t, "past the end or of a missing log is refused", func(t *testing.T, b *bench) {
		_, err := fork(stream.ForkPoint{Source: "source", Seq: 3}, nil)
		wantCode(t, err, fault.OutOfRange)
		_, err = fork(stream.ForkPoint{Source: "nothing", Seq: -1}, nil)
		wantCode(t, err, fault.NotFound)
	})
	b.run(t, "returns where it begins, and is created once", func(t *testing.T, b *bench) {
		if seq, err := fork(stream.ForkPoint{Source: "source", Seq: -1}, nil); err != nil || seq != 2 {
			t.Errorf("it begins at %d (%v)", seq, err)
		}
		_, err := fork(stream.ForkPoint{Source: "source", Seq: -1}, nil)
		wantCode(t, err, fault.Exists)
	})
}

func TestAForkOutlivesTheThreadItCameFrom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	thread := b.stream("arbe-thread-x")
	owner := b.Owner(t)
	if _, err := owner.Exec(t.Context(), "insert into threads (id, house_id, stream_id) values ('x', $1, $2)", b.house, thread.Name); err != nil {
		t.Fatal(err)
	}
	b.say(thread, "a", "one")
	b.say(thread, "b", "two")
	fork := b.make("fork", stream.CreateOptions{Fork: &stream.ForkPoint{Source: thread.Name, Seq: 1}})
	w := b.tail(b.log, thread, 2)
	w.caughtUp()
	if _, err := owner.Exec(t.Context(), "delete from threads where id = 'x'"); err != nil {
		t.Fatal(err)
	}
	b.run(t, "the fork is readable", func(t *testing.T, b *bench) {
		got, _, err := b.log.Read(t.Context(), fork.Ref, stream.Range{})
		if err != nil || len(got) != 1 || text(got[0]) != "one" {
			t.Errorf("it holds %v (%v)", got, err)
		}
	})
	b.run(t, "the thread's log is gone", func(t *testing.T, b *bench) {
		_, _, err := b.log.Read(t.Context(), thread, stream.Range{})
		wantCode(t, err, fault.NotFound)
		_, err = b.log.Get(t.Context(), thread, "a")
		wantCode(t, err, fault.NotFound)
		for _, l := range []*stream.Log{b.log, b.open()} { // one that wrote to it, and one that did not
			_, err = l.Append(t.Context(), thread, b.chat("c", "three"))
			wantCode(t, err, fault.NotFound)
		}
	})
	b.run(t, "tails of the thread end", func(t *testing.T, b *bench) { wantCode(t, w.end(), fault.NotFound) })
	b.run(t, "the house can be deleted with both", func(t *testing.T, b *bench) {
		if _, err := owner.Exec(t.Context(), "delete from houses where id = $1", b.house); err != nil {
			t.Error(err)
		}
	})
}

func TestClosedLogs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.make("closing", stream.CreateOptions{})
	b.count(s.Ref, 1, 2)
	here, there := b.tail(b.log, s.Ref, 0), b.tail(b.open(), s.Ref, 2)
	here.caughtUp()
	there.caughtUp()
	last, _ := stream.Drafts("application/json", b.member, []byte("3"))
	if _, err := b.log.Write(t.Context(), s.Ref, stream.Write{ContentType: "application/json", Content: last, Close: true}); err != nil {
		t.Fatal(err)
	}
	ends := func(t *testing.T, w *tail) {
		for {
			if ev := w.next(); ev.Closed {
				if ev.Seq != 3 {
					t.Errorf("it is closed at %d, want 3", ev.Seq)
				}
				break
			}
		}
		if err := w.end(); err != nil {
			t.Errorf("the tail ended with %v", err)
		}
	}
	t.Run("a tail sends the last entry, then the end", func(t *testing.T) {
		if e := here.entry(); string(e.Payload) != "3" {
			t.Errorf("it sent %s", e.Payload)
		}
		ends(t, here)
	})
	t.Run("so does one on another server", func(t *testing.T) { ends(t, there) })
	b.run(t, "and one that begins later", func(t *testing.T, b *bench) { ends(t, b.tail(b.log, s.Ref, 0)) })
	b.run(t, "it accepts no more entries", func(t *testing.T, b *bench) {
		_, err := b.log.Append(t.Context(), s.Ref, b.chat("", "late"))
		wantCode(t, err, fault.Precondition)
	})
}

func TestLogsThatLiveAsLongAsTheyAreUsed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hour := time.Hour
	s := b.make("kept", stream.CreateOptions{TTL: &hour})
	fixed := b.make("fixed", stream.CreateOptions{ExpiresAt: time.Now().Add(time.Hour)})
	owner := b.Owner(t)
	// ages moves its end closer.
	ages := func(by string) {
		if _, err := owner.Exec(t.Context(), "update streams set expires_at = expires_at - $1::interval", by); err != nil {
			t.Fatal(err)
		}
	}
	b.run(t, "a read prolongs a life that depends on use, and no other", func(t *testing.T, b *bench) {
		ages("30 minutes")
		for _, ref := range []stream.Ref{s.Ref, fixed.Ref} {
			if _, err := b.log.ReadFrom(t.Context(), ref, 0, true, takeNothing); err != nil {
				t.Fatal(err)
			}
		}
		deadline := time.Now().Add(patience)
		for {
			got, err := b.log.Describe(t.Context(), s.Ref)
			if err != nil {
				t.Fatal(err)
			}
			if time.Until(got.ExpiresAt) > 50*time.Minute {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("it still ends at %v", got.ExpiresAt)
			}
		}
		if got, err := b.log.Describe(t.Context(), fixed.Ref); err != nil || time.Until(got.ExpiresAt) > 35*time.Minute {
			t.Errorf("the other one ends at %v (%v)", got.ExpiresAt, err)
		}
	})
	b.run(t, "a use that cannot be recorded is recorded later", func(t *testing.T, b *bench) {
		warnings := make(chan time.Time, 1000)
		log, err := stream.Open(t.Context(), b.DB, slog.New(countWarnings{slog.DiscardHandler, warnings}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(log.Close)
		ages("30 minutes")
		may := func(change string) {
			if _, err := owner.Exec(t.Context(), change); err != nil {
				t.Fatal(err)
			}
		}
		may("revoke execute on function touch_streams from arbe_app")
		if _, err := log.Use(t.Context(), s.Ref); err != nil {
			t.Fatal(err)
		}
		select {
		case <-warnings:
		case <-time.After(patience):
			t.Error("nothing was logged of the failure")
		}
		may("grant execute on function touch_streams to arbe_app")
		for deadline := time.Now().Add(patience); ; {
			got, err := log.Describe(t.Context(), s.Ref)
			if err != nil {
				t.Fatal(err)
			}
			if time.Until(got.ExpiresAt) > 50*time.Minute {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("it still ends at %v", got.ExpiresAt)
			}
		}
	})
	b.run(t, "a followed log does not expire until nobody follows it any more", func(t *testing.T, b *bench) {
		ttl := 12 * time.Second // it outlives a server that gets no processor time for a while
		short := b.make("short", stream.CreateOptions{TTL: &ttl})
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		b.log.KeepInUse(ctx, short)
		for end := short.ExpiresAt.Add(2 * time.Second); ; {
			got, err := b.log.Describe(t.Context(), short.Ref)
			if err != nil {
				t.Fatalf("it expired: %v", err)
			}
			if got.ExpiresAt.After(end) {
				break
			}
		}
		leave()
		ages("6 seconds") // a use would still be recorded before its end
		for deadline := time.Now().Add(patience); ; {
			if _, err := b.log.Describe(t.Context(), short.Ref); fault.CodeOf(err) == fault.NotFound {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("it does not expire")
			}
		}
	})
	b.run(t, "an expired log is gone, and its name is free", func(t *testing.T, b *bench) {
		// An append does not count as a use, which might be recorded after the log has expired.
		if _, err := b.log.Append(t.Context(), s.Ref, entry.Draft{Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		ages("3 hours")
		_, err := b.log.Describe(t.Context(), s.Ref)
		wantCode(t, err, fault.NotFound)
		again := b.make("kept", stream.CreateOptions{})
		if again.ID == s.ID || again.Tail != 0 {
			t.Errorf("the new one is %+v", again)
		}
	})
	b.run(t, "expired logs are deleted", func(t *testing.T, b *bench) {
		if _, err := owner.Exec(t.Context(), "select delete_expired_streams(now())"); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := owner.QueryRow(t.Context(), "select count(*) from streams where id = $1", fixed.ID).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d are left (%v)", left, err)
		}
	})
}
