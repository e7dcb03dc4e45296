package stream_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

func TestGroupCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)

	b.run(t, "only the stream that a transaction has locked waits for it", func(t *testing.T, b *bench) {
		locked, free := b.stream("locked"), b.stream("free")
		for name, end := range map[string]error{"committed": nil, "rolled back": errUndo} {
			b.say(locked, "before "+name, "x")
			var waiting sync.WaitGroup
			err := b.DB.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) error {
				if _, err := b.log.AppendTx(t.Context(), tx, locked, b.chat("in "+name, "x")); err != nil {
					return err
				}
				waiting.Go(func() { b.say(locked, "after "+name, "x") })
				for i := range 20 {
					b.say(free, fmt.Sprint(name, i), "x")
				}
				return end
			})
			if !errors.Is(err, end) {
				t.Fatal(err)
			}
			waiting.Wait()
		}
		b.wantGapless(locked, 5)
	})

	b.run(t, "an invalid call fails alone", func(t *testing.T, b *bench) {
		refs := []stream.Ref{b.stream("good 1"), b.stream("good 2"), b.stream("good 3")}
		closed := b.stream("shut")
		b.say(refs[0], "there", "first")
		if _, err := b.Owner(t).Exec(t.Context(), "update streams set closed_at = now() where name = 'shut'"); err != nil {
			t.Fatal(err)
		}
		good := b.chat("", "good")
		var all sync.WaitGroup
		const each = 10
		release := b.holdUp()
		for range each {
			for _, ref := range refs {
				all.Go(func() {
					if _, err := b.log.Append(t.Context(), ref, good, good); err != nil {
						t.Errorf("a good call: %v", err)
					}
				})
			}
			all.Go(func() {
				if got, err := b.log.Append(t.Context(), refs[0], b.chat("there", "again")); err != nil || text(got[0]) != "first" {
					t.Errorf("an id that exists: %v, %v", got, err)
				}
			})
			for _, c := range []struct {
				ref   stream.Ref
				draft entry.Draft
				want  fault.Code
			}{
				{closed, good, fault.Precondition},
				{refs[0], entry.Draft{Author: "6f9619ff-8b86-d011-b42d-00c04fc964ff", Type: "chat", Payload: []byte(`{}`)}, fault.Forbidden},
				{refs[1], entry.Draft{Type: "chat", Payload: []byte(`{`)}, fault.Invalid},
				{refs[2], entry.Draft{ID: "a\x00b", Type: "chat", Payload: []byte(`{}`)}, fault.Invalid},
				{refs[2], entry.Draft{ID: longID(), Type: "chat", Payload: []byte(`{}`)}, fault.Internal},
			} {
				all.Go(func() {
					if _, err := b.log.Append(t.Context(), c.ref, good, c.draft); fault.CodeOf(err) != c.want {
						t.Errorf("%v, want %s", err, c.want)
					}
				})
			}
		}
		release()
		all.Wait()
		b.wantGapless(refs[0], 1+2*each)
		b.wantGapless(refs[1], 2*each)
		b.wantGapless(refs[2], 2*each)
	})

	b.run(t, "streams created, deleted and created again under one name are kept apart", func(t *testing.T, b *bench) {
		owner := b.Owner(t)
		for range 3 {
			ref := b.stream("phoenix")
			if e := b.say(ref, "same", "x"); e.Seq != 1 {
				t.Errorf("its first entry is at %d", e.Seq)
			}
			if e := b.say(ref, "next", "x"); e.Seq != 2 {
				t.Errorf("its second entry is at %d", e.Seq)
			}
			if _, err := owner.Exec(t.Context(), "delete from streams where name = 'phoenix'"); err != nil {
				t.Fatal(err)
			}
		}
		_, err := b.log.Append(t.Context(), stream.Ref{House: b.house, Name: "phoenix"}, b.chat("", "x"))
		wantCode(t, err, fault.NotFound)
		var left int
		if err := owner.QueryRow(t.Context(), "select count(*) from entries where id in ('same', 'next')").Scan(&left); err != nil || left != 0 {
			t.Errorf("%d entries are left without a stream, %v", left, err)
		}
	})

	b.run(t, "several servers and transactions write to the same streams", func(t *testing.T, b *bench) {
		refs := []stream.Ref{b.stream("shared 1"), b.stream("shared 2")}
		servers := []*stream.Log{b.log, b.open(), b.open()}
		const writers, each = 12, 30
		var all sync.WaitGroup
		for w := range writers {
			log := servers[w%len(servers)]
			all.Go(func() {
				for i := range each {
					for n, ref := range refs {
						d := b.chat(fmt.Sprint(w, i, n), "x")
						if i%5 > 1 {
							if _, err := log.Append(t.Context(), ref, d); err != nil {
								t.Errorf("append: %s", fault.From(err).Detail())
							}
							continue
						}
						end := []error{nil, errUndo}[i%5]
						err := b.DB.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) error {
							if _, err := log.AppendTx(t.Context(), tx, ref, d); err != nil {
								return err
							}
							return end
						})
						if !errors.Is(err, end) {
							t.Errorf("transaction: %s", fault.From(err).Detail())
						}
					}
				}
			})
		}
		all.Wait()
		for _, ref := range refs {
			b.wantGapless(ref, writers*each*4/5)
		}
	})

	b.run(t, "a batch whose connection is killed is still written, once", func(t *testing.T, b *bench) {
		owner := b.Owner(t)
		refs := []stream.Ref{b.stream("killed 1"), b.stream("killed 2")}
		const each = 20
		for range 3 {
			var all sync.WaitGroup
			release := b.holdUp()
			for range each {
				for _, ref := range refs {
					all.Go(func() {
						if _, err := b.log.Append(t.Context(), ref, b.chat("", "x")); err != nil {
							t.Errorf("append: %s", fault.From(err).Detail())
						}
					})
				}
			}
			if _, err := owner.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and application_name = 'arbe commit'`); err != nil {
				t.Fatal(err)
			}
			release()
			all.Wait()
		}
		for _, ref := range refs {
			b.wantGapless(ref, 3*each)
		}
	})

	b.run(t, "a caller who leaves stops waiting, and may come back", func(t *testing.T, b *bench) {
		ref := b.stream("left")
		release := b.holdUp()
		ctx, cancel := b.soon()
		_, err := b.log.Append(ctx, ref, b.chat("x", "x"))
		cancel()
		wantCode(t, err, fault.DeadlineExceeded)
		release()
		b.say(ref, "x", "x")
		b.wantGapless(ref, 1)
	})

	b.run(t, "a lone append does not wait for others", func(t *testing.T, b *bench) {
		ref := b.stream("lone")
		b.say(ref, "first", "x")
		alone, bare := time.Hour, time.Hour
		for range 100 { // the quickest of many, because others use the machine too
			start := time.Now()
			b.say(ref, "", "x")
			alone = min(alone, time.Since(start))
			start = time.Now()
			b.in(func(tx pgx.Tx) error {
				_, err := b.log.AppendTx(t.Context(), tx, ref, b.chat("", "x"))
				return err
			})
			bare = min(bare, time.Since(start))
		}
		if alone > 2*bare {
			t.Errorf("it took %s, and a bare transaction %s", alone, bare)
		}
	})
}

// holdUp makes all writes of entries wait until release is called; one is waiting already when it returns.
func (b *bench) holdUp() (release func()) {
	b.t.Helper()
	observer := b.Owner(b.t)
	lock, err := b.Owner(b.t).Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := lock.Exec(b.t.Context(), "lock table entries in exclusive mode"); err != nil {
		b.t.Fatal(err)
	}
	ref := b.stream(rand.Text())
	var first sync.WaitGroup
	first.Go(func() { b.say(ref, "", "held up") })
	for waits := false; !waits; {
		if err := observer.QueryRow(b.t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and application_name = 'arbe commit' and wait_event_type = 'Lock')`).Scan(&waits); err != nil {
			b.t.Fatal(err)
		}
	}
	return func() {
		b.t.Helper()
		if err := lock.Commit(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
		first.Wait()
	}
}

// soon returns a context that ends soon.
func (b *bench) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.t.Context(), 50*time.Millisecond)
}

// longID returns an id that is too long for an index.
func longID() string {
	id := ""
	for len(id) < 20_000 {
		id += rand.Text()
	}
	return id
}

// wantGapless checks that a log has so many entries, each at its position and none twice.
func (b *bench) wantGapless(ref stream.Ref, want int) {
	b.t.Helper()
	var ids []string
	for {
		page, tail, err := b.log.Read(b.t.Context(), ref, stream.Range{After: int64(len(ids)), Limit: 1000})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range page {
			if ids = append(ids, e.ID); e.Seq != int64(len(ids)) {
				b.t.Fatalf("%s: entry %d is at %d", ref.Name, len(ids), e.Seq)
			}
		}
		if int64(len(ids)) == tail {
			break
		}
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != want {
		b.t.Errorf("%s has %d entries, want %d", ref.Name, len(ids), want)
	}
}
