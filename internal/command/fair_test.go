//go:build linux

package command_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
)

// keptFree is the number of workers reserved for the first command of a house.
const keptFree = command.Workers / 8

// onGated returns a bench with this many servers on one driver, under limits. The servers look for work only when notified.
func onGated(t testing.TB, servers int, limits jobs.Limits) (*bench, *commandtest.Gated) {
	t.Helper()
	b, s := database(t), commandtest.NewGated()
	b.driver = s
	b.tune = func(c *config) {
		c.Limits = limits
		c.Queue.Tune = func(q *river.Config) { q.FetchPollInterval = time.Hour }
	}
	for range servers {
		b.use(b.serve())
	}
	return b, s
}

// askMany requests commands name-0, name-1 and so on, one right after another, and returns their lines, which are also their
// ids.
func (b *bench) askMany(thread, name string, n int) (lines []string) {
	b.t.Helper()
	for i := range n {
		line := fmt.Sprintf("%s-%d", name, i)
		b.AskFor(thread, line, entry.Command{Command: line})
		lines = append(lines, line)
	}
	return lines
}

func TestWorkIsFair(t *testing.T) {
	t.Parallel()
	const houses, threads, perThread = 5, 3, 12
	limits := jobs.Limits{HouseRunning: 4, ThreadRunning: 2}
	b, s := onGated(t, 2, limits)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	s.Ends = func(string) <-chan time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.After(time.Duration(random.IntN(15)) * time.Millisecond)
	}
	type asked struct {
		b        *bench
		thread   string
		commands []string
	}
	var all []*asked
	for h := range houses {
		house := b.in(t)
		for i := range threads {
			a := &asked{b: house, thread: house.Thread(sandbox.Recipe{})}
			for c := range 1 + random.IntN(perThread) {
				a.commands = append(a.commands, fmt.Sprintf("h%d-t%d-c%d", h, i, c))
			}
			all = append(all, a)
		}
	}
	var asking sync.WaitGroup
	for _, a := range all {
		asking.Go(func() {
			for _, line := range a.commands {
				if _, err := a.b.Commands.Run(t.Context(), a.b.Scope, a.thread, line, entry.Command{Command: line}); err != nil {
					t.Error(detail(err))
				}
			}
		})
	}
	asking.Wait()
	total := 0
	for _, a := range all {
		for _, line := range a.commands {
			total++
			if r := a.b.Result(a.thread, line); r.Error != "" || r.ExitCode != 0 {
				t.Errorf("%s: %+v", line, r)
			}
			if n := a.b.Results(a.thread, line); n != 1 {
				t.Errorf("%s has %d results", line, n)
			}
		}
		if n := s.AtOnce(a.thread); n > limits.ThreadRunning {
			t.Errorf("%d commands of a thread ran at once", n)
		}
		if n := s.AtOnce(a.b.Scope.House); n > limits.HouseRunning {
			t.Errorf("%d commands of a house ran at once", n)
		}
	}
	if n := len(s.Order()); n != total {
		t.Errorf("%d began, want each of %d once", n, total)
	}
}

func TestAGreedyHouse(t *testing.T) {
	t.Parallel()
	b, s := onGated(t, 1, jobs.Limits{HouseRunning: 1000, ThreadRunning: 1000})
	greedy := b.askMany(b.Thread(sandbox.Recipe{}), "greedy", 2*command.Workers)
	s.Run(t, (command.Workers - keptFree))

	t.Run("leaves room for the first command of others", func(t *testing.T) {
		for i := range keptFree {
			other := b.in(t)
			line := fmt.Sprintf("first-%d", i)
			other.askMany(other.Thread(sandbox.Recipe{}), line, 2)
			s.HasBegun(t, line+"-0")
		}
	})
	t.Run("lets another one run next", func(t *testing.T) {
		late := b.in(t)
		late.askMany(late.Thread(sandbox.Recipe{}), "late", 1)
		s.End(greedy[0])
		s.HasBegun(t, "late-0")
		s.End(greedy[1:]...)
		s.HaveBegun(t, len(greedy)+2*keptFree+1)
	})
}

func TestThreadsOfAHouseTakeTurns(t *testing.T) {
	t.Parallel()
	b, s := onGated(t, 1, jobs.Limits{HouseRunning: 2, ThreadRunning: 2})
	long := b.askMany(b.Thread(sandbox.Recipe{}), "long", 20)
	s.Run(t, 2)
	b.askMany(b.Thread(sandbox.Recipe{}), "short", 1)
	s.End(long[0])
	s.HaveBegun(t, 3)
	if next := s.Order()[2]; next != "short-0" {
		t.Errorf("%s came next, want the other thread's", next)
	}
	s.End(append(long[1:], "short-0")...)
}

func TestACommandThatMustWait(t *testing.T) {
	t.Parallel()
	limits := jobs.Limits{HouseRunning: 3, ThreadRunning: 2, HouseWaiting: 4, ThreadWaiting: 2}
	b, s := onGated(t, 1, limits)
	first, second, third := b.Thread(sandbox.Recipe{}), b.Thread(sandbox.Recipe{}), b.Thread(sandbox.Recipe{})
	waiting := func(thread string) (list []entry.CommandWaiting) {
		for _, e := range b.Entries(thread) {
			if w, ok := entry.As[entry.CommandWaiting](e); ok {
				list = append(list, w)
			}
		}
		return list
	}
	begin := b.askMany(first, "first", 4)

	t.Run("says what it waits for", func(t *testing.T) {
		want := []entry.CommandWaiting{{CommandID: "first-2", For: entry.WaitThread, Limit: 2}, {CommandID: "first-3", For: entry.WaitThread, Limit: 2}}
		if got := waiting(first); !slices.Equal(got, want) {
			t.Errorf("the log says %+v", got)
		}
		b.askMany(second, "second", 2)
		want = []entry.CommandWaiting{{CommandID: "second-1", For: entry.WaitHouse, Limit: 3}}
		if got := waiting(second); !slices.Equal(got, want) {
			t.Errorf("the log of the other thread says %+v", got)
		}
		s.Run(t, 3)
	})
	t.Run("is refused when too many of its thread wait", func(t *testing.T) {
		before := len(b.Entries(first))
		_, err := b.Commands.Run(t.Context(), b.Scope, first, "more", entry.Command{Command: "more"})
		wantCode(t, err, fault.Exhausted)
		if len(b.Entries(first)) != before {
			t.Error("the log has grown")
		}
	})
	t.Run("is refused when too many of its house wait", func(t *testing.T) {
		b.askMany(third, "third", 1)
		_, err := b.Commands.Run(t.Context(), b.Scope, third, "more", entry.Command{Command: "more"})
		wantCode(t, err, fault.Exhausted)
		other := b.in(t)
		other.askMany(other.Thread(sandbox.Recipe{}), "else", 1)
		s.HasBegun(t, "else-0")
	})
	t.Run("is the same one when it is asked for again", func(t *testing.T) {
		before := len(b.Entries(first))
		b.askMany(first, "first", 4)
		if len(b.Entries(first)) != before {
			t.Errorf("the log says %s", b.Story(first))
		}
	})
	t.Run("is cancelled without a free worker", func(t *testing.T) {
		b.Cancel(second, "second-1")
		if r := b.Result(second, "second-1"); !r.Cancelled {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("begins when another one ends", func(t *testing.T) {
		s.End(begin...)
		s.End("second-0", "third-0", "else-0")
		for _, id := range begin {
			b.Result(first, id)
		}
		b.Result(third, "third-0")
	})
}

func TestACommandThatNoServerHasRoomForSaysSo(t *testing.T) {
	t.Parallel()
	b, s := database(t), commandtest.NewGated()
	b.driver = s
	b.tune = func(c *config) {
		c.Limits = jobs.Limits{HouseRunning: 1000, ThreadRunning: 1000}
		c.Queue.SweepEvery = time.Hour // so that no sweep comes while the others still begin
	}
	b.use(b.serve())
	th := b.Thread(sandbox.Recipe{})
	const room = command.Workers - keptFree
	lines := b.askMany(th, "a", room+1)
	s.Run(t, room)
	for _, do := range []string{
		"update " + db.JobSchema + ".river_job set scheduled_at = now() - interval '1 minute' where kind = 'run_command' and state = 'available'",
		"insert into " + db.JobSchema + ".river_job (queue, kind, args, max_attempts) values ('maintenance', 'sweep_commands', '{}', 1)",
	} {
		if _, err := b.Owner(t).Exec(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	reported := 0
	b.Follow(th, func(ev stream.Event) bool {
		if ev.Entry == nil {
			return false
		}
		if w, ok := entry.As[entry.CommandWaiting](*ev.Entry); ok {
			if reported++; w != (entry.CommandWaiting{CommandID: lines[room], For: entry.WaitServer}) {
				t.Errorf("it says %+v", w)
			}
			s.End(lines...)
		}
		return ev.Entry.ID == entry.ResultID(lines[room])
	})
	if reported != 1 {
		t.Errorf("it is reported %d times", reported)
	}
}

func TestACommandIsBegunWithoutLookingForIt(t *testing.T) {
	t.Parallel()
	b, s := onGated(t, 2, jobs.Limits{HouseRunning: 100, ThreadRunning: 100})
	th := b.Thread(sandbox.Recipe{})
	b.askMany(th, "warm", 1)
	s.HasBegun(t, "warm-0")
	for i := range 20 { // each within the pause of the library's notifications after the one before
		line := fmt.Sprintf("next-%d", i)
		b.AskFor(th, line, entry.Command{Command: line})
		s.HasBegun(t, line)
	}
}
