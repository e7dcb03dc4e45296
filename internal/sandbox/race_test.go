package sandbox_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/thread"
)

func withEnvironment(id string) thread.Change { return thread.Change{Environment: &id} }

// together calls f n times concurrently.
func together(n int, f func(i int) ran) []ran {
	results := make([]ran, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { results[i] = f(i) })
	}
	all.Wait()
	return results
}

func TestFirstCommandsAtTheSameTime(t *testing.T) {
	t.Parallel()
	t.Run("in one thread make one sandbox, whatever server they are on", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		th := b.thread(b.environment(sandbox.Recipe{Setup: "echo ready > made"}))
		servers := []*sandbox.Resolver{b.boxes, b.server(map[string]sandbox.Driver{"cloud": b.cloud})}
		for _, r := range together(20, func(i int) ran { return tryOn(t.Context(), b, servers[i%2], th, "", "cat made") }) {
			if r.err != nil || r.box.ID != b.on(th) || r.output != "ready\n" {
				t.Errorf("a command ran on %s and found %q (%s), want %s, ready", r.box.ID, r.output, detail(r.err), b.on(th))
			}
		}
		if b.cloud.made() != 1 || b.rows() != 1 {
			t.Errorf("%d boxes and %d rows were made", b.cloud.made(), b.rows())
		}
		if entries := logged[entry.EnvironmentPrepared](b, th); len(entries) != 1 {
			t.Errorf("the log has %d preparations", len(entries))
		}
	})
	t.Run("in more threads than there are connections do not wait for one another", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		env := b.environment(sandbox.Recipe{})
		const n = 14 // the pool has ten
		var arrived sync.WaitGroup
		arrived.Add(n)
		b.cloud.creating = func(context.Context, sandbox.Spec) error {
			arrived.Done()
			arrived.Wait() // all of them are being created
			return nil
		}
		var threads []string
		for range n {
			threads = append(threads, b.thread(env))
		}
		for i, r := range together(n, func(i int) ran { return b.try(threads[i], "true") }) {
			if r.err != nil || r.box.ID != b.on(threads[i]) {
				t.Errorf("thread %d: %+v %s", i, r.box, detail(r.err))
			}
		}
	})
	t.Run("share the failure, and the next command tries again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		th := b.thread(b.environment(sandbox.Recipe{}))
		b.cloud.creating = func(context.Context, sandbox.Spec) error {
			return fault.New(fault.Exhausted, "no machine left", "delete one")
		}
		for _, r := range together(5, func(int) ran { return b.try(th, "true") }) {
			wantCode(t, r.err, fault.Exhausted)
		}
		if b.rows() != 0 || b.on(th) != "" {
			t.Errorf("%d rows are left, the thread is on %q", b.rows(), b.on(th))
		}
		b.cloud.creating = nil
		b.sh(th, "true")
	})
}

func TestWhoWaitsForASandbox(t *testing.T) {
	t.Parallel()
	// begin starts two commands that wait for one sandbox, the first of which may be given up.
	begin := func(t *testing.T) (b *bench, th string, giveUp [2]context.CancelFunc, results [2]chan ran, release func()) {
		b = setup(t)
		th = b.thread(b.environment(sandbox.Recipe{}))
		creating, released := make(chan struct{}, 2), make(chan struct{})
		b.cloud.creating = func(ctx context.Context, _ sandbox.Spec) error {
			creating <- struct{}{}
			select {
			case <-released:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		for i := range 2 {
			var ctx context.Context
			ctx, giveUp[i] = context.WithCancel(t.Context())
			results[i] = make(chan ran, 1)
			go func() { results[i] <- tryOn(ctx, b, b.boxes, th, "", "true") }()
			if i == 0 {
				receive(t, creating)
			}
		}
		for deadline := time.Now().Add(patience); b.boxes.Waiting() < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the second does not wait for the sandbox")
			}
		}
		return b, th, giveUp, results, sync.OnceFunc(func() { close(released) })
	}
	t.Run("gets it also when the one who asked first has left", func(t *testing.T) {
		t.Parallel()
		b, th, giveUp, results, release := begin(t)
		giveUp[0]()
		wantCode(t, receive(t, results[0]).err, fault.Canceled)
		release()
		if r := receive(t, results[1]); r.err != nil || r.box.ID != b.on(th) || b.cloud.live() != 1 {
			t.Errorf("the second is on %+v (%s), of %d boxes", r.box, detail(r.err), b.cloud.live())
		}
	})
	t.Run("leaves nothing behind as the last", func(t *testing.T) {
		t.Parallel()
		b, th, giveUp, results, _ := begin(t)
		for i := range 2 {
			giveUp[i]()
			wantCode(t, receive(t, results[i]).err, fault.Canceled)
		}
		if b.rows() != 0 || b.cloud.live() != 0 || b.on(th) != "" {
			t.Errorf("%d rows and %d boxes are left, the thread is on %q", b.rows(), b.cloud.live(), b.on(th))
		}
	})
}

func TestThreadsThatFindTheirSandboxDeadAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	env := b.environment(sandbox.Recipe{})
	threads := []string{b.thread(env), b.thread(env), b.thread(env), b.thread(env)}
	b.sh(threads[0], "true")
	for _, th := range threads[1:] {
		b.share(th, threads[0])
	}
	servers := []*sandbox.Resolver{b.boxes, b.server(map[string]sandbox.Driver{"cloud": b.cloud})}
	const rounds = 10
	for range rounds {
		if _, err := b.boxes.Destroy(t.Context(), b.scope, b.on(threads[0])); err != nil {
			t.Fatal(err)
		}
		for i, r := range together(len(threads), func(i int) ran { return tryOn(t.Context(), b, servers[i%2], threads[i], "", "true") }) {
			if r.err != nil || r.box.ID != b.on(threads[0]) {
				t.Fatalf("thread %d is on %s (%s), want %s", i, r.box.ID, detail(r.err), b.on(threads[0]))
			}
		}
	}
	for _, th := range threads {
		if entries := logged[entry.SandboxResumed](b, th); len(entries) != rounds {
			t.Errorf("the log of a thread has %d resumptions, want %d", len(entries), rounds)
		}
	}
	if b.cloud.made() != rounds+1 || b.cloud.live() != 1 {
		t.Errorf("%d boxes were made and %d are there, want %d and 1", b.cloud.made(), b.cloud.live(), rounds+1)
	}
}

func TestAHouseWithSlowSandboxesDoesNotHoldUpAnother(t *testing.T) {
	t.Parallel()
	const many = 40 // more than a server builds at once
	b := setup(t)
	slow := b.scope
	creating, released := make(chan struct{}, many), make(chan struct{})
	b.cloud.creating = func(ctx context.Context, spec sandbox.Spec) error {
		if spec.Labels.House != slow.House {
			return nil
		}
		creating <- struct{}{}
		select {
		case <-released:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	connections := func() (n int) {
		t.Helper()
		if err := b.owner.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := connections()
	env := b.environment(sandbox.Recipe{})
	results := make(chan ran, many)
	slowly := *b // keeps this house
	for range many {
		th := b.thread(env)
		go func() { results <- tryOn(t.Context(), &slowly, b.boxes, th, "", "true") }()
	}
	for range 16 { // half of what a server builds at once
		receive(t, creating)
	}
	for range 5 {
		b.scope = b.house()
		b.sh(b.thread(b.environment(sandbox.Recipe{})), "true")
	}
	if len(creating) != 0 {
		t.Errorf("the slow house got %d places more than half", len(creating))
	}
	if n := connections(); n > before+int(b.DB.Pool().Config().MaxConns)+1 {
		t.Errorf("%d connections to the database, before %d", n, before)
	}
	close(released)
	for range many {
		if r := receive(t, results); r.err != nil {
			t.Error(detail(r.err))
		}
	}
}
