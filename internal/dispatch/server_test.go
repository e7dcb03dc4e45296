//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
)

// asServer makes this test program be a server, so that a test can kill a real one. Its value is what
// [victim] needs: the database's URL, the driver's directory, house, agent and thread, and what to run.
const asServer = "ARBE_TEST_AS_SERVER"

// victim starts a server, has it run a command, and waits to be killed.
func victim() {
	ctx := context.Background()
	given := strings.Split(os.Getenv(asServer), "\n")
	url, dir, scope, thread, line := given[0], given[1], db.Scope{House: given[2], Agent: given[3]}, given[4], given[5]
	fail := func(err error) {
		if err != nil {
			fmt.Println(detail(err))
			os.Exit(1)
		}
	}
	d, err := db.Open(ctx, url, db.Options{})
	fail(err)
	driver, err := local.New(ctx, localConfig(dir))
	fail(err)
	s, err := start(ctx, d, driver)
	fail(err)
	_, err = s.dispatcher.RunCommand(ctx, scope, thread, "left", entry.Command{Command: line})
	fail(err)
	select {}
}

func TestAKilledServer(t *testing.T) {
	t.Parallel()
	b := database(t)
	dir := t.TempDir()
	// What the log is followed with all along. It works on nothing.
	witness, err := start(t.Context(), b.DB, newLocal(t, t.TempDir()))
	if err != nil {
		t.Fatal(detail(err))
	}
	b.server = witness
	th := b.thread(sandbox.Recipe{})
	if err := witness.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	t.Cleanup(witness.log.Close)

	killed := exec.Command(os.Args[0])
	killed.Env = append(os.Environ(), asServer+"="+strings.Join([]string{b.ServerURL, dir, b.scope.House, b.scope.Agent, th, "echo ran >> runs; echo begun; sleep 1000"}, "\n"))
	killed.Stdout, killed.Stderr = os.Stderr, os.Stderr
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killed.Process.Kill() })
	b.printed(th, "left", "begun\n")
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.Wait()

	b.driver = newLocal(t, dir)
	b.server = b.serve()
	r := b.result(th, "left")
	if r.ExitCode != -1 || !strings.Contains(r.Error, "the server stopped while the command was running") || r.Cancelled {
		t.Errorf("the result is %+v", r)
	}
	if r := b.sh(th, "cat runs"); r.Output != "ran\n" {
		t.Errorf("the command ran as %q, want once, and its files kept (%s)", r.Output, r.Error)
	}
	b.serve() // one more that looks for orphans
	b.swept(b.Owner(t))
	if r := b.sh(th, "cat runs"); r.Output != "ran\n" || b.results(th, "left") != 1 {
		t.Errorf("it ran as %q and has %d results", r.Output, b.results(th, "left"))
	}
}

func TestAServerThatStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(sandbox.Recipe{})
	slow := b.thread(sandbox.Recipe{Setup: "test -e /tmp/never || sleep 2"})
	running := b.ask(th, "echo ran >> runs; echo begun; sleep 1000")
	b.printed(th, running, "begun\n")
	waiting := b.ask(slow, "echo worked")
	b.preparing(slow)
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	queued, cancelled := b.ask(th, "cat runs"), b.ask(th, "echo never")
	b.cancel(th, cancelled)

	t.Run("says so of the commands that ran", func(t *testing.T) {
		r := b.result(th, running)
		if r.ExitCode != -1 || r.Output != "begun\n" || !strings.Contains(r.Error, "the server stopped while the command was running") || r.Cancelled {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("leaves no sandbox half made", func(t *testing.T) {
		if there, err := b.driver.List(t.Context(), sandbox.Labels{Thread: slow}); err != nil || len(there) != 0 {
			t.Errorf("%v is left (%v)", there, err)
		}
	})
	t.Run("tells at once that one was cancelled which waits for a server", func(t *testing.T) {
		if r := b.result(th, cancelled); !r.Cancelled || r.Output != "" {
			t.Errorf("the result is %+v", r)
		}
	})
	b.server = b.serve()
	t.Run("leaves to the next one what had not begun", func(t *testing.T) {
		if r := b.result(th, queued); r.Output != "ran\n" {
			t.Errorf("what waited in the queue: %+v", r)
		}
		if r := b.result(slow, waiting); r.Output != "worked\n" {
			t.Errorf("what waited for its sandbox: %+v", r)
		}
		if n := b.results(th, cancelled); n != 1 {
			t.Errorf("the cancelled one has %d results", n)
		}
	})
}

func TestTwoServers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(sandbox.Recipe{})
	b.sh(th, "true")
	id := b.ask(th, "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended")
	b.printed(th, id, "begun\n")

	first, second := b.server, b.serve()
	t.Run("cancel each other's commands", func(t *testing.T) {
		for range 4 { // whoever takes it up
			id := b.ask(th, "echo begun; sleep 1000")
			b.printed(th, id, "begun\n")
			for _, s := range []*server{first, second} {
				if err := s.dispatcher.CancelCommand(t.Context(), b.scope, th, id); err != nil {
					t.Fatal(detail(err))
				}
			}
			if r := b.result(th, id); !r.Cancelled {
				t.Errorf("the result is %+v", r)
			}
		}
	})
	t.Run("leave each other's commands alone, also while the database drops every connection", func(t *testing.T) {
		owner := b.Owner(t)
		b.dropConnections(owner)
		b.server = b.serve() // it looks for orphans as it starts
		b.swept(owner)
		probe := b.ask(th, "touch go")
		b.result(th, probe)
		r := b.result(th, id)
		if r.ExitCode != 0 || r.Output != "begun\nended\n" || r.Error != "" {
			t.Errorf("the result is %+v", r)
		}
		if n := b.results(th, id); n != 1 {
			t.Errorf("it has %d results", n)
		}
	})
}

func TestAServerThatOnlyLostItsConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner := b.Owner(t)
	exec := func(statement string) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	th := b.thread(sandbox.Recipe{})
	id := b.ask(th, "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended")
	b.printed(th, id, "begun\n")

	// The server is cut off from the database, and another one looks for orphans meanwhile.
	exec("create table mark as select clock_timestamp() as began")
	b.server = b.serve()
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

	b.result(th, b.ask(th, "touch go"))
	if r := b.result(th, id); r.ExitCode != 0 || r.Output != "begun\nended\n" || r.Error != "" || b.results(th, id) != 1 {
		t.Errorf("the result is %+v, one of %d", r, b.results(th, id))
	}
}
