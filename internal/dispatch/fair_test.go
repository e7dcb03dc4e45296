//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
)

// shelf is a driver whose commands do nothing until the test lets them end.
type shelf struct {
	sandbox.Driver // what dispatch does not use

	// ends says when a command ends; nil: when the test says so.
	ends func(line string) <-chan time.Time

	mu      sync.Mutex
	boxes   map[string]sandbox.Box
	running map[string]sandbox.Labels // by the command's line
	release map[string]chan struct{}
	began   []string
	most    map[string]int // by house and by thread: how many ran at once
	reaped  map[string]bool
	changed chan struct{} // closed and replaced when something begins or ends
}

func newShelf() *shelf {
	return &shelf{boxes: map[string]sandbox.Box{}, running: map[string]sandbox.Labels{}, release: map[string]chan struct{}{},
		most: map[string]int{}, reaped: map[string]bool{}, changed: make(chan struct{})}
}

func (s *shelf) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *shelf) Create(_ context.Context, spec sandbox.Spec) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[spec.ID] = sandbox.Box{Ref: spec.ID, ID: spec.ID, Labels: spec.Labels}
	return spec.ID, nil
}

func (s *shelf) Exec(ctx context.Context, ref string, cmd sandbox.Command) (sandbox.Result, error) {
	line := cmd.Argv[len(cmd.Argv)-1]
	s.mu.Lock()
	labels := s.boxes[ref].Labels
	s.running[line] = labels
	s.began = append(s.began, line)
	perHouse, perThread := 0, 0
	for _, other := range s.running {
		if other.House == labels.House {
			perHouse++
		}
		if other.Thread == labels.Thread {
			perThread++
		}
	}
	s.most[labels.House], s.most[labels.Thread] = max(s.most[labels.House], perHouse), max(s.most[labels.Thread], perThread)
	released := s.gate(line)
	s.notify()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.running, line)
		s.notify()
		s.mu.Unlock()
	}()
	var end <-chan time.Time
	if s.ends != nil {
		end = s.ends(line)
	}
	select {
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	case <-released:
	case <-end:
	}
	return sandbox.Result{}, nil
}

// gate is what a command waits at. The caller holds the lock.
func (s *shelf) gate(line string) chan struct{} {
	if s.release[line] == nil {
		s.release[line] = make(chan struct{})
	}
	return s.release[line]
}

// end lets commands end.
func (s *shelf) end(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range lines {
		close(s.gate(line))
	}
}

func (s *shelf) Probe(context.Context, string) (sandbox.Liveness, error) { return sandbox.Live, nil }
func (s *shelf) List(context.Context, sandbox.Labels) ([]sandbox.Box, error) {
	return nil, nil
}
func (s *shelf) Close(context.Context) error { return nil }
func (s *shelf) Destroy(_ context.Context, ref string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reaped[ref] = true
	s.notify()
	return nil
}

// until waits until the shelf is as the test wants it.
func (s *shelf) until(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		done, changed := is(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("%s: it does not come to that; %d run, %v began", what, len(s.running), s.began)
		}
	}
}

// order is the commands' lines as they began.
func (s *shelf) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.began)
}

// atOnce is how many commands of a house or a thread ran at once.
func (s *shelf) atOnce(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most[id]
}

// runs waits until this many commands run.
func (s *shelf) runs(t testing.TB, n int) {
	t.Helper()
	s.until(t, fmt.Sprintf("%d commands run", n), func() bool { return len(s.running) == n })
}

// hasBegun waits until a command has.
func (s *shelf) hasBegun(t testing.TB, line string) {
	t.Helper()
	s.until(t, line+" begins", func() bool { return slices.Contains(s.began, line) })
}

// onShelf is a bench with this many servers on one shelf, under limits. The servers look for work only when
// they are told of some.
func onShelf(t testing.TB, servers int, limits dispatch.Limits) (*bench, *shelf) {
	t.Helper()
	b, s := database(t), newShelf()
	b.driver = s
	b.tune = func(c *dispatch.Config) {
		c.Limits = limits
		c.Jobs.Tune = func(q *river.Config) { q.FetchPollInterval = time.Hour }
	}
	for range servers {
		b.server = b.serve()
	}
	return b, s
}

// another is the bench as the owner of another house sees it, who is another person.
func (b *bench) another() *bench {
	b.t.Helper()
	other := *b
	err := b.Owner(b.t).QueryRow(b.t.Context(), `
		with h as (insert into houses (name) values ('Another') returning id), a as (insert into agents (kind, name) values ('human', 'Bob') returning id)
		insert into members (house_id, agent_id, role) select h.id, a.id, 'owner' from h, a returning house_id, agent_id::text`).
		Scan(&other.scope.House, &other.scope.Agent)
	if err != nil {
		b.t.Fatal(err)
	}
	return &other
}

// askMany asks for commands name-0, name-1 and so on, one right after the other, and returns their lines, which
// are their ids as well.
func (b *bench) askMany(thread, name string, n int) (lines []string) {
	b.t.Helper()
	for i := range n {
		line := fmt.Sprintf("%s-%d", name, i)
		b.askFor(thread, line, entry.Command{Command: line})
		lines = append(lines, line)
	}
	return lines
}

func TestWorkIsFair(t *testing.T) {
	t.Parallel()
	const houses, threads, perThread = 5, 3, 12
	limits := dispatch.Limits{Commands: jobs.Limits{HouseRunning: 4, ThreadRunning: 2}}
	b, s := onShelf(t, 2, limits)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	s.ends = func(string) <-chan time.Time {
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
		house := b.another()
		for i := range threads {
			a := &asked{b: house, thread: house.thread(sandbox.Recipe{})}
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
				if _, err := a.b.dispatcher.Commands.Run(t.Context(), a.b.scope, a.thread, line, entry.Command{Command: line}); err != nil {
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
			if r := a.b.result(a.thread, line); r.Error != "" || r.ExitCode != 0 {
				t.Errorf("%s: %+v", line, r)
			}
			if n := a.b.results(a.thread, line); n != 1 {
				t.Errorf("%s has %d results", line, n)
			}
		}
		if n := s.atOnce(a.thread); n > limits.Commands.ThreadRunning {
			t.Errorf("%d commands of a thread ran at once", n)
		}
		if n := s.atOnce(a.b.scope.House); n > limits.Commands.HouseRunning {
			t.Errorf("%d commands of a house ran at once", n)
		}
	}
	if n := len(s.order()); n != total {
		t.Errorf("%d began, want each of %d once", n, total)
	}
}

func TestAGreedyHouse(t *testing.T) {
	t.Parallel()
	b, s := onShelf(t, 1, dispatch.Limits{Commands: jobs.Limits{HouseRunning: 1000, ThreadRunning: 1000}})
	greedy := b.askMany(b.thread(sandbox.Recipe{}), "greedy", 2*dispatch.CommandWorkers)
	s.runs(t, dispatch.CommandWorkers-dispatch.KeptFree)

	t.Run("leaves room for the first command of others", func(t *testing.T) {
		for i := range dispatch.KeptFree {
			other := b.another()
			line := fmt.Sprintf("first-%d", i)
			other.askMany(other.thread(sandbox.Recipe{}), line, 2)
			s.hasBegun(t, line+"-0")
		}
	})
	t.Run("gives its next place away", func(t *testing.T) {
		late := b.another()
		late.askMany(late.thread(sandbox.Recipe{}), "late", 1)
		s.end(greedy[0])
		s.hasBegun(t, "late-0")
		s.end(greedy[1:]...)
		s.until(t, "all begin", func() bool { return len(s.began) == len(greedy)+2*dispatch.KeptFree+1 })
	})
}

func TestThreadsOfAHouseTakeTurns(t *testing.T) {
	t.Parallel()
	b, s := onShelf(t, 1, dispatch.Limits{Commands: jobs.Limits{HouseRunning: 2, ThreadRunning: 2}})
	long := b.askMany(b.thread(sandbox.Recipe{}), "long", 20)
	s.runs(t, 2)
	b.askMany(b.thread(sandbox.Recipe{}), "short", 1)
	s.end(long[0])
	s.until(t, "the next one begins", func() bool { return len(s.began) == 3 })
	if next := s.order()[2]; next != "short-0" {
		t.Errorf("%s came next, want the other thread's", next)
	}
	s.end(append(long[1:], "short-0")...)
}

func TestACommandThatMustWait(t *testing.T) {
	t.Parallel()
	limits := dispatch.Limits{Commands: jobs.Limits{HouseRunning: 3, ThreadRunning: 2, HouseWaiting: 4, ThreadWaiting: 2}}
	b, s := onShelf(t, 1, limits)
	first, second, third := b.thread(sandbox.Recipe{}), b.thread(sandbox.Recipe{}), b.thread(sandbox.Recipe{})
	waiting := func(thread string) (list []entry.CommandWaiting) {
		for _, e := range b.entries(thread) {
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
		s.runs(t, 3)
	})
	t.Run("is refused when too many of its thread wait", func(t *testing.T) {
		before := len(b.entries(first))
		_, err := b.dispatcher.Commands.Run(t.Context(), b.scope, first, "more", entry.Command{Command: "more"})
		wantCode(t, err, fault.Exhausted)
		if len(b.entries(first)) != before {
			t.Error("the log has grown")
		}
	})
	t.Run("is refused when too many of its house wait", func(t *testing.T) {
		b.askMany(third, "third", 1)
		_, err := b.dispatcher.Commands.Run(t.Context(), b.scope, third, "more", entry.Command{Command: "more"})
		wantCode(t, err, fault.Exhausted)
		other := b.another()
		other.askMany(other.thread(sandbox.Recipe{}), "else", 1)
		s.hasBegun(t, "else-0")
	})
	t.Run("is the same one when it is asked for again", func(t *testing.T) {
		before := len(b.entries(first))
		b.askMany(first, "first", 4)
		if len(b.entries(first)) != before {
			t.Errorf("the log says %s", b.story(first))
		}
	})
	t.Run("is cancelled without a place of its own", func(t *testing.T) {
		b.cancel(second, "second-1")
		if r := b.result(second, "second-1"); !r.Cancelled {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("begins when another one ends", func(t *testing.T) {
		s.end(begin...)
		s.end("second-0", "third-0", "else-0")
		for _, id := range begin {
			b.result(first, id)
		}
		b.result(third, "third-0")
	})
}

func TestACommandThatNoServerHasRoomForSaysSo(t *testing.T) {
	t.Parallel()
	b, s := database(t), newShelf()
	b.driver = s
	b.tune = func(c *dispatch.Config) {
		c.Limits = dispatch.Limits{Commands: jobs.Limits{HouseRunning: 1000, ThreadRunning: 1000}}
		c.Jobs.SweepEvery = time.Second
	}
	b.server = b.serve()
	th := b.thread(sandbox.Recipe{})
	const room = dispatch.CommandWorkers - dispatch.KeptFree
	lines := b.askMany(th, "a", room+1)
	s.runs(t, room)
	if _, err := b.Owner(t).Exec(t.Context(), "update "+db.JobSchema+".river_job set created_at = created_at - interval '1 minute' where kind = 'run_command'"); err != nil {
		t.Fatal(err)
	}
	reported := 0
	b.follow(th, func(ev stream.Event) bool {
		if ev.Entry == nil {
			return false
		}
		if w, ok := entry.As[entry.CommandWaiting](*ev.Entry); ok {
			if reported++; w != (entry.CommandWaiting{CommandID: lines[room], For: entry.WaitServer}) {
				t.Errorf("it says %+v", w)
			}
			s.end(lines...)
		}
		return ev.Entry.ID == entry.ResultID(lines[room])
	})
	if reported != 1 {
		t.Errorf("it is reported %d times", reported)
	}
}

func TestACommandIsBegunWithoutLookingForIt(t *testing.T) {
	t.Parallel()
	b, s := onShelf(t, 2, dispatch.Limits{Commands: jobs.Limits{HouseRunning: 100, ThreadRunning: 100}})
	th := b.thread(sandbox.Recipe{})
	b.askMany(th, "warm", 1)
	s.hasBegun(t, "warm-0")
	for i := range 20 { // each within the pause of the library's notifications after the one before
		line := fmt.Sprintf("next-%d", i)
		b.askFor(th, line, entry.Command{Command: line})
		s.hasBegun(t, line)
	}
}

func TestMaintenanceIsNotBehindCommands(t *testing.T) {
	t.Parallel()
	done := make(chan struct{}, 1000)
	b, s := database(t), newShelf()
	b.driver = s
	b.tune = func(c *dispatch.Config) {
		c.Limits = dispatch.Limits{Commands: jobs.Limits{HouseRunning: 1000, ThreadRunning: 1000}}
		c.Jobs.Tasks = []jobs.Task{{Name: "tidy", Every: time.Second, Do: func(context.Context) error { done <- struct{}{}; return nil }}}
	}
	b.server = b.serve()
	b.askMany(b.thread(sandbox.Recipe{}), "long", 2*dispatch.CommandWorkers)
	s.runs(t, dispatch.CommandWorkers-dispatch.KeptFree)
	for range dispatch.KeptFree {
		other := b.another()
		other.askMany(other.thread(sandbox.Recipe{}), other.scope.House, 1)
	}
	s.runs(t, dispatch.CommandWorkers)
	for len(done) > 0 {
		<-done
	}
	<-done // a chore
	gone := b.thread(sandbox.Recipe{})
	if _, err := b.Owner(t).Exec(t.Context(), `
		with box as (insert into sandboxes (house_id, environment_id, provider, provider_ref, status) select house_id, id, 'local', 'box', 'live' from environments limit 1 returning id)
		update threads set sandbox_id = box.id from box where threads.id = $1`, gone); err != nil {
		t.Fatal(err)
	}
	if err := b.dispatcher.DeleteThread(t.Context(), b.scope, gone); err != nil {
		t.Fatal(detail(err))
	}
	s.until(t, "the box of a deleted thread is reaped", func() bool { return s.reaped["box"] })
}

func TestAPeriodicSweepIsAskedForOnceByAllServers(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newShelf()
	b.tune = func(c *dispatch.Config) { c.Jobs.SweepEvery = time.Second }
	for range 3 {
		b.serve()
	}
	owner := b.Owner(t)
	counted := func(where string) (n int) {
		if err := owner.QueryRow(t.Context(), "select count(*) from "+db.JobSchema+".river_job where kind = 'sweep_commands' and "+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(patience); counted("true") < 3+4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("they do not sweep")
		}
	}
	var least float64
	err := owner.QueryRow(t.Context(), `
		select coalesce(extract(epoch from min(gap)), 1) from (
		  select created_at - lag(created_at) over (order by id) as gap from `+db.JobSchema+`.river_job where kind = 'sweep_commands' and metadata ? 'periodic') g`).Scan(&least)
	if err != nil || least < 0.5 {
		t.Errorf("two periodic sweeps were asked for within %v s (%v)", least, err)
	}
}

// asHog makes this test program a server that takes all places of a house, and waits to be killed. Its value is
// the database's URL, house, agent and thread.
const asHog = "ARBE_TEST_AS_HOG"

func hog() {
	ctx := context.Background()
	given := strings.Split(os.Getenv(asHog), "\n")
	fail := func(err error) {
		if err != nil {
			fmt.Println(detail(err))
			os.Exit(1)
		}
	}
	d, err := db.Open(ctx, given[0], db.Options{})
	fail(err)
	s := newShelf()
	server, err := start(ctx, d, s, func(c *dispatch.Config) {
		c.Limits = dispatch.Limits{Commands: jobs.Limits{HouseRunning: 2, ThreadRunning: 2}}
	})
	fail(err)
	for _, id := range []string{"held-0", "held-1", "held-2"} {
		_, err = server.dispatcher.Commands.Run(ctx, db.Scope{House: given[1], Agent: given[2]}, given[3], id, entry.Command{Command: id})
		fail(err)
	}
	for {
		s.mu.Lock()
		n, changed := len(s.running), s.changed
		s.mu.Unlock()
		if n == 2 {
			break
		}
		<-changed
	}
	fmt.Println("begun")
	select {}
}

func TestAKilledServerGivesItsPlacesBack(t *testing.T) {
	t.Parallel()
	b, s := onShelf(t, 1, dispatch.Limits{Commands: jobs.Limits{HouseRunning: 2, ThreadRunning: 2}})
	th := b.thread(sandbox.Recipe{})
	if err := b.stop(t.Context()); err != nil { // what is begun is begun by the one that is killed
		t.Fatal(detail(err))
	}
	killed := exec.Command(os.Args[0])
	killed.Env = append(os.Environ(), asHog+"="+strings.Join([]string{b.ServerURL, b.scope.House, b.scope.Agent, th}, "\n"))
	out, err := killed.StdoutPipe()
	if err == nil {
		err = killed.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 100)
	n, _ := out.Read(said)
	killed.Process.Kill()
	killed.Wait()
	if string(said[:n]) != "begun\n" {
		t.Fatalf("it says %q", said[:n])
	}
	// A job that is no command, which it was at.
	if _, err := b.Owner(t).Exec(t.Context(), `
		with box as (insert into sandboxes (house_id, environment_id, provider, provider_ref, status) select house_id, id, 'local', 'box', 'live' from environments limit 1 returning id, house_id)
		insert into `+db.JobSchema+`.river_job (queue, kind, args, max_attempts, state, attempt, attempted_at, attempted_by)
		select 'reaps', 'reap_sandbox', jsonb_build_object('house', house_id, 'sandbox', id), 25, 'running', 1, now(), array['arbe-1'] from box`); err != nil {
		t.Fatal(err)
	}

	b.server = b.serve()
	for _, id := range []string{"held-0", "held-1"} {
		if r := b.result(th, id); r.ExitCode != -1 || !strings.Contains(r.Error, "the server stopped") {
			t.Errorf("%s: %+v", id, r)
		}
	}
	s.end("held-2")
	if r := b.result(th, "held-2"); r.Error != "" {
		t.Errorf("the one that waited: %+v", r)
	}
	if began := s.order(); !slices.Equal(began, []string{"held-2"}) {
		t.Errorf("%v ran again", began)
	}
	s.until(t, "the box is reaped", func() bool { return s.reaped["box"] })
}

// BenchmarkCommandAfterCommand is how long a command takes, from being asked for to its result, that comes right
// after another one, while commands of another house wait. Its box does nothing.
func BenchmarkCommandAfterCommand(b *testing.B) {
	for _, waiting := range []int{0, 1000} {
		b.Run(fmt.Sprintf("%d waiting", waiting), func(b *testing.B) {
			bench, s := onShelf(b, 1, dispatch.Limits{Commands: jobs.Limits{ThreadWaiting: 2 * waiting}})
			other := bench.another()
			long := other.askMany(other.thread(sandbox.Recipe{}), "long", waiting)
			th := bench.thread(sandbox.Recipe{})
			n := 0
			for b.Loop() {
				line := fmt.Sprintf("next-%d", n)
				n++
				s.end(line)
				bench.askFor(th, line, entry.Command{Command: line})
				bench.result(th, line)
			}
			b.StopTimer()
			s.end(long...)
		})
	}
}
