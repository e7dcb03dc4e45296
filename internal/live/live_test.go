package live_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a house, and a server that keeps its picture.
type bench struct {
	*dbtest.Database
	log     *stream.Log
	threads *thread.Threads
	houses  *house.Houses
	bots    *bot.Bots
	boxes   *sandbox.Resolver
	live    *live.Pictures
	scope   db.Scope
	house   house.House
}

// noDriver is a driver that only has a name.
type noDriver struct{ sandbox.Driver }

func setup(t testing.TB) *bench {
	t.Helper()
	ctx, quiet := t.Context(), slog.New(slog.DiscardHandler)
	b := &bench{Database: dbtest.Reuse(t, 10)}
	var err error
	b.log, err = stream.Open(ctx, b.DB, quiet)
	must(t, err)
	t.Cleanup(b.log.Close)
	b.threads = thread.New(b.DB, b.log)
	b.boxes = sandbox.NewResolver(sandbox.Config{DB: b.DB, Log: b.log, Threads: b.threads, Drivers: map[string]sandbox.Driver{sandbox.DefaultDriver: noDriver{}}, Logger: quiet})
	b.bots = bot.New(b.DB, b.threads)
	b.houses = house.New(b.DB, b.log, b.threads, b.boxes, b.bots)
	b.live, err = live.Open(ctx, live.Config{DB: b.DB, Log: b.log, Threads: b.threads, Houses: b.houses, Bots: b.bots, Inboxes: inbox.New(b.DB), Boxes: b.boxes, Logger: quiet})
	must(t, err)
	t.Cleanup(b.live.Close)
	b.scope.Agent, err = b.houses.CreatePerson(ctx, "Ada")
	must(t, err)
	b.scope.House = b.newHouse(t, "Home").ID
	return b
}

func (b *bench) newHouse(t testing.TB, name string) house.House {
	t.Helper()
	h, err := b.houses.Create(t.Context(), b.scope.Agent, name)
	must(t, err)
	b.house = h
	return h
}

func (b *bench) thread(t testing.TB, d thread.Draft) thread.Thread {
	t.Helper()
	th, err := b.threads.Create(t.Context(), b.scope, d)
	must(t, err)
	return th
}

func (b *bench) say(t testing.TB, th thread.Thread, text string) {
	t.Helper()
	_, err := b.log.Append(t.Context(), th.Stream(), entry.NewDraft("", b.scope.Agent, entry.Chat{Text: text}))
	must(t, err)
}

// exec changes rows without row-level security, as any program with access to the database can.
func (b *bench) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	_, err := b.Owner(t).Exec(t.Context(), statement, args...)
	must(t, err)
}

// seen is what a watcher has received.
type seen struct {
	changes chan live.Change
	rows    map[live.Key]any
	// order is the order in which threads were last sent, sent the number of changes.
	order []string
	sent  int
	err   error
}

func (b *bench) watch(t testing.TB, want live.Want) *seen {
	t.Helper()
	s := &seen{changes: make(chan live.Change), rows: map[live.Key]any{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		defer close(s.changes)
		for c, err := range b.live.Watch(ctx, b.scope, want) {
			if err != nil {
				s.err = err
				return
			}
			select {
			case s.changes <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

// until receives changes until a condition is true.
func (s *seen) until(t testing.TB, what string, is func() bool) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for !is() {
		select {
		case c, ok := <-s.changes:
			if !ok {
				t.Fatalf("waiting until %s: the watch ended: %v", what, s.err)
			}
			s.take(c)
		case <-late:
			t.Fatalf("waiting until %s; it has %v", what, s.rows)
		}
	}
}

func (s *seen) take(c live.Change) {
	switch {
	case c.CaughtUp:
		s.rows[live.Key{Kind: "caught up"}] = true
		return
	case c.Row == nil:
		delete(s.rows, c.Key)
	default:
		s.rows[c.Key] = c.Row
	}
	s.sent++
	if c.Key.Kind == live.Thread {
		s.order = append(slices.DeleteFunc(s.order, func(id string) bool { return id == c.Key.ID }), c.Key.ID)
	}
}

func (s *seen) caughtUp(t testing.TB) {
	t.Helper()
	s.until(t, "everything is sent", func() bool { return s.rows[live.Key{Kind: "caught up"}] != nil })
}

func row[Row any](s *seen, kind live.Kind, id string) Row {
	r, _ := s.rows[live.Key{Kind: kind, ID: id}].(Row)
	return r
}

func TestAHouseIsWatched(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.thread(t, thread.Draft{Name: "first"})
	s := b.watch(t, live.Want{Threads: 10})

	t.Run("sends all rows first, in the order of the list", func(t *testing.T) {
		s.caughtUp(t)
		if want := []string{b.house.PrimaryThread, first.ID}; !slices.Equal(s.order, want) {
			t.Errorf("the threads are %q, want %q", s.order, want)
		}
		if h := row[*house.House](s, live.House, b.house.ID); h == nil || h.Name != "Home" {
			t.Errorf("the house is %v", h)
		}
		if r := row[*live.Rest](s, live.TheRest, ""); r == nil || r.More {
			t.Errorf("the rest is %v", r)
		}
	})
	t.Run("then a new thread", func(t *testing.T) {
		second := b.thread(t, thread.Draft{Name: "second"})
		s.until(t, "it is there", func() bool { return row[*thread.Thread](s, live.Thread, second.ID) != nil })
	})
	t.Run("then the first thread, whose log announced the house, moved to its place", func(t *testing.T) {
		s.until(t, "it is there", func() bool {
			th := row[*thread.Thread](s, live.Thread, b.house.PrimaryThread)
			return th.Tail == 1 && th.ActiveAt.Equal(th.LastActivity)
		})
	})
	t.Run("then a changed thread, and nothing else", func(t *testing.T) {
		before, name := s.sent, "renamed"
		_, err := b.threads.Update(t.Context(), b.scope, first.ID, thread.Change{Name: &name})
		must(t, err)
		s.until(t, "it has its name", func() bool { return row[*thread.Thread](s, live.Thread, first.ID).Name == name })
		if s.sent != before+1 {
			t.Errorf("%d changes were sent for one", s.sent-before)
		}
	})
	t.Run("then a thread in which something is said", func(t *testing.T) {
		b.say(t, first, "hello")
		s.until(t, "it has the entry and its place", func() bool {
			th := row[*thread.Thread](s, live.Thread, first.ID)
			return th.Tail == 1 && th.ActiveAt.Equal(th.LastActivity)
		})
	})
	t.Run("then a deleted thread", func(t *testing.T) {
		must(t, b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) error {
			_, err := b.threads.DeleteTx(t.Context(), tx, first.ID)
			return err
		}))
		s.until(t, "it is gone", func() bool { return row[*thread.Thread](s, live.Thread, first.ID) == nil })
	})
	t.Run("and a changed house", func(t *testing.T) {
		name := "Cottage"
		_, err := b.houses.Update(t.Context(), b.scope, house.Change{Name: &name})
		must(t, err)
		s.until(t, "it has its name", func() bool { return row[*house.House](s, live.House, b.house.ID).Name == name })
	})
}

func TestAWindowHasTheFirstThreads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var made []thread.Thread
	for i := range 5 {
		made = append(made, b.thread(t, thread.Draft{Name: fmt.Sprint(i)}))
	}
	s := b.watch(t, live.Want{Threads: 3})
	s.caughtUp(t)
	has := func(ids ...string) func() bool {
		return func() bool {
			n := 0
			for key := range s.rows {
				if key.Kind == live.Thread {
					n++
				}
			}
			for _, id := range ids {
				if row[*thread.Thread](s, live.Thread, id) == nil {
					return false
				}
			}
			return n == len(ids)
		}
	}
	primary := b.house.PrimaryThread // pinned when the house was made
	s.until(t, "it has the first three", has(primary, made[4].ID, made[3].ID))
	if r := row[*live.Rest](s, live.TheRest, ""); !r.More || r.After.ID != made[3].ID {
		t.Errorf("the rest begins after %v", r)
	}
	b.say(t, made[0], "to the top")
	s.until(t, "another thread is active", has(primary, made[0].ID, made[4].ID))
	b.exec(t, "delete from threads where id = $1", made[4].ID)
	s.until(t, "the next one has moved up", has(primary, made[0].ID, made[3].ID))
}

func TestAThreadIsWatchedWithWhatBelongsToIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	source := b.thread(t, thread.Draft{Name: "source"})
	b.say(t, source, "one")
	th, err := b.threads.Fork(t.Context(), b.scope, source.ID, thread.Fork{})
	must(t, err)
	for range 10 {
		b.thread(t, thread.Draft{})
	}
	s := b.watch(t, live.Want{IDs: []string{th.ID}})
	s.caughtUp(t)
	if row[*thread.Thread](s, live.Thread, th.ID) == nil || row[*thread.Thread](s, live.Thread, source.ID) == nil ||
		row[*sandbox.Environment](s, live.Environment, b.house.DefaultEnvironment) == nil {
		t.Fatalf("it has %v", s.rows)
	}

	t.Run("its sandbox", func(t *testing.T) {
		b.exec(t, "insert into sandboxes (id, house_id, environment_id, provider) values ('box1', $1, $2, 'local')", b.house.ID, b.house.DefaultEnvironment)
		b.exec(t, "update threads set sandbox_id = 'box1' where id = $1", th.ID)
		s.until(t, "it is there", func() bool { return row[*sandbox.Sandbox](s, live.Sandbox, "box1") != nil })
		b.exec(t, "update sandboxes set status = 'live' where id = 'box1'")
		s.until(t, "it is live", func() bool { return row[*sandbox.Sandbox](s, live.Sandbox, "box1").Status == "live" })
	})
	t.Run("its environment", func(t *testing.T) {
		b.exec(t, "update environments set name = 'other' where id = $1", b.house.DefaultEnvironment)
		s.until(t, "it is renamed", func() bool {
			return row[*sandbox.Environment](s, live.Environment, b.house.DefaultEnvironment).Name == "other"
		})
	})
	t.Run("its parent", func(t *testing.T) {
		parent := b.thread(t, thread.Draft{Name: "parent"})
		b.exec(t, "update threads set parent_thread_id = $1 where id = $2", parent.ID, th.ID)
		s.until(t, "it is there", func() bool { return row[*thread.Thread](s, live.Thread, parent.ID) != nil })
		b.exec(t, "update threads set name = 'renamed' where id = $1", parent.ID)
		s.until(t, "it is renamed", func() bool { return row[*thread.Thread](s, live.Thread, parent.ID).Name == "renamed" })
		b.exec(t, "update threads set parent_thread_id = null where id = $1", th.ID)
		s.until(t, "it is gone", func() bool { return row[*thread.Thread](s, live.Thread, parent.ID) == nil })
	})
	t.Run("its children, and the progress of their runs", func(t *testing.T) {
		child := b.thread(t, thread.Draft{ParentThread: th.ID})
		s.until(t, "it is there", func() bool { return row[*thread.Thread](s, live.Thread, child.ID) != nil })
		b.exec(t, "update threads set heartbeat_at = now(), run_doing = 'running bash', run_cost = 7 where id = $1", child.ID)
		s.until(t, "its progress is shown", func() bool {
			r := row[*thread.Thread](s, live.Thread, child.ID).Run
			return r.Doing == "running bash" && r.CostMicros == 7
		})
		b.exec(t, "delete from threads where id = $1", child.ID)
		s.until(t, "it is gone", func() bool { return row[*thread.Thread](s, live.Thread, child.ID) == nil })
	})
	t.Run("its forks, and its source", func(t *testing.T) {
		fork, err := b.threads.Fork(t.Context(), b.scope, th.ID, thread.Fork{})
		must(t, err)
		s.until(t, "the fork is there", func() bool { return row[*thread.Thread](s, live.Thread, fork.ID) != nil })
		b.exec(t, "delete from threads where id in ($1, $2)", source.ID, fork.ID)
		s.until(t, "both are gone", func() bool {
			return row[*thread.Thread](s, live.Thread, source.ID) == nil && row[*thread.Thread](s, live.Thread, fork.ID) == nil
		})
	})
	t.Run("and nothing of other threads", func(t *testing.T) {
		if len(s.rows) != 5 { // the house, the thread, its box and environment, and that it caught up
			t.Errorf("it has %v", s.rows)
		}
	})
	t.Run("a missing thread is not found", func(t *testing.T) {
		for _, id := range []string{"nonesuch", source.ID} {
			for _, err := range b.live.Watch(t.Context(), b.scope, live.Want{IDs: []string{th.ID, id}}) {
				if fault.CodeOf(err) != fault.NotFound {
					t.Errorf("%s: it says %v", id, err)
				}
			}
		}
	})
}

func TestMembersAreWatched(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.watch(t, live.Want{Members: true})
	s.caughtUp(t)
	if m := row[*house.Member](s, live.Member, b.scope.Agent); m == nil || m.Agent.Name != "Ada" {
		t.Fatalf("it has %v", s.rows)
	}
	bot, err := b.bots.Create(t.Context(), b.scope, bot.Draft{Name: "Pi"})
	must(t, err)
	s.until(t, "the bot is there", func() bool { return row[*house.Member](s, live.Member, bot.ID) != nil })
	b.exec(t, "delete from members where agent_id = $1", bot.ID)
	s.until(t, "the bot is gone", func() bool { return row[*house.Member](s, live.Member, bot.ID) == nil })
}

func TestBotsAreWatched(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.watch(t, live.Want{Bots: true})
	s.caughtUp(t)
	made, err := b.bots.Create(t.Context(), b.scope, bot.Draft{Handle: "helper", Instructions: "secret"})
	must(t, err)
	now := func() *bot.Bot { return row[*bot.Bot](s, live.Bot, made.ID) }
	s.until(t, "the bot is there", func() bool { return now() != nil && now().Instructions == "" && len(now().Policies) == 2 })
	_, err = b.bots.Edit(t.Context(), b.scope, made.ID, bot.Change{Name: new("The helper")})
	must(t, err)
	s.until(t, "it has its new name", func() bool { return now().Name == "The helper" })
	_, err = b.bots.EditPolicy(t.Context(), b.scope, made.Policies[0].ID, bot.PolicyChange{Enabled: new(false)})
	must(t, err)
	s.until(t, "its policy is off", func() bool { return !now().Policies[0].Enabled })
	must(t, b.houses.Remove(t.Context(), b.scope, made.ID, nil))
	s.until(t, "it is gone", func() bool { return now() == nil })
}

func TestAnotherHouseIsNotSeen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hers := b.scope
	other := b.newHouse(t, "Other")
	secret, err := b.threads.Create(t.Context(), db.Scope{House: other.ID, Agent: hers.Agent}, thread.Draft{Name: "secret"})
	must(t, err)
	for _, err := range b.live.Watch(t.Context(), hers, live.Want{IDs: []string{secret.ID}}) {
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("it says %v", err)
		}
	}
}

// The picture becomes correct even if notifications of changes are lost.
func TestLostNotificationsAreRepaired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(t, thread.Draft{Name: "before"})
	s := b.watch(t, live.Want{Threads: 10})
	s.caughtUp(t)
	b.exec(t, "alter table threads disable trigger notify_change")
	b.exec(t, "update threads set name = 'after' where id = $1", th.ID)
	b.exec(t, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'arbe live' and datname = current_database()")
	s.until(t, "it connects again and reads everything", func() bool { return row[*thread.Thread](s, live.Thread, th.ID).Name == "after" })
}

// A killed server may leave threads at their old place in the list. The next server moves them.
func TestUntouchedThreadsAreRepaired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(t, thread.Draft{})
	b.say(t, th, "one")
	active := func() bool {
		got, err := b.threads.Get(t.Context(), b.scope, th.ID)
		must(t, err)
		return got.Tail == 1 && got.ActiveAt.Equal(got.LastActivity)
	}
	waitFor(t, active)
	updated, err := b.threads.Get(t.Context(), b.scope, th.ID)
	must(t, err)
	if !updated.UpdatedAt.Equal(th.UpdatedAt) {
		t.Error("activity counts as a change of the thread")
	}
	b.exec(t, "update threads set active_at = '2000-01-01' where id = $1", th.ID)
	must(t, b.threads.RepairActivity(t.Context()))
	if !active() {
		t.Error("it is not at the place of its last entry")
	}
}

func TestAClosedServerEndsWatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.watch(t, live.Want{})
	s.caughtUp(t)
	b.live.Close()
	for c := range s.changes {
		t.Errorf("it sent %v", c)
	}
	if fault.CodeOf(s.err) != fault.Unavailable {
		t.Errorf("it ended with %v", s.err)
	}
}

func waitFor(t testing.TB, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
