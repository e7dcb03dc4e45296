package sandbox_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

func TestASandboxThatCannotBeMade(t *testing.T) {
	t.Parallel()
	t.Run("because its setup fails, leaves no row and no box, and the log has the step with its output", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		recipe := sandbox.Recipe{Driver: "cloud", Setup: "echo went well\necho no such package >&2\nexit 3"}
		env := b.environment(recipe)
		th := b.thread(env)
		r := b.try(th, "true")
		wantCode(t, r.err, fault.Precondition)
		for _, want := range []string{"setup failed with exit code 3", "no such package", "correct the environment"} {
			if !strings.Contains(detail(r.err), want) {
				t.Errorf("the command says %q, want %q in it", r.err, want)
			}
		}
		if b.rows() != 0 || b.cloud.live() != 0 || b.on(th) != "" {
			t.Errorf("%d rows and %d boxes are left, the thread is on %q", b.rows(), b.cloud.live(), b.on(th))
		}
		entries := logged[entry.EnvironmentPrepared](b, th)
		if len(entries) != 1 {
			t.Fatalf("the log has %+v", entries)
		}
		if step, failed := entries[0].Failed(); !failed || step.Name != "setup" || step.ExitCode != 3 || step.Output != "went well\nno such package" {
			t.Errorf("the log has %+v", entries[0])
		}

		recipe.Setup = "echo mended > made"
		if _, err := b.boxes.UpdateEnvironment(t.Context(), b.scope, env, "", nil, &recipe); err != nil {
			t.Fatal(err)
		}
		if _, made := b.sh(th, "cat made"); made != "mended\n" {
			t.Errorf("the next command finds %q", made)
		}
	})
	t.Run("is told which step took too long, and what to do", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.boxes = sandbox.NewResolver(sandbox.Config{
			DB: b.DB, Log: b.log, Threads: b.threads, Drivers: b.drivers, Maxima: sandbox.Maxima{CommandTime: 5 * time.Second}, Logger: slog.New(slog.DiscardHandler),
		})
		const hangs = "echo waiting; exec sleep 1000"
		th := b.thread(b.environment(sandbox.Recipe{Setup: hangs}))
		err := b.try(th, "true").err
		wantCode(t, err, fault.Precondition)
		if f := fault.From(err); !strings.Contains(f.Message, "setup took longer than 5s, the limit of a step\nwaiting") || strings.Contains(f.Message, "124") || !strings.Contains(f.Next, "find out what it waits for") {
			t.Errorf("the command says %q; %q", f.Message, f.Next)
		}
		if failed, ok := logged[entry.EnvironmentPrepared](b, th)[0].Failed(); !ok || failed.Name != "setup" || failed.Output != "waiting\n\narbe: it was ended, because a step may take 5s" {
			t.Errorf("the log has %+v", failed)
		}
		if b.cloud.live() != 0 {
			t.Errorf("%d boxes are left", b.cloud.live())
		}
		by, _ := diagnosed(t.Context(), t, b, b.boxes, b.environment(sandbox.Recipe{Setup: hangs}))
		if c := by["setup"]; c.Result != sandbox.CheckFailed || !strings.Contains(c.Message, "took longer than 5s") || c.Next == "" {
			t.Errorf("the diagnosis says %+v", c)
		}
	})
	t.Run("shows only the end of a long output", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		th := b.thread(b.environment(sandbox.Recipe{Setup: `seq 100000; printf '\377\000end'; exit 1`}))
		wantCode(t, b.try(th, "true").err, fault.Precondition)
		step, _ := logged[entry.EnvironmentPrepared](b, th)[0].Failed()
		if len(step.Output) > 9000 || !strings.HasPrefix(step.Output, "… 5") || !strings.HasSuffix(step.Output, "\n100000\n\uFFFD\u2400end") {
			t.Errorf("%d bytes: %.60q … %q", len(step.Output), step.Output, step.Output[max(0, len(step.Output)-60):])
		}
	})
	t.Run("keeps together the threads that shared the dead one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		env := b.environment(sandbox.Recipe{})
		first, second := b.thread(env), b.thread("")
		dead, _ := b.sh(first, "true")
		b.share(second, first)
		if _, err := b.boxes.Destroy(t.Context(), b.scope, dead.ID); err != nil {
			t.Fatal(err)
		}
		b.cloud.creating = func(context.Context, sandbox.Spec) error {
			return fault.New(fault.Exhausted, "no machine left", "delete one")
		}
		wantCode(t, b.try(first, "true").err, fault.Exhausted)
		b.cloud.creating = nil
		box, _ := b.sh(second, "true")
		if b.on(first) != box.ID || b.on(second) != box.ID || box.Environment != env {
			t.Errorf("the threads are on %s and %s, want both on %+v", b.on(first), b.on(second), box)
		}
	})
}

func TestASandboxThatIsDestroyedWhileItIsMade(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(b *bench, th string){
		"by hand": func(b *bench, th string) {
			if _, err := b.boxes.Destroy(b.t.Context(), b.scope, b.on(th)); err != nil {
				b.t.Fatal(err)
			}
		},
		"with its thread": func(b *bench, th string) {
			for _, box := range b.deleteThread(th) {
				if err := b.boxes.Reap(b.t.Context(), b.scope, box); err != nil {
					b.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			th := b.thread(b.environment(sandbox.Recipe{Setup: "echo made"}))
			preparing, released := make(chan struct{}), make(chan struct{})
			b.cloud.executing = func(context.Context, sandbox.Command) error {
				preparing <- struct{}{}
				<-released
				return nil
			}
			result := make(chan ran, 1)
			go func() { result <- b.try(th, "true") }()
			receive(t, preparing)
			id := b.on(th)
			end(b, th)
			close(released)
			r := receive(t, result)
			wantCode(t, r.err, fault.Aborted)
			if b.status(id) != sandbox.StatusDead || b.cloud.live() != 0 {
				t.Errorf("its row is %s, and there are %d machines", b.status(id), b.cloud.live())
			}
		})
	}
}

func TestASandboxWhoseServerWasKilledWhileItMadeIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	env := b.environment(sandbox.Recipe{Setup: "echo made >> made"})
	th := b.thread(env)
	// The remains of a crash: the row, and a box in the middle of its preparation.
	b.exec("insert into sandboxes (id, house_id, environment_id, provider) values ('left', $1, $2, 'cloud')", b.scope.House, env)
	b.exec("update threads set sandbox_id = 'left' where id = $1", th)
	ref, err := b.cloud.Create(t.Context(), sandbox.Spec{ID: "left", Labels: sandbox.Labels{House: b.scope.House, Thread: th, Environment: env}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.cloud.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", "echo half > made"}}); err != nil {
		t.Fatal(err)
	}
	b.boxes.Sweep(t.Context()) // the next server's first sweep

	box, made := b.sh(th, "cat made")
	if box.ID != "left" || made != "made\n" || b.cloud.live() != 1 {
		t.Errorf("the next command runs on %s, finds %q, and there are %d boxes; want the same sandbox, made afresh", box.ID, made, b.cloud.live())
	}
}

func TestASweepMeetsADiagnosis(t *testing.T) {
	t.Parallel()
	t.Run("that goes on, and leaves it alone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := b.server(map[string]sandbox.Driver{"cloud": b.cloud})
		_, order := diagnosed(t.Context(), t, b, b.boxes, b.environment(sandbox.Recipe{Setup: "true"}), func(c sandbox.Check) {
			if c.Name == "create" {
				other.Sweep(t.Context())
				b.boxes.Sweep(t.Context())
			}
		})
		if got := strings.Join(order, ","); !strings.Contains(got, "setup ok") || !strings.Contains(got, "remove ok") {
			t.Errorf("the steps are %s", got)
		}
	})
	t.Run("whose server was killed, and removes what it left", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		env := b.environment(sandbox.Recipe{})
		b.exec("insert into sandboxes (id, house_id, environment_id, provider, ephemeral) values ('left', $1, $2, 'cloud', true)", b.scope.House, env)
		if _, err := b.cloud.Create(t.Context(), sandbox.Spec{ID: "left", Labels: sandbox.Labels{House: b.scope.House, Environment: env}}); err != nil {
			t.Fatal(err)
		}
		b.boxes.Sweep(t.Context())
		if b.rows() != 0 || b.cloud.live() != 0 {
			t.Errorf("%d records and %d boxes are left", b.rows(), b.cloud.live())
		}
	})
}

func TestADatabaseThatDropsItsConnectionsWhileASandboxIsMade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(b.environment(sandbox.Recipe{Setup: "echo made >> made"}))
	b.cloud.executing = func(_ context.Context, cmd sandbox.Command) error {
		if strings.Contains(strings.Join(cmd.Argv, " "), ">> made") {
			_, err := b.owner.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and application_name = 'arbe'`)
			return err
		}
		return nil
	}
	result := make(chan ran, 1)
	go func() { result <- b.try(th, "cat made") }()
	if r := receive(t, result); r.err != nil && fault.CodeOf(r.err) != fault.Unavailable {
		t.Errorf("the command says %s", detail(r.err))
	}
	// The next command may also get a connection that broke unnoticed.
	again := b.try(th, "cat made")
	for deadline := time.Now().Add(patience); fault.CodeOf(again.err) == fault.Unavailable && time.Now().Before(deadline); {
		again = b.try(th, "cat made")
	}
	if again.output != "made\n" || b.status(again.box.ID) != sandbox.StatusLive || b.cloud.made() != 1 {
		t.Errorf("the sandbox is %s with %q (%s), one of %d", b.status(again.box.ID), again.output, detail(again.err), b.cloud.made())
	}
	if entries := logged[entry.EnvironmentPrepared](b, th); len(entries) != 1 {
		t.Errorf("the log has %d preparations", len(entries))
	}
}

// A server sweeps while it builds, also when the connection that held its lock on the build broke.
func TestASweepAfterTheDatabaseDroppedItsConnectionsLeavesABuildAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.server(map[string]sandbox.Driver{"cloud": b.cloud})
	env := b.environment(sandbox.Recipe{Setup: "echo made >> made"})
	th, neighbour := b.thread(env), b.thread(b.environment(sandbox.Recipe{}))
	var once sync.Once
	b.cloud.executing = func(_ context.Context, cmd sandbox.Command) (err error) {
		if !strings.Contains(strings.Join(cmd.Argv, " "), ">> made") {
			return nil
		}
		once.Do(func() {
			if _, err = b.owner.Exec(t.Context(), `select pg_terminate_backend(pid, 10000) from pg_locks join pg_stat_activity using (pid)
				where datname = current_database() and locktype = 'advisory'`); err != nil {
				return
			}
			// The first use of the lost connection fails.
			r := b.try(neighbour, "true")
			for deadline := time.Now().Add(patience); fault.CodeOf(r.err) == fault.Unavailable && time.Now().Before(deadline); {
				r = b.try(neighbour, "true")
			}
			err = r.err
			b.boxes.Sweep(t.Context())
			other.Sweep(t.Context())
		})
		return err
	}
	result := make(chan ran, 1)
	go func() { result <- b.try(th, "cat made") }()
	if r := receive(t, result); r.err != nil || r.output != "made\n" || b.cloud.live() != 2 || b.cloud.made() != 2 {
		t.Errorf("the command finds %q (%s); %d of %d boxes exist", r.output, detail(r.err), b.cloud.live(), b.cloud.made())
	}
}
