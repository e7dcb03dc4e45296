package stream_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
)

// listener is a follower that counts.
type listener struct {
	mu              sync.Mutex
	heard           map[stream.Ref]int
	closed, pending bool
}

func (f *listener) Committed(ref stream.Ref, _ int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard[ref]++
}

func (f *listener) Closing(pending bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.pending = true, pending
}

func (f *listener) of(ref stream.Ref) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard[ref]
}

// hears waits until the follower was called for a log more often than before.
func (f *listener) hears(t *testing.T, ref stream.Ref, before int) {
	t.Helper()
	for deadline := time.Now().Add(patience); f.of(ref) == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the Follower was not called")
		}
	}
}

func TestAFollowerHearsOfWhatItsServerCommits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	log, f := b.open(), &listener{heard: map[stream.Ref]int{}}
	log.Follow(f)
	chat := func(id string) entry.Draft {
		return entry.Draft{ID: id, Author: b.member, Type: "chat", Payload: payload}
	}
	inTx := func(t *testing.T, ref stream.Ref, id string, then func() error) error {
		t.Helper()
		return b.DB.In(t.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) error {
			if _, err := log.AppendTx(t.Context(), tx, ref, chat(id)); err != nil {
				return err
			}
			return then()
		})
	}
	ok := func() error { return nil }
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("however it is written", func(t *testing.T) {
		ref := b.stream("each way")
		_, err := log.Append(t.Context(), ref, chat("a"))
		must(t, err)
		f.hears(t, ref, 0)
		before := f.of(ref)
		_, err = log.Append(t.Context(), ref, chat("b"), chat("a"))
		must(t, err)
		f.hears(t, ref, before)
		before = f.of(ref)
		_, err = log.Write(t.Context(), ref, stream.Write{ContentType: "application/json", Producer: &stream.Producer{Name: "p"}, Content: []entry.Draft{chat("c")}})
		must(t, err)
		f.hears(t, ref, before)
		before = f.of(ref)
		must(t, inTx(t, ref, "d", ok))
		f.hears(t, ref, before)
	})
	t.Run("but not of commits of other servers or writes that were rolled back", func(t *testing.T) {
		others, undone, last := b.stream("others"), b.stream("undone"), b.stream("last")
		_, err := b.log.Append(t.Context(), others, chat("a"))
		must(t, err)
		if err := inTx(t, undone, "a", func() error { return errors.New("undo") }); err == nil {
			t.Fatal("it is not undone")
		}
		must(t, inTx(t, last, "a", ok))
		f.hears(t, last, 0)
		if n := f.of(others) + f.of(undone); n != 0 {
			t.Errorf("the follower was called %d times", n)
		}
	})
	t.Run("also when notifications are lost", func(t *testing.T) {
		ref, owner := b.stream("lost"), b.Owner(t)
		must(t, inTx(t, ref, "a", func() error {
			_, err := owner.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'arbe listen'")
			return err
		}))
		f.hears(t, ref, 0)
	})
	t.Run("until the log closes, and then of writes in doubt", func(t *testing.T) {
		ref := b.stream("in doubt")
		must(t, inTx(t, ref, "a", func() error {
			log.Close()
			return nil
		}))
		if f.hears(t, ref, 0); !f.closed || !f.pending {
			t.Errorf("closed is %t, pending %t", f.closed, f.pending)
		}
	})
}
