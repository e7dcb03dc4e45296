//go:build linux

package command_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

func TestAServerThatStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.Thread(sandbox.Recipe{})
	slow := b.Thread(sandbox.Recipe{Setup: "sleep 1000"})
	running := b.Ask(th, "echo ran >> runs; echo begun; until test -e go; do sleep 0.05; done; echo ended")
	b.Printed(th, running, "begun\n")
	waiting := b.Ask(slow, "echo worked")
	b.preparing(slow)
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	queued, cancelled := b.Ask(th, "cat runs"), b.Ask(th, "echo never")
	b.Cancel(th, cancelled)

	t.Run("leaves the running commands alone", func(t *testing.T) {
		if n := b.Results(th, running); n != 0 {
			t.Errorf("the log has %d results", n)
		}
	})
	t.Run("leaves no sandbox half built", func(t *testing.T) {
		if there, err := b.driver.List(t.Context(), sandbox.Labels{Thread: slow}); err != nil || len(there) != 0 {
			t.Errorf("%v is left (%v)", there, err)
		}
	})
	t.Run("records at once that a command waiting for a server was cancelled", func(t *testing.T) {
		if r := b.Result(th, cancelled); !r.Cancelled || r.Output != "" {
			t.Errorf("the result is %+v", r)
		}
	})
	if _, err := b.Owner(t).Exec(t.Context(), "update environments set config = replace(config::text, 'sleep 1000', 'sleep 0.1')::jsonb"); err != nil {
		t.Fatal(err)
	}
	b.use(b.serve())
	t.Run("leaves what has not begun to the next server", func(t *testing.T) {
		if r := b.Result(th, queued); r.Output != "ran\n" {
			t.Errorf("the result of the queued command is %+v", r)
		}
		if r := b.Result(slow, waiting); r.Output != "worked\n" {
			t.Errorf("the result of the command that waited for its sandbox is %+v", r)
		}
		if n := b.Results(th, cancelled); n != 1 {
			t.Errorf("the log has %d results of the cancelled command, want 1", n)
		}
	})
	t.Run("the next server continues the running commands", func(t *testing.T) {
		b.Sh(th, "touch go")
		if r := b.Result(th, running); r.ExitCode != 0 || r.Output != "begun\nended\n" || r.Error != "" || b.Results(th, running) != 1 {
			t.Errorf("the result is %+v, and there are %d results, want 1", r, b.Results(th, running))
		}
		if r := b.Sh(th, "cat runs"); r.Output != "ran\n" {
			t.Errorf("the runs are %q, want one", r.Output)
		}
	})
}

// Cancelling a command waits for whoever changes its job, and does what is right for the job after that.
func TestACommandThatIsCancelledAsItChangesServers(t *testing.T) {
	t.Parallel()
	b, _ := onGated(t, 1, jobs.Limits{})
	if err := b.stop(t.Context()); err != nil { // so that only the test changes jobs
		t.Fatal(detail(err))
	}
	th, owner := b.Thread(sandbox.Recipe{}), b.Owner(t)
	for name, c := range map[string]struct{ from, to, mark string }{
		"is left to the next server if its server handed it over": {"running", "available", "cancelled"},
		"is cancelled at the server that took it":                 {"available", "running", "cancel_attempted_at"},
	} {
		t.Run(name, func(t *testing.T) {
			id := b.Ask(th, "sleep 1000")
			_, err := owner.Exec(t.Context(), "update "+db.JobSchema+`.river_job set state = $2, attempted_by = '{arbe-1}', metadata = metadata || '{"begun": {"sandbox": "s", "launched": true}}'
				where args->>'command' = $1`, id, c.from)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := owner.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it is over unless the test failed
			if _, err := tx.Exec(t.Context(), "update "+db.JobSchema+".river_job set state = $2 where args->>'command' = $1", id, c.to); err != nil {
				t.Fatal(err)
			}
			cancelled := make(chan error, 1)
			go func() { cancelled <- b.Commands.Cancel(t.Context(), b.Scope, th, id, command.Interrupt) }()
			for watcher, waits := b.Owner(t), false; !waits; {
				err := watcher.QueryRow(t.Context(), "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')").Scan(&waits)
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-cancelled; err != nil {
				t.Fatal(detail(err))
			}
			var state string
			var marked bool
			err = owner.QueryRow(t.Context(), "select state::text, metadata ? $2 from "+db.JobSchema+".river_job where args->>'command' = $1", id, c.mark).Scan(&state, &marked)
			if err != nil || state != c.to || !marked {
				t.Errorf("the job is %s, and it is %v that it has %s (%v)", state, marked, c.mark, err)
			}
			if b.Results(th, id) != 0 {
				t.Error("the log has a result while the command runs")
			}
		})
	}
}

func TestAServerThatEndsItsCommands(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = commandtest.RealBoxes(t)
	b.tune = func(c *config) { c.End = true }
	b.use(b.serve())
	th := b.Thread(sandbox.Recipe{})
	polite := b.Ask(th, "trap 'echo goodbye; exit 5' TERM; echo begun; while :; do sleep 0.05; done")
	deaf := b.Ask(th, "trap '' TERM; echo begun; while :; do sleep 0.05; done")
	b.Printed(th, polite, "begun\n")
	b.Printed(th, deaf, "begun\n")
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	for id, said := range map[string]string{polite: "goodbye\n", deaf: "begun\n"} { // the shell may also report the end of its sleep
		r := b.Result(th, id)
		if r.ExitCode != -1 || !strings.Contains(r.Output, said) || !strings.Contains(r.Error, "the server stopped while the command was running") || r.Cancelled || r.SandboxID == "" {
			t.Errorf("the result is %+v", r)
		}
	}
	b.use(b.serve())
	if r := b.Sh(th, "ps ax | grep -c '[s]leep 0.05'"); r.Output != "0\n" {
		t.Errorf("%s processes are left", r.Output)
	}
}

func TestTwoServers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.Thread(sandbox.Recipe{})
	b.Sh(th, "true")
	id := b.Ask(th, "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended")
	b.Printed(th, id, "begun\n")

	first, second := b.server, b.serve()
	t.Run("cancel each other's commands", func(t *testing.T) {
		for range 4 { // whichever server takes it
			id := b.Ask(th, "echo begun; sleep 1000")
			b.Printed(th, id, "begun\n")
			for _, s := range []*server{first, second} {
				if err := s.commands.Cancel(t.Context(), b.Scope, th, id, command.Interrupt); err != nil {
					t.Fatal(detail(err))
				}
			}
			if r := b.Result(th, id); !r.Cancelled {
				t.Errorf("the result is %+v", r)
			}
		}
	})
	t.Run("leave each other's commands alone, even when the database drops every connection", func(t *testing.T) {
		owner := b.Owner(t)
		b.dropConnections(owner)
		b.use(b.serve()) // it looks for orphans as it starts
		b.swept(owner)
		probe := b.Ask(th, "touch go")
		b.Result(th, probe)
		r := b.Result(th, id)
		if r.ExitCode != 0 || r.Output != "begun\nended\n" || r.Error != "" {
			t.Errorf("the result is %+v", r)
		}
		if n := b.Results(th, id); n != 1 {
			t.Errorf("the log has %d results", n)
		}
	})
}

func TestAServerThatOnlyLostItsConnection(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.NewPool(t, poolSize)) // it limits new connections, and tells them from old ones
	owner := b.Owner(t)
	exec := func(statement string) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	th := b.Thread(sandbox.Recipe{})
	id := b.Ask(th, "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended")
	b.Printed(th, id, "begun\n")

	// The server is cut off from the database, and another one looks for orphans meanwhile.
	exec("create table mark as select clock_timestamp() as began")
	b.use(b.serve())
	b.swept(owner)
	connections := func(limit string) {
		exec("do $$ begin execute format('alter database %I connection limit " + limit + "', current_database()); end $$")
	}
	connections("0")
	exec(`select pg_terminate_backend(pid) from pg_stat_activity, mark
		where datname = current_database() and application_name = 'arbe' and backend_start < began`)
	exec("insert into " + db.JobSchema + ".river_job (kind, args, max_attempts) values ('sweep_commands', '{}', 1)")
	for looked, deadline := false, time.Now().Add(patience); !looked && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		err := owner.QueryRow(t.Context(), "select state = 'completed' or state = 'running' and attempted_at < now() - interval '300 ms' from "+
			db.JobSchema+".river_job where kind = 'sweep_commands' order by id desc limit 1").Scan(&looked)
		if err != nil {
			t.Fatal(err)
		}
	}
	connections("-1")
	b.swept(owner)

	b.Result(th, b.Ask(th, "touch go"))
	if r := b.Result(th, id); r.ExitCode != 0 || r.Output != "begun\nended\n" || r.Error != "" || b.Results(th, id) != 1 {
		t.Errorf("the result is %+v, and there are %d results, want 1", r, b.Results(th, id))
	}
}

func TestAMachineThatIsGoneForGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	here, there := b.driver, commandtest.NewLocal(t, t.TempDir())
	th := b.Thread(sandbox.Recipe{})
	running := b.Ask(th, "echo begun; sleep 1000")
	b.Printed(th, running, "begun\n")
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	if _, err := b.Owner(t).Exec(t.Context(), "update machines set seen_at = now() - interval '25 hours' where id = $1", here.(sandbox.Bound).Machine()); err != nil {
		t.Fatal(err)
	}
	b.driver = there
	b.use(b.serve())
	if r := b.Sh(th, "echo works"); r.Output != "works\n" || r.Error != "" {
		t.Errorf("the result is %+v", r)
	}
	if r := b.Result(th, running); r.ExitCode != -1 || !strings.Contains(r.Error, "the server stopped") {
		t.Errorf("the result of the command that ran there is %+v", r)
	}
	resumed := 0
	for _, e := range b.Entries(th) {
		if e.Type == (entry.SandboxResumed{}).Type() {
			resumed++
		}
	}
	if resumed != 1 {
		t.Errorf("the log says %s", b.Story(th))
	}
}

func TestDraining(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.Thread(sandbox.Recipe{})
	first := b.server
	commandID := b.Ask(th, "echo begun; until test -e go; do sleep 0.05; done")
	b.Printed(th, commandID, "begun\n")
	unwanted := b.Ask(th, "echo begun; sleep 1000")
	b.Printed(th, unwanted, "begun\n")
	other := b.serve()

	t.Run("leaves a command that runs too long until the stop", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := first.jobs.Drain(ctx); err != nil {
			t.Errorf("draining: %s", detail(err))
		}
		if n := first.commands.Running(); n != 2 {
			t.Errorf("%d commands run, want 2", n)
		}
	})
	t.Run("learns that a command is cancelled", func(t *testing.T) {
		if err := other.commands.Cancel(t.Context(), b.Scope, th, unwanted, command.Interrupt); err != nil {
			t.Fatal(detail(err))
		}
		// Otherwise the queue itself would find the cancellation, within a minute.
		if _, err := b.Owner(t).Exec(t.Context(), "update "+db.JobSchema+".river_job set metadata = metadata - 'cancel_attempted_at' where args->>'command' = $1", unwanted); err != nil {
			t.Fatal(err)
		}
		if r := b.Result(th, unwanted); !r.Cancelled {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("waits for the command while another server starts new ones", func(t *testing.T) {
		drained := make(chan error, 1)
		go func() { drained <- first.jobs.Drain(t.Context()) }()
		b.use(other)
		b.Ask(th, "touch go")
		if err := <-drained; err != nil {
			t.Errorf("draining: %s", detail(err))
		}
		if n := first.commands.Running(); n != 0 {
			t.Errorf("%d commands run, want none", n)
		}
		if n := b.Results(th, commandID); n != 1 {
			t.Errorf("the log has %d results of the command, want 1", n)
		}
	})
	t.Run("starts no more commands", func(t *testing.T) {
		if r := b.Sh(th, "true"); r.ExitCode != 0 {
			t.Errorf("the result is %+v", r)
		}
		if err := first.stop(t.Context()); err != nil {
			t.Errorf("stopping: %s", detail(err))
		}
	})
}

// dropConnections has Postgres end every connection of the servers.
func (b *bench) dropConnections(conn *pgx.Conn) {
	b.t.Helper()
	// It waits until they are gone, and drops them from the pool: otherwise a call of the test could find a broken one.
	_, err := conn.Exec(b.t.Context(), "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and application_name = 'arbe'")
	if err != nil {
		b.t.Fatal(err)
	}
	b.DB.Pool().Reset()
}

// swept waits until the latest requested search for jobs of dead servers has ended.
func (b *bench) swept(conn *pgx.Conn) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var state string
		err := conn.QueryRow(b.t.Context(), "select state from "+db.JobSchema+".river_job where kind = 'sweep_commands' order by id desc limit 1").Scan(&state)
		if err == nil && state == "completed" {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the sweep does not end: it is %s (%v)", state, err)
		}
	}
}
