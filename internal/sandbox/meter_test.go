package sandbox_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// metered is a cloud with meters. Each hour of a box costs 0.36 US dollars, which is 100 millionths of one for each second.
type metered struct {
	*cloud

	mu    sync.Mutex
	meter sandbox.Meter
}

const hourly = 360_000

func (m *metered) Meter(context.Context, string) (sandbox.Meter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.meter, nil
}

func (m *metered) List(ctx context.Context, want sandbox.Labels) ([]sandbox.Box, error) {
	list, err := m.cloud.List(ctx, want)
	for i := range list {
		list[i].Meter, _ = m.Meter(ctx, list[i].Ref)
	}
	return list, err
}

// turn changes what the meters of all boxes say.
func (m *metered) turn(power sandbox.Power, hourly int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.meter = sandbox.Meter{Power: power, HourlyMicros: hourly}
}

// meters is a bench whose cloud has meters, with a thread on a sandbox.
type meters struct {
	*bench
	cloud       *metered
	thread, box string
}

// running returns such a bench. The sandbox has run for no time that counts yet.
func running(t *testing.T) *meters {
	t.Helper()
	c := &metered{cloud: newCloud(t)}
	c.turn(sandbox.PowerOn, hourly)
	b := setupWith(t, c.cloud, map[string]sandbox.Driver{"cloud": c})
	th := b.thread(b.environment(sandbox.Recipe{}))
	b.sh(th, "true")
	m := &meters{b, c, th, b.on(th)}
	m.forget()
	return m
}

// forget forgets the time of the build.
func (m *meters) forget() {
	m.t.Helper()
	m.exec("update sandbox_trees set running_ms = 0, cost_nanos = 0, unpriced_ms = 0")
	m.exec("update sandbox_spending set running_ms = 0, cost_nanos = 0, unpriced_ms = 0")
}

// pass lets a time pass for the sandbox: what was known of it is older by that time.
func (m *meters) pass(d time.Duration) {
	m.t.Helper()
	m.exec("update sandbox_trees set running_seen_at = running_seen_at - $1::interval", d)
}

// counted returns what was counted for the sandbox.
func (m *meters) counted() sandbox.Running {
	m.t.Helper()
	uses, err := m.boxes.Uses(m.t.Context(), m.scope, m.box)
	if err != nil {
		m.t.Fatal(err)
	}
	return uses[m.box].Running
}

// spent returns what was counted for the house.
func (m *meters) spent() sandbox.Running {
	m.t.Helper()
	sum, err := m.boxes.Spending(m.t.Context(), m.scope)
	if err != nil {
		m.t.Fatal(err)
	}
	return sum.Running
}

// expect checks what was counted, for the sandbox and for its house, to within the time that the test itself takes.
func (m *meters) expect(what string, want time.Duration) {
	m.t.Helper()
	for whose, got := range map[string]sandbox.Running{"the sandbox": m.counted(), "the house": m.spent()} {
		m.expectOf(what+", of "+whose, got, want)
	}
}

func (m *meters) expectOf(what string, got sandbox.Running, want time.Duration) {
	m.t.Helper()
	if got.Time < want || got.Time > want+30*time.Second {
		m.t.Errorf("%s: it counts as running for %v, want %v", what, got.Time, want)
	}
	if cost := (got.Time - got.Unpriced).Milliseconds() / 10; got.CostMicros < cost-1 || got.CostMicros > cost+1 {
		m.t.Errorf("%s: %v cost %d millionths of a dollar, want %d", what, got.Time-got.Unpriced, got.CostMicros, cost)
	}
}

func TestTheTimeBetweenTwoSweepsThatFindASandboxRunningCounts(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.pass(5 * time.Minute)
	m.boxes.Sweep(t.Context())
	m.expect("after a sweep", 5*time.Minute)
	m.pass(5 * time.Minute)
	m.boxes.Sweep(t.Context())
	m.expect("after another", 10*time.Minute)
}

func TestAUseCountsAsRunning(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.pass(5 * time.Minute)
	m.boxes.SaveBegins(m.box) // so that the use is recorded at once
	m.sh(m.thread, "true")
	m.expect("after a use", 5*time.Minute)
}

func TestASandboxThatItsProviderStoppedRanUntilItWasLastKnownToRun(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.pass(5 * time.Minute)
	m.boxes.Sweep(t.Context())
	m.pass(4 * time.Minute)
	m.cloud.turn(sandbox.PowerOff, hourly)
	m.boxes.Sweep(t.Context())
	m.expect("when it is stopped", 5*time.Minute)

	m.cloud.turn(sandbox.PowerOn, hourly)
	m.boxes.Sweep(t.Context())
	m.expect("when it was started again", 5*time.Minute)
	m.pass(time.Minute)
	m.boxes.Sweep(t.Context())
	m.expect("a minute later", 6*time.Minute)
}

func TestASandboxThatIsGoneRanUntilItWasLastKnownToRun(t *testing.T) {
	t.Parallel()
	m := running(t)
	box, err := m.boxes.Sandbox(t.Context(), m.scope, m.box)
	if err != nil {
		t.Fatal(err)
	}
	m.pass(4 * time.Minute)
	m.cloud.lose(box.Ref)
	if alive, err := m.boxes.Reaper.Confirm(t.Context(), m.scope, m.box); alive != sandbox.Gone || err != nil {
		t.Fatalf("%s, %v", alive, err)
	}
	m.expect("when it is gone", 0)
}

func TestADeletedSandboxRanUntilThen(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.pass(4 * time.Minute)
	if _, err := m.boxes.Destroy(t.Context(), m.scope, m.box); err != nil {
		t.Fatal(err)
	}
	m.expect("when it is deleted", 4*time.Minute)
	if _, err := m.boxes.Destroy(t.Context(), m.scope, m.box); err != nil {
		t.Fatal(err)
	}
	m.boxes.KeepUsed(t.Context(), m.scope, m.box)()
	m.expect("and nothing of it runs later", 4*time.Minute)
}

func TestTheSumOfAHouseKeepsSandboxesWhoseRecordsAreDeleted(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.pass(4 * time.Minute)
	if err := m.boxes.Reaper.RemoveAll(t.Context(), m.scope); err != nil {
		t.Fatal(err)
	}
	if n := m.rows(); n != 0 {
		t.Fatalf("%d records are left", n)
	}
	m.expectOf("the house", m.spent(), 4*time.Minute)
}

// Nobody knows what happened to a box while all servers were away.
func TestALongTimeWithoutServersDoesNotCount(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.pass(3 * time.Hour)
	m.server(m.drivers).Sweep(t.Context())
	m.expect("after three hours", 0)
	m.pass(5 * time.Minute)
	m.server(m.drivers).Sweep(t.Context())
	m.expect("and then it counts again", 5*time.Minute)
}

// The next server finds the box running, as it was for the killed one.
func TestTheTimeUntilTheServerAfterAKilledOneCounts(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.pass(2 * time.Minute)
	m.server(m.drivers).Sweep(t.Context())
	m.expect("after a restart", 2*time.Minute)
}

func TestTwoServersCountTheSameTimeOnce(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.pass(5 * time.Minute)
	held, err := m.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it is over unless the test failed
	if _, err := held.Exec(t.Context(), "select from sandbox_trees where sandbox_id = $1 for update", m.box); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	for _, server := range []*sandbox.Resolver{m.boxes, m.server(m.drivers)} {
		both.Go(func() { server.Sweep(t.Context()) })
	}
	watcher := m.Owner(t)
	for waiting := 0; waiting < 2; {
		err := watcher.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := held.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	both.Wait()
	m.expect("with two servers", 5*time.Minute)
}

// A provider may stop a box and be asked to start it again before any sweep sees it stopped.
func TestTheTimeThatASandboxSleptUntilItsNextUseDoesNotCount(t *testing.T) {
	t.Parallel()
	m := running(t)
	s := &sleepy{cloud: m.bench.cloud, asleep: map[string]bool{}}
	sleeping := m.server(map[string]sandbox.Driver{"cloud": s})
	use := func() {
		t.Helper()
		sleeping.Sandboxes.SaveBegins(m.box) // so that the use is recorded at once
		if r := tryOn(t.Context(), m.bench, sleeping, m.thread, "", "true"); r.err != nil {
			t.Fatal(r.err)
		}
	}
	box, err := m.boxes.Sandbox(t.Context(), m.scope, m.box)
	if err != nil {
		t.Fatal(err)
	}
	m.pass(5 * time.Minute)
	use()
	m.expect("of a box that is awake", 5*time.Minute)
	m.pass(5 * time.Minute)
	s.sleep(box.Ref)
	use()
	m.expect("of a box that slept", 5*time.Minute)
	m.pass(5 * time.Minute)
	use()
	m.expect("of a box that woke", 10*time.Minute)
	m.pass(5 * time.Minute)
	s.unsure = true
	use()
	m.expect("of a box whose provider does not answer", 10*time.Minute)
}

// A list takes a while. A box that was started in the meantime is not stopped.
func TestAnOldListDoesNotStopASandboxThatWasStartedMeanwhile(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.cloud.lists = func(list []sandbox.Box) []sandbox.Box {
		m.boxes.KeepUsed(t.Context(), m.scope, m.box)()
		for i := range list {
			list[i].Meter.Power = sandbox.PowerOff
		}
		return list
	}
	m.boxes.Sweep(t.Context())
	m.cloud.lists = nil
	m.pass(5 * time.Minute)
	m.boxes.Sweep(t.Context())
	m.expect("later", 5*time.Minute)
}

func TestTheTimeOfABuildCounts(t *testing.T) {
	t.Parallel()
	m := running(t)
	const setup = 20 * time.Millisecond
	before := m.spent()
	if r := m.try(m.bench.thread(m.environment(sandbox.Recipe{Setup: "sleep 0.02; exit 1"})), "true"); r.err == nil {
		t.Fatal("the build succeeded")
	}
	failed := m.spent()
	if failed.Time < before.Time+setup {
		t.Errorf("the box of a build that failed ran for %v", failed.Time-before.Time)
	}
	th := m.bench.thread(m.environment(sandbox.Recipe{Setup: "sleep 0.02"}))
	m.sh(th, "true")
	uses, err := m.boxes.Uses(t.Context(), m.scope, m.on(th))
	if own := uses[m.on(th)].Running.Time; err != nil || own < setup || m.spent().Time < failed.Time+setup {
		t.Errorf("the box of a build that succeeded ran for %v, %v; all boxes for %v, before it %v", own, err, m.spent().Time, failed.Time)
	}
}

func TestANewPriceDoesNotChangeTheCostOfThePast(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.pass(5 * time.Minute)
	m.cloud.turn(sandbox.PowerOn, 10*hourly)
	m.boxes.Sweep(t.Context())
	m.expect("until the new price is known", 5*time.Minute)
	m.pass(time.Minute)
	m.boxes.Sweep(t.Context())
	if got := m.counted(); got.CostMicros < 30_000+60_000 || got.CostMicros > 90_000+30_000 {
		t.Errorf("five minutes and one that is ten times as expensive cost %d millionths of a dollar, want 90000", got.CostMicros)
	}
}

func TestTheTimeOfASandboxWithoutAKnownPriceIsNotFree(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.cloud.turn(sandbox.PowerOn, sandbox.PriceUnknown)
	m.boxes.Sweep(t.Context())
	m.pass(5 * time.Minute)
	m.boxes.Sweep(t.Context())
	m.expect("without a price", 5*time.Minute)
	for _, got := range []sandbox.Running{m.counted(), m.spent()} {
		if got.Unpriced < 5*time.Minute || got.Unpriced > got.Time {
			t.Errorf("of %v, the price of %v is unknown", got.Time, got.Unpriced)
		}
	}
}

// Servers of the version before know nothing of running time. Their sandboxes count from the next sweep on.
func TestASandboxOfAnOlderServerCountsFromTheNextSweepOn(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.exec("update sandbox_trees set hourly_micros = null, running_seen_at = null")
	m.boxes.KeepUsed(t.Context(), m.scope, m.box)()
	m.pass(5 * time.Minute)
	m.boxes.Sweep(t.Context())
	m.expect("until the sweep", 0)
	m.pass(5 * time.Minute)
	m.boxes.Sweep(t.Context())
	m.expect("from then on", 5*time.Minute)
}
