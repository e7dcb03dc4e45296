//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// gated is a driver whose commands end when the test says so.
type gated = commandtest.Gated

func newGated() *gated { return commandtest.NewGated() }

// onGated returns a bench with this many servers on one gated driver, under limits. The servers look for work only when
// notified.
func onGated(t testing.TB, servers int, limits dispatch.Limits) (*bench, *gated) {
	t.Helper()
	b, s := database(t), newGated()
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

// another returns the bench as seen by another person, who owns another house.
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

// askMany requests commands name-0, name-1 and so on, one right after another, and returns their lines, which are also their
// ids.
func (b *bench) askMany(thread, name string, n int) (lines []string) {
	b.t.Helper()
	for i := range n {
		line := fmt.Sprintf("%s-%d", name, i)
		b.askFor(thread, line, entry.Command{Command: line})
		lines = append(lines, line)
	}
	return lines
}

func TestMaintenanceIsNotBehindCommands(t *testing.T) {
	t.Parallel()
	done := make(chan struct{}, 1000)
	b, s := database(t), newGated()
	b.driver = s
	b.tune = func(c *dispatch.Config) {
		c.Limits = dispatch.Limits{Commands: jobs.Limits{HouseRunning: 1000, ThreadRunning: 1000}}
		c.Jobs.Tasks = []jobs.Task{{Name: "tidy", Every: time.Second, Do: func(context.Context) error { done <- struct{}{}; return nil }}}
	}
	b.server = b.serve()
	b.askMany(b.thread(sandbox.Recipe{}), "long", 2*dispatch.CommandWorkers)
	s.Run(t, dispatch.CommandWorkers-dispatch.KeptFree)
	for range dispatch.KeptFree {
		other := b.another()
		other.askMany(other.thread(sandbox.Recipe{}), other.scope.House, 1)
	}
	s.Run(t, dispatch.CommandWorkers)
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
	s.IsDestroyed(t, "box")
}

func TestAPeriodicSweepIsAskedForOnceByAllServers(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newGated()
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
	var least float64 // when they were asked for is of no use, because one may be late and the next one in time
	err := owner.QueryRow(t.Context(), `
		select coalesce(extract(epoch from min(gap)), 1) from (
		  select scheduled_at - lag(scheduled_at) over (order by scheduled_at) as gap from `+db.JobSchema+`.river_job where kind = 'sweep_commands' and metadata ? 'periodic') g`).Scan(&least)
	if err != nil || least < 0.5 {
		t.Errorf("two periodic sweeps were asked for within %v s (%v)", least, err)
	}
}

// asHog makes this test program a server that takes all slots of a house, and waits to be killed. Its value is the database's
// URL, house, agent and thread.
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
	s := newGated()
	server, err := start(ctx, d, s, func(c *dispatch.Config) {
		c.Limits = dispatch.Limits{Commands: jobs.Limits{HouseRunning: 2, ThreadRunning: 2}}
	})
	fail(err)
	for _, id := range []string{"held-0", "held-1", "held-2"} {
		_, err = server.dispatcher.Commands.Run(ctx, db.Scope{House: given[1], Agent: given[2]}, given[3], id, entry.Command{Command: id})
		fail(err)
	}
	for len(s.Order()) < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("begun")
	select {}
}

func TestAKilledServerGivesItsPlacesBack(t *testing.T) {
	t.Parallel()
	b, s := onGated(t, 1, dispatch.Limits{Commands: jobs.Limits{HouseRunning: 2, ThreadRunning: 2}})
	th := b.thread(sandbox.Recipe{})
	if err := b.stop(t.Context()); err != nil { // only the server to be killed may begin jobs
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
	// A job other than a command, which the server was running.
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
	s.End("held-2")
	if r := b.result(th, "held-2"); r.Error != "" {
		t.Errorf("the one that waited: %+v", r)
	}
	if began := s.Order(); !slices.Equal(began, []string{"held-2"}) {
		t.Errorf("%v ran again", began)
	}
	s.IsDestroyed(t, "box")
}

// BenchmarkCommandAfterCommand measures the time from request to result of a command that directly follows another, while
// commands of another house wait. Its box does nothing.
func BenchmarkCommandAfterCommand(b *testing.B) {
	for _, waiting := range []int{0, 1000} {
		b.Run(fmt.Sprintf("%d waiting", waiting), func(b *testing.B) {
			bench, s := onGated(b, 1, dispatch.Limits{Commands: jobs.Limits{ThreadWaiting: 2 * waiting}})
			other := bench.another()
			long := other.askMany(other.thread(sandbox.Recipe{}), "long", waiting)
			th := bench.thread(sandbox.Recipe{})
			n := 0
			for b.Loop() {
				line := fmt.Sprintf("next-%d", n)
				n++
				s.End(line)
				bench.askFor(th, line, entry.Command{Command: line})
				bench.result(th, line)
			}
			b.StopTimer()
			s.End(long...)
		})
	}
}
