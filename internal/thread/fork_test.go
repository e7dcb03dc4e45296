package thread_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestFork(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("at an entry has the log up to it, with positions and ids, and then its own", func(t *testing.T) {
		source := b.talk(t, b.thread(t, thread.Draft{Name: "fix login"}), "one", "two", "three")
		fork := b.fork(t, source.ID, thread.Fork{At: 2})
		b.talk(t, fork, "mine")
		b.talk(t, source, "four")
		th, log := b.get(t, fork.ID)
		if got := isCode(log); got != "one two forked mine" || th.Tail != 4 || log[0].ID != "one" || log[3].Seq != 4 || log[3].StreamID != th.StreamID {
			t.Errorf("it says %q, and is %+v", got, th)
		}
		if _, log := b.get(t, source.ID); isCode(log) != "one two three four" {
			t.Errorf("its source says %q", isCode(log))
		}
		if th.Origin == nil || *th.Origin != (thread.Origin{Thread: source.ID, Seq: 2}) || !th.Inherited(2) || th.Inherited(3) || source.Inherited(1) {
			t.Errorf("it comes from %+v", th.Origin)
		}
	})
	t.Run("tells in its log who made it, and of what", func(t *testing.T) {
		source := b.talk(t, b.thread(t, thread.Draft{}), "one")
		fork, log := b.get(t, b.fork(t, source.ID, thread.Fork{}).ID)
		told, ok := entry.As[entry.Forked](log[1])
		if !ok || told != (entry.Forked{ThreadID: source.ID, Seq: 1}) || log[1].Author != b.scope.Agent {
			t.Errorf("it tells %+v", log[1])
		}
		if !fork.LastActivity.Equal(log[1].Time) || fork.LastActivity.Before(source.CreatedAt) {
			t.Errorf("it was last active at %v", fork.LastActivity)
		}
	})
	t.Run("is at the end, unless it says where", func(t *testing.T) {
		source := b.talk(t, b.thread(t, thread.Draft{}), "one", "two")
		if fork := b.fork(t, source.ID, thread.Fork{}); fork.Origin.Seq != 2 || fork.Tail != 3 {
			t.Errorf("it is at %+v, and ends at %d", fork.Origin, fork.Tail)
		}
		empty := b.fork(t, b.thread(t, thread.Draft{}).ID, thread.Fork{})
		if _, log := b.get(t, empty.ID); empty.Origin.Seq != 0 || isCode(log) != "forked" {
			t.Errorf("that of an empty thread is at %+v, and says %q", empty.Origin, isCode(log))
		}
	})
	t.Run("past the end, or of no thread, is refused, and leaves nothing", func(t *testing.T) {
		source := b.talk(t, b.thread(t, thread.Draft{}), "one")
		_, err := b.threads.Fork(t.Context(), b.scope, source.ID, thread.Fork{ID: "toofaroff", At: 2})
		wants(t, err, fault.OutOfRange, "the last entry is at 1")
		_, err = b.threads.Fork(t.Context(), b.scope, "nosuchthread", thread.Fork{ID: "toofaroff"})
		wants(t, err, fault.NotFound, "no such thread")
		if made := b.fork(t, source.ID, thread.Fork{ID: "toofaroff"}); made.Origin.Seq != 1 {
			t.Errorf("the id is not free: %+v", made)
		}
	})
	t.Run("starts as its source was made: its name, driver, recipe and tags, but neither pinned nor on its machine", func(t *testing.T) {
		var environment, box string
		must(t, b.Owner(t).QueryRow(t.Context(), `
			with e as (insert into environments (house_id, name) values ($1, 'recipe') returning id),
			     s as (insert into sandboxes (house_id, environment_id, provider) select $1, id, 'local' from e returning id)
			select e.id, s.id from e, s`, b.scope.House).Scan(&environment, &box))
		source := b.thread(t, thread.Draft{Name: "fix login", Agent: b.bot, Environment: environment, Tags: []string{"web"}, Pinned: true})
		must(t, b.set(t, source.ID, thread.Running))
		_, err := b.Owner(t).Exec(t.Context(), "update threads set sandbox_id = $1 where id = $2", box, source.ID)
		must(t, err)
		fork := b.fork(t, source.ID, thread.Fork{})
		if fork.Name != "Fork of fix login" || fork.Agent != b.bot || fork.Environment != environment || !slices.Equal(fork.Tags, []string{"web"}) ||
			fork.Status != thread.Idle || !fork.PinnedAt.IsZero() || fork.Sandbox != "" || fork.StreamID != thread.StreamName(fork.ID) {
			t.Errorf("it is %+v", fork)
		}
		closed := b.thread(t, thread.Draft{})
		_, err = b.threads.Update(t.Context(), b.scope, closed.ID, thread.Change{Status: new(thread.Closed)})
		must(t, err)
		if fork := b.fork(t, closed.ID, thread.Fork{}); fork.Status != thread.Open {
			t.Errorf("that of a closed chat is %s", fork.Status)
		}
	})
	t.Run("is named as one says, else after its source, in at most 200 characters", func(t *testing.T) {
		long := b.thread(t, thread.Draft{Name: strings.Repeat("ö", 200)})
		if fork := b.fork(t, long.ID, thread.Fork{}); !strings.HasPrefix(fork.Name, "Fork of öö") || len([]rune(fork.Name)) != 200 {
			t.Errorf("it is %q", fork.Name)
		}
		fork := b.fork(t, long.ID, thread.Fork{Name: " other "})
		if fork.Name != "other" {
			t.Errorf("it is %q", fork.Name)
		}
		if second := b.fork(t, b.fork(t, fork.ID, thread.Fork{}).ID, thread.Fork{}); second.Name != "Fork of other" {
			t.Errorf("the fork of a fork is %q", second.Name)
		}
		untitled := b.thread(t, thread.Draft{})
		if fork := b.fork(t, untitled.ID, thread.Fork{}); fork.Name != "Fork of "+untitled.ID {
			t.Errorf("it is %q", fork.Name)
		}
		_, err := b.threads.Fork(t.Context(), b.scope, long.ID, thread.Fork{Name: "two\nlines"})
		wants(t, err, fault.Invalid, "name")
	})
	t.Run("of a direct message is one too, of a child a root that its parent does not take along", func(t *testing.T) {
		message := b.thread(t, thread.Draft{ParentAgent: b.bot})
		if fork := b.fork(t, message.ID, thread.Fork{}); fork.ParentAgent != b.bot {
			t.Errorf("it is %+v", fork)
		}
		parent := b.thread(t, thread.Draft{})
		child := b.talk(t, b.thread(t, thread.Draft{ParentThread: parent.ID}), "one")
		fork := b.fork(t, child.ID, thread.Fork{})
		if fork.ParentThread != "" {
			t.Errorf("it is %+v", fork)
		}
		b.remove(t, parent.ID)
		if th, log := b.get(t, fork.ID); isCode(log) != "one forked" || th.Origin == nil || th.Origin.Thread != "" || th.Origin.Seq != 1 {
			t.Errorf("it says %q, and comes from %+v", isCode(log), th.Origin)
		}
	})
	t.Run("is a thread like others: with a status, a place in lists, and a tail", func(t *testing.T) {
		source := b.talk(t, b.thread(t, thread.Draft{Agent: b.bot, Tags: []string{"likeothers"}}), "one")
		fork := b.fork(t, source.ID, thread.Fork{})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		told := make(chan string, 10)
		go func() {
			defer close(told)
			for event, err := range b.log.Tail(ctx, fork.Stream(), 0) {
				if err != nil {
					return
				}
				if event.Entry != nil {
					told <- event.Entry.Type
				}
			}
		}()
		must(t, b.set(t, fork.ID, thread.Running))
		b.talk(t, source, "not the fork's")
		must(t, b.set(t, fork.ID, thread.Completed))
		for _, want := range []string{"chat", "signal.thread.forked", "signal.thread.status_changed", "signal.thread.status_changed"} {
			if got := <-told; got != want {
				t.Errorf("its tail tells %q, want %q", got, want)
			}
		}
		list := func(f thread.Filter) (ids []string) {
			f.Limit = 10
			all, err := b.threads.List(t.Context(), b.scope, f)
			must(t, err)
			for _, th := range all {
				ids = append(ids, th.ID)
			}
			return ids
		}
		if got := list(thread.Filter{Tag: "likeothers"}); !slices.Equal(got, []string{fork.ID, source.ID}) {
			t.Errorf("they are listed as %q, want the fork first: it was active last", got)
		}
		if got := list(thread.Filter{ForkedFrom: source.ID}); !slices.Equal(got, []string{fork.ID}) {
			t.Errorf("its forks are %q", got)
		}
		if got := list(thread.Filter{ForkedFrom: fork.ID}); len(got) != 0 {
			t.Errorf("the fork's forks are %q", got)
		}
	})
	t.Run("answers an id that it inherited with the entry that has it", func(t *testing.T) {
		source := b.talk(t, b.thread(t, thread.Draft{}), "one", "two", "three")
		fork := b.fork(t, source.ID, thread.Fork{})
		got, err := b.log.Append(t.Context(), fork.Stream(), entry.NewDraft("one", b.scope.Agent, entry.Chat{Text: "again"}))
		must(t, err)
		if got[0].Seq != 1 || isCode(got) != "one" {
			t.Errorf("it is %+v", got[0])
		}
		if _, log := b.get(t, fork.ID); isCode(log) != "one two three forked" {
			t.Errorf("it says %q", isCode(log))
		}
	})
}

func TestForkingAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	source := b.talk(t, b.thread(t, thread.Draft{}), "one", "two")

	t.Run("with its id returns the fork that is there, also when its source went on", func(t *testing.T) {
		first := b.fork(t, source.ID, thread.Fork{ID: "again000"})
		b.talk(t, source, "three")
		for _, at := range []int64{0, 2} {
			if again := b.fork(t, source.ID, thread.Fork{ID: "again000", At: at, Name: "other"}); again.Name != first.Name || again.Tail != first.Tail {
				t.Errorf("it is %+v", again)
			}
		}
		if got, err := b.threads.Create(t.Context(), b.scope, thread.Draft{ID: "again000"}); err != nil || got.Name != first.Name {
			t.Errorf("creating it returns %+v (%v)", got, err)
		}
	})
	t.Run("with an id that is another thread's is refused", func(t *testing.T) {
		other := b.thread(t, thread.Draft{ID: "other000"})
		for _, try := range []struct {
			source string
			fork   thread.Fork
		}{
			{source.ID, thread.Fork{ID: "again000", At: 1}},
			{other.ID, thread.Fork{ID: "again000"}},
			{source.ID, thread.Fork{ID: "other000"}},
		} {
			_, err := b.threads.Fork(t.Context(), b.scope, try.source, try.fork)
			wants(t, err, fault.Exists, "already used")
		}
	})
	t.Run("at the same time makes one", func(t *testing.T) {
		var work sync.WaitGroup
		ids := make([]string, 8)
		for i := range ids {
			work.Go(func() {
				fork, err := b.threads.Fork(t.Context(), b.scope, source.ID, thread.Fork{ID: "together0", At: 1})
				if ids[i] = fork.ID; err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if len(slices.Compact(ids)) != 1 {
			t.Errorf("they are %v", ids)
		}
		if _, log := b.get(t, ids[0]); isCode(log) != "one forked" {
			t.Errorf("it says %q", isCode(log))
		}
	})
	t.Run("with the id of a thread that was deleted, and has forks, is refused", func(t *testing.T) {
		gone := b.talk(t, b.thread(t, thread.Draft{ID: "gone0000"}), "one")
		b.fork(t, gone.ID, thread.Fork{})
		b.remove(t, gone.ID)
		_, err := b.threads.Fork(t.Context(), b.scope, source.ID, thread.Fork{ID: "gone0000"})
		wants(t, err, fault.Exists, "already used")
		_, err = b.threads.Create(t.Context(), b.scope, thread.Draft{ID: "gone0000"})
		wants(t, err, fault.Exists, "already used")
	})
}

// TestForksWhateverIsDeleted forks, writes and deletes at random. It compares every thread with its expected content,
// in every way of reading it.
func TestForksWhateverIsDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // logged, to repeat a run
	want := map[string][]string{}       // the expected content of each thread, by its id
	var living []string
	add := func(id string, says []string) {
		living = append(living, id)
		want[id] = says
	}
	write := func(id string) {
		for range r.IntN(4) {
			text := fmt.Sprintf("%s.%d", id, len(want[id])+1)
			b.talk(t, thread.Thread{StreamID: thread.StreamName(id)}, text)
			want[id] = append(want[id], text)
		}
	}
	add(b.thread(t, thread.Draft{}).ID, nil)
	for range 60 {
		id := living[r.IntN(len(living))]
		switch n := r.IntN(10); {
		case n < 4:
			write(id)
		case n < 8:
			at := r.IntN(len(want[id]) + 1)
			inherited := want[id][:at]
			if at == 0 {
				inherited = want[id]
			}
			fork := b.fork(t, id, thread.Fork{At: int64(at)})
			add(fork.ID, append(slices.Clone(inherited), "forked"))
			write(fork.ID)
		case len(living) > 1:
			b.remove(t, id)
			living = slices.DeleteFunc(living, func(l string) bool { return l == id })
		}
	}
	for _, id := range living {
		th, log := b.get(t, id)
		if got := isCode(log); got != strings.Join(want[id], " ") || th.Tail != int64(len(want[id])) {
			t.Fatalf("%s says %q, ends at %d, want %q", id, got, th.Tail, want[id])
		}
		for range 5 {
			after := r.IntN(len(want[id]) + 1)
			page, _, err := b.log.Read(t.Context(), th.Stream(), stream.Range{After: int64(after), Limit: 3, Last: r.IntN(2) == 0})
			must(t, err)
			for _, e := range page {
				if isCode([]entry.Entry{e}) != want[id][e.Seq-1] {
					t.Fatalf("%s says %q at %d, want %q", id, isCode([]entry.Entry{e}), e.Seq, want[id][e.Seq-1])
				}
			}
		}
		for event, err := range b.log.Tail(t.Context(), th.Stream(), 0) {
			must(t, err)
			if event.CaughtUp {
				if event.Seq != th.Tail {
					t.Fatalf("its tail has caught up at %d, want %d", event.Seq, th.Tail)
				}
				break
			}
			if got := isCode([]entry.Entry{*event.Entry}); got != want[id][event.Entry.Seq-1] {
				t.Fatalf("its tail says %q at %d, want %q", got, event.Entry.Seq, want[id][event.Entry.Seq-1])
			}
		}
	}
	for len(living) > 0 {
		i := r.IntN(len(living))
		b.remove(t, living[i])
		living = slices.Delete(living, i, i+1)
	}
	var left int
	must(t, b.Owner(t).QueryRow(t.Context(), "select (select count(*) from streams) + (select count(*) from entries)").Scan(&left))
	if left != 0 {
		t.Errorf("%d rows are left behind the last fork", left)
	}
}

func TestAHouseIsDeletedWithItsForks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	source := b.talk(t, b.thread(t, thread.Draft{}), "one", "two")
	fork := b.fork(t, source.ID, thread.Fork{At: 1})
	b.fork(t, fork.ID, thread.Fork{})
	b.fork(t, source.ID, thread.Fork{})
	b.remove(t, source.ID)
	_, err := b.Owner(t).Exec(t.Context(), "delete from houses where id = $1", b.scope.House)
	must(t, err)
	var left int
	must(t, b.Owner(t).QueryRow(t.Context(), "select (select count(*) from streams) + (select count(*) from entries) + (select count(*) from threads)").Scan(&left))
	if left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

// fork forks a thread.
func (b *bench) fork(t *testing.T, source string, f thread.Fork) thread.Thread {
	t.Helper()
	made, err := b.threads.Fork(t.Context(), b.scope, source, f)
	must(t, err)
	return made
}

// talk appends texts to a thread as chats, each with the text as its id, and returns the thread.
func (b *bench) talk(t *testing.T, th thread.Thread, texts ...string) thread.Thread {
	t.Helper()
	for _, text := range texts {
		_, err := b.log.Append(t.Context(), stream.Ref{House: b.scope.House, Name: th.StreamID}, entry.NewDraft(text, b.scope.Agent, entry.Chat{Text: text}))
		must(t, err)
	}
	return th
}

// remove deletes a thread.
func (b *bench) remove(t *testing.T, id string) {
	t.Helper()
	must(t, b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) error {
		_, err := b.threads.DeleteTx(t.Context(), tx, id)
		return err
	}))
}

// isCode returns a log as words: the texts of its chats, and "forked" for each fork entry.
func isCode(log []entry.Entry) string {
	var words []string
	for _, e := range log {
		if c, ok := entry.As[entry.Chat](e); ok {
			words = append(words, c.Text)
		} else if _, ok := entry.As[entry.Forked](e); ok {
			words = append(words, "forked")
		}
	}
	return strings.Join(words, " ")
}

// wants asserts that err is a fault with this code and text, and with a next step.
func wants(t *testing.T, err error, code fault.Code, says string) {
	t.Helper()
	if f := fault.From(err); err == nil || f.Code != code || !strings.Contains(f.Message, says) || f.Next == "" {
		t.Errorf("it is %v, want %s that says %q and a next step", err, code, says)
	}
}
