//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/stream"
)

// asServer makes this test program be a server, so that a test can kill a real one. Its value is what
// [victim] needs: the database's URL, the driver's directory, house, agent and thread, what to run, for how long, and
// into which file to read its output.
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
	s, err := start(ctx, d, driver, roomy)
	fail(err)
	var timeout int64
	if len(given) > 6 {
		timeout, err = strconv.ParseInt(given[6], 10, 64)
		fail(err)
	}
	read := len(given) > 7 // into a file
	_, err = s.dispatcher.Commands.Run(ctx, scope, thread, "left", entry.Command{Command: line, TimeoutMS: timeout, Separate: read})
	fail(err)
	if read {
		fail(readInto(ctx, s, scope, thread, "left", given[7]))
	}
	select {}
}

// kill starts a server that runs a command in a thread, and kills it when the command has printed a text. The bench's
// next server may use the driver of the directory.
func (b *bench) kill(dir, thread, line, printed string) {
	b.t.Helper()
	killed := exec.Command(os.Args[0])
	killed.Env = append(os.Environ(), asServer+"="+strings.Join([]string{b.ServerURL, dir, b.scope.House, b.scope.Agent, thread, line}, "\n"))
	killed.Stdout, killed.Stderr = os.Stderr, os.Stderr
	if err := killed.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { killed.Process.Kill() })
	b.printed(thread, "left", printed)
	if err := killed.Process.Kill(); err != nil {
		b.t.Fatal(err)
	}
	killed.Wait()
}

// witness is a bench with a server that works on nothing, and with which the log is followed all along.
func witness(t *testing.T) (b *bench, thread string) {
	t.Helper()
	b = database(t)
	w, err := start(t.Context(), b.DB, newLocal(t, t.TempDir()), nil)
	if err != nil {
		t.Fatal(detail(err))
	}
	b.server = w
	thread = b.thread(sandbox.Recipe{})
	if err := w.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	t.Cleanup(w.log.Close)
	return b, thread
}

// live is what a watcher has seen of a command's output, put together by its offsets.
func (b *bench) live(thread, commandID string, enough func(string) bool) string {
	b.t.Helper()
	var seen []byte
	b.follow(thread, func(ev stream.Event) bool {
		if d := ev.Delta; d != nil && d.EntryID == entry.ResultID(commandID) {
			if d.Offset > int64(len(seen)) {
				b.t.Fatalf("bytes %d to %d are missing", len(seen), d.Offset)
			}
			if known := int64(len(seen)) - d.Offset; known < int64(len(d.Data)) {
				if known > 0 && string(seen[d.Offset:]) != string(d.Data[:known]) {
					b.t.Fatalf("at %d it is %q, and then %q", d.Offset, seen[d.Offset:], d.Data[:known])
				}
				seen = append(seen, d.Data[known:]...)
			}
		}
		return enough(string(seen)) || ev.Entry != nil && ev.Entry.ID == entry.ResultID(commandID)
	})
	return string(seen)
}

func TestACommandOutlivesAKilledServer(t *testing.T) {
	t.Parallel()
	b, th := witness(t)
	dir := t.TempDir()
	b.kill(dir, th, "echo ran >> runs; echo begun; echo $$ > pid; until test -e go; do sleep 0.05; done; echo ended >&2; exit 7", "begun\n")
	seen := make(chan string, 1)
	go func() {
		seen <- b.live(th, "left", func(s string) bool { return strings.HasSuffix(s, "ended\n") })
	}()

	b.driver = newLocal(t, dir)
	first := b.server
	b.server = b.serve()
	if r := b.sh(th, "kill -0 $(cat pid) && touch go"); r.ExitCode != 0 {
		t.Errorf("the command no longer runs: %+v", r)
	}
	r := b.result(th, "left")
	if r.ExitCode != 7 || r.Output != "begun\nended\n" || r.OutputBytes != 12 || r.Error != "" || r.SandboxID == "" || r.Cancelled || r.TimedOut {
		t.Errorf("the result is %+v", r)
	}
	b.server, first = first, b.server
	if got := <-seen; got != "begun\nended\n" && got != "begun\n" { // the result may come first
		t.Errorf("the watcher has seen %q", got)
	}
	b.server = first
	b.serve() // one more that looks for orphans
	b.swept(b.Owner(t))
	if r := b.sh(th, "cat runs"); r.Output != "ran\n" || b.results(th, "left") != 1 {
		t.Errorf("the runs are %q and there are %d results, want one of each", r.Output, b.results(th, "left"))
	}
	left, err := filepath.Glob(filepath.Join(dir, "boxes", "*", "records", "*"))
	if err != nil || len(left) > 1 { // the last one's may be there yet
		t.Errorf("the records %v are left (%v)", left, err)
	}
}

func TestACommandThatAKilledServerLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line, printed string
		timeout       time.Duration
		meanwhile     func(b *bench, dir, thread string) // while there is no server
		then          func(b *bench, thread string)
		want          func(r entry.CommandResult) bool
	}{
		"and that ends while there is none has its exit code": {
			line: "echo begun; sleep 0.5; echo ended; exit 3", printed: "begun\n",
			want: func(r entry.CommandResult) bool {
				return r.ExitCode == 3 && r.Output == "begun\nended\n" && r.DurationMS >= 500
			},
		},
		"is cancelled": {
			line: "echo begun; sleep 1000", printed: "begun\n",
			then: func(b *bench, thread string) { b.cancel(thread, "left") },
			want: func(r entry.CommandResult) bool { return r.Cancelled && r.Output == "begun\n" },
		},
		"and that is cancelled while there is none is ended by the next": {
			line: "echo begun; sleep 1000", printed: "begun\n",
			meanwhile: func(b *bench, _, thread string) {
				// The queue has not noticed yet that its server is gone.
				_, err := b.Owner(b.t).Exec(b.t.Context(), "update "+db.JobSchema+".river_job set state = 'available' where state = 'running'")
				if err != nil {
					b.t.Fatal(err)
				}
				b.cancel(thread, "left")
				if b.results(thread, "left") != 0 {
					b.t.Error("the log has a result while the command runs")
				}
			},
			want: func(r entry.CommandResult) bool { return r.Cancelled && r.Output == "begun\n" && r.SandboxID != "" },
		},
		"has its time limit from its beginning": {
			line: "echo begun; sleep 1000", printed: "begun\n", timeout: 5 * time.Second,
			want: func(r entry.CommandResult) bool {
				return r.TimedOut && r.ExitCode == 124 && r.Output == "begun\n" && r.DurationMS >= 5000
			},
		},
		"has all of a large output": {
			line: "echo begun; seq 1 200000; until test -e /tmp/never -o -e go; do sleep 0.05; done; seq 1 200000", printed: "200000\n",
			then: func(b *bench, thread string) { b.sh(thread, "touch go") },
			want: func(r entry.CommandResult) bool {
				return r.ExitCode == 0 && r.Truncated && r.OutputBytes == 2*1288895+6 && r.ArtifactBytes == 2*1288895+6 && !r.ArtifactPart &&
					strings.HasPrefix(r.Output, "begun\n1\n2\n") && strings.HasSuffix(r.OutputTail, "\n199999\n200000\n")
			},
		},
		"is reported as interrupted when it ended with its sandbox": {
			line: "echo begun; sleep 1000", printed: "begun\n",
			meanwhile: func(b *bench, dir, _ string) {
				d, err := local.New(b.t.Context(), localConfig(dir))
				if err == nil {
					err = d.Halt(b.t.Context())
				}
				if err != nil {
					b.t.Fatal(detail(err))
				}
			},
			want: func(r entry.CommandResult) bool {
				return r.ExitCode == -1 && r.Output == "begun\n" && strings.Contains(r.Error, "the server stopped while the command was running") && r.SandboxID != ""
			},
		},
		"is reported as interrupted when its sandbox is gone": {
			line: "echo begun; sleep 1000", printed: "begun\n",
			meanwhile: func(b *bench, dir, _ string) {
				d, err := local.New(b.t.Context(), localConfig(dir))
				if err != nil {
					b.t.Fatal(detail(err))
				}
				boxes, err := d.List(b.t.Context(), sandbox.Labels{})
				if err != nil || len(boxes) != 1 {
					b.t.Fatal(boxes, err)
				}
				if err := d.Destroy(b.t.Context(), boxes[0].Ref); err != nil {
					b.t.Fatal(detail(err))
				}
				if err := d.Halt(b.t.Context()); err != nil {
					b.t.Fatal(detail(err))
				}
			},
			want: func(r entry.CommandResult) bool {
				return r.ExitCode == -1 && strings.Contains(r.Error, "the server stopped while the command was running") && r.SandboxID != "" &&
					!strings.Contains(r.Outcome(), "did not run")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, th := witness(t)
			dir := t.TempDir()
			b.kill(dir, th, fmt.Sprintf("%s\n%d", c.line, c.timeout.Milliseconds()), c.printed)
			if c.meanwhile != nil {
				c.meanwhile(b, dir, th)
			}
			b.driver = newLocal(t, dir)
			b.server = b.serve()
			if c.then != nil {
				c.then(b, th)
			}
			if r := b.result(th, "left"); !c.want(r) {
				r.Output, r.OutputTail = r.Output[:min(len(r.Output), 100)], r.OutputTail[max(0, len(r.OutputTail)-100):]
				t.Errorf("the result is %+v", r)
			}
		})
	}
}

func TestAServerThatStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(sandbox.Recipe{})
	slow := b.thread(sandbox.Recipe{Setup: "test -e /tmp/never || sleep 2"})
	running := b.ask(th, "echo ran >> runs; echo begun; until test -e go; do sleep 0.05; done; echo ended")
	b.printed(th, running, "begun\n")
	waiting := b.ask(slow, "echo worked")
	b.preparing(slow)
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	queued, cancelled := b.ask(th, "cat runs"), b.ask(th, "echo never")
	b.cancel(th, cancelled)

	t.Run("leaves the running commands alone", func(t *testing.T) {
		if n := b.results(th, running); n != 0 {
			t.Errorf("the log has %d results", n)
		}
	})
	t.Run("leaves no sandbox half built", func(t *testing.T) {
		if there, err := b.driver.List(t.Context(), sandbox.Labels{Thread: slow}); err != nil || len(there) != 0 {
			t.Errorf("%v is left (%v)", there, err)
		}
	})
	t.Run("records at once that a command waiting for a server was cancelled", func(t *testing.T) {
		if r := b.result(th, cancelled); !r.Cancelled || r.Output != "" {
			t.Errorf("the result is %+v", r)
		}
	})
	b.server = b.serve()
	t.Run("leaves what has not begun to the next server", func(t *testing.T) {
		if r := b.result(th, queued); r.Output != "ran\n" {
			t.Errorf("the result of the queued command is %+v", r)
		}
		if r := b.result(slow, waiting); r.Output != "worked\n" {
			t.Errorf("the result of the command that waited for its sandbox is %+v", r)
		}
		if n := b.results(th, cancelled); n != 1 {
			t.Errorf("the log has %d results of the cancelled command, want 1", n)
		}
	})
	t.Run("the next server continues the running commands", func(t *testing.T) {
		b.sh(th, "touch go")
		if r := b.result(th, running); r.ExitCode != 0 || r.Output != "begun\nended\n" || r.Error != "" || b.results(th, running) != 1 {
			t.Errorf("the result is %+v, and there are %d results, want 1", r, b.results(th, running))
		}
		if r := b.sh(th, "cat runs"); r.Output != "ran\n" {
			t.Errorf("the runs are %q, want one", r.Output)
		}
	})
}

func TestAServerThatEndsItsCommands(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newLocal(t, t.TempDir())
	b.tune = func(c *dispatch.Config) { c.EndCommands = true }
	b.server = b.serve()
	th := b.thread(sandbox.Recipe{})
	polite := b.ask(th, "trap 'echo goodbye; exit 5' TERM; echo begun; while :; do sleep 0.05; done")
	deaf := b.ask(th, "trap '' TERM; echo begun; while :; do sleep 0.05; done")
	b.printed(th, polite, "begun\n")
	b.printed(th, deaf, "begun\n")
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	for id, said := range map[string]string{polite: "goodbye\n", deaf: "begun\n"} { // the shell also tells that its sleep was ended
		r := b.result(th, id)
		if r.ExitCode != -1 || !strings.Contains(r.Output, said) || !strings.Contains(r.Error, "the server stopped while the command was running") || r.Cancelled || r.SandboxID == "" {
			t.Errorf("the result is %+v", r)
		}
	}
	b.server = b.serve()
	if r := b.sh(th, "ps ax | grep -c '[s]leep 0.05'"); r.Output != "0\n" {
		t.Errorf("%s processes are left", r.Output)
	}
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
				if err := s.dispatcher.Commands.Cancel(t.Context(), b.scope, th, id, command.Interrupt); err != nil {
					t.Fatal(detail(err))
				}
			}
			if r := b.result(th, id); !r.Cancelled {
				t.Errorf("the result is %+v", r)
			}
		}
	})
	t.Run("leave each other's commands alone, even when the database drops every connection", func(t *testing.T) {
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
			t.Errorf("the log has %d results", n)
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
		t.Errorf("the result is %+v, and there are %d results, want 1", r, b.results(th, id))
	}
}

func TestASandboxOnAnotherMachine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	here, there := b.driver, newLocal(t, t.TempDir())
	th := b.thread(sandbox.Recipe{})
	running := b.ask(th, "echo begun; sleep 1000")
	b.printed(th, running, "begun\n")
	made, err := b.threads.Get(t.Context(), b.scope, th)
	if err != nil {
		t.Fatal(err)
	}
	first := b.server
	b.driver = there
	b.server = b.serve()
	t.Run("is used through any server", func(t *testing.T) {
		for _, s := range []*server{first, b.server} {
			said, err := s.dispatcher.Commands.Run(t.Context(), b.scope, th, "", entry.Command{Command: "echo here"})
			if err != nil {
				t.Fatal(detail(err))
			}
			if r := b.result(th, said.ID); r.Output != "here\n" || r.SandboxID != made.Sandbox {
				t.Errorf("the result is %+v", r)
			}
		}
	})
	if err := first.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	waiting := b.ask(th, "echo works")
	t.Run("is waited for while that machine is away", func(t *testing.T) {
		if _, err := b.Owner(t).Exec(t.Context(), "update machines set seen_at = now() - interval '1 minute' where id = $1", here.(sandbox.Bound).Machine()); err != nil {
			t.Fatal(err)
		}
		b.follow(th, func(ev stream.Event) bool {
			if ev.Entry == nil {
				return false
			}
			w, ok := entry.As[entry.CommandWaiting](*ev.Entry)
			return ok && w.CommandID == waiting && w.For == entry.WaitMachine
		})
		if b.results(th, waiting)+b.results(th, running) != 0 {
			t.Errorf("the log says %s", b.story(th))
		}
	})
	t.Run("that is destroyed is replaced, and what ran there is reported as interrupted", func(t *testing.T) {
		for range 2 {
			if box, err := b.dispatcher.DestroySandbox(t.Context(), b.scope, made.Sandbox); err != nil || box.Status != sandbox.StatusDead {
				t.Fatalf("the sandbox is %s (%s), want it dead", box.Status, detail(err))
			}
		}
		if r := b.result(th, waiting); r.Output != "works\n" || r.SandboxID == made.Sandbox {
			t.Errorf("the result is %+v", r)
		}
		if r := b.result(th, running); r.ExitCode != -1 || r.SandboxID != made.Sandbox || !strings.Contains(r.Error, "the server stopped") {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("is deleted there by that machine's next server", func(t *testing.T) {
		if left, err := here.List(t.Context(), sandbox.Labels{Thread: th}); err != nil || len(left) != 1 {
			t.Fatalf("the sandboxes there are %v (%v), want one", left, err)
		}
		b.driver = here
		b.serve()
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			left, err := here.List(t.Context(), sandbox.Labels{Thread: th})
			if err == nil && len(left) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%v are left (%v)", left, err)
			}
		}
	})
}

func TestAMachineThatIsGoneForGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	here, there := b.driver, newLocal(t, t.TempDir())
	th := b.thread(sandbox.Recipe{})
	running := b.ask(th, "echo begun; sleep 1000")
	b.printed(th, running, "begun\n")
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	if _, err := b.Owner(t).Exec(t.Context(), "update machines set seen_at = now() - interval '25 hours' where id = $1", here.(sandbox.Bound).Machine()); err != nil {
		t.Fatal(err)
	}
	b.driver = there
	b.server = b.serve()
	if r := b.sh(th, "echo works"); r.Output != "works\n" || r.Error != "" {
		t.Errorf("the result is %+v", r)
	}
	if r := b.result(th, running); r.ExitCode != -1 || !strings.Contains(r.Error, "the server stopped") {
		t.Errorf("the result of the command that ran there is %+v", r)
	}
	resumed := 0
	for _, e := range b.entries(th) {
		if e.Type == (entry.SandboxResumed{}).Type() {
			resumed++
		}
	}
	if resumed != 1 {
		t.Errorf("the log says %s", b.story(th))
	}
}

func TestDraining(t *testing.T) {
	t.Parallel()
	b := setup(t)
	th := b.thread(sandbox.Recipe{})
	first := b.server
	commandID := b.ask(th, "echo begun; until test -e go; do sleep 0.05; done")
	b.printed(th, commandID, "begun\n")
	unwanted := b.ask(th, "echo begun; sleep 1000")
	b.printed(th, unwanted, "begun\n")
	other := b.serve()

	t.Run("leaves a command that runs too long until the stop", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := first.dispatcher.Drain(ctx); err != nil {
			t.Errorf("draining: %s", detail(err))
		}
		if n := first.dispatcher.Commands.Running(); n != 2 {
			t.Errorf("%d commands run, want 2", n)
		}
	})
	t.Run("learns that a command is cancelled", func(t *testing.T) {
		if err := other.dispatcher.Commands.Cancel(t.Context(), b.scope, th, unwanted, command.Interrupt); err != nil {
			t.Fatal(detail(err))
		}
		// Otherwise the queue itself would find the cancellation, within a minute.
		if _, err := b.Owner(t).Exec(t.Context(), "update "+db.JobSchema+".river_job set metadata = metadata - 'cancel_attempted_at' where args->>'command' = $1", unwanted); err != nil {
			t.Fatal(err)
		}
		if r := b.result(th, unwanted); !r.Cancelled {
			t.Errorf("the result is %+v", r)
		}
	})
	t.Run("waits for the command while another server starts new ones", func(t *testing.T) {
		drained := make(chan error, 1)
		go func() { drained <- first.dispatcher.Drain(t.Context()) }()
		b.server = other
		b.ask(th, "touch go")
		if err := <-drained; err != nil {
			t.Errorf("draining: %s", detail(err))
		}
		if n := first.dispatcher.Commands.Running(); n != 0 {
			t.Errorf("%d commands run, want none", n)
		}
		if n := b.results(th, commandID); n != 1 {
			t.Errorf("the log has %d results of the command, want 1", n)
		}
	})
	t.Run("starts no more commands", func(t *testing.T) {
		if r := b.sh(th, "true"); r.ExitCode != 0 {
			t.Errorf("the result is %+v", r)
		}
		if err := first.stop(t.Context()); err != nil {
			t.Errorf("stopping: %s", detail(err))
		}
	})
}
