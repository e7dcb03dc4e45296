//go:build linux

package dispatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// through starts one more server, which reaches the database only through a proxy.
func (b *bench) through() (*server, *dbtest.Proxy) {
	b.t.Helper()
	proxy := dbtest.NewProxy(b.t, b.ServerURL)
	far, to := *b, *b.Database
	to.ServerURL, far.Database, far.conns = proxy.URL, &to, poolSize
	return far.serve(), proxy
}

// disconnect cuts a server off from the database until it counts as dead and another one has taken over its job.
func (b *bench) disconnect(proxy *dbtest.Proxy, job int64, to *server) {
	b.t.Helper()
	proxy.Shut(true)
	proxy.Cut("")
	b.comes("the other server takes the job over", func() bool {
		if _, err := b.DB.Pool().Exec(b.t.Context(), "insert into "+db.JobSchema+".river_job (kind, args, max_attempts) values ('sweep_commands', '{}', 1)"); err != nil {
			b.t.Fatal(err)
		}
		return b.holder(job) == "running "+to.dispatcher.Server()
	})
}

// comes waits until a condition holds.
func (b *bench) comes(what string, is func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("it does not come to that: %s", what)
		}
	}
}

// holder returns the state of a job, and the server that last took it.
func (b *bench) holder(job int64) (is string) {
	b.t.Helper()
	err := b.DB.Pool().QueryRow(b.t.Context(), "select state || ' ' || coalesce(attempted_by[array_upper(attempted_by, 1)], '') from "+db.JobSchema+".river_job where id = $1", job).Scan(&is)
	if err != nil {
		b.t.Fatal(err)
	}
	return is
}

// runningJob returns the running job of a kind.
func (b *bench) runningJob(kind string) (id int64) {
	b.t.Helper()
	err := b.Owner(b.t).QueryRow(b.t.Context(), "select id from "+db.JobSchema+".river_job where kind = $1 and state = 'running'", kind).Scan(&id)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// TestATurnThatAnotherServerTookOver: a server that comes back must leave the turn to the other one.
func TestATurnThatAnotherServerTookOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// answers means that the model answers while the server is away.
		answers bool
		then    func(r *botBench, asked *modeltest.Request, answer func())
	}{
		"while its model is called can be stopped": {then: func(r *botBench, asked *modeltest.Request, _ func()) {
			r.stopAll(1)
			if e := r.end("q"); e.Outcome != entry.TurnStopped || e.StoppedBy != r.scope.Agent {
				r.t.Errorf("it ends with %+v", e)
			}
			select {
			case <-asked.Gone:
			case <-time.After(patience):
				r.t.Error("the model is still being asked")
			}
		}},
		"with an answer that could not be written has one answer": {answers: true, then: func(r *botBench, _ *modeltest.Request, answer func()) {
			answer()
			if c := r.answer("q"); c.Text != "from the second" {
				r.t.Errorf("it answers %q", c.Text)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := []chan struct{}{make(chan struct{}), make(chan struct{})}
			r := benchWithBot(database(t), func(q *modeltest.Request) modeltest.Reply {
				if q.Seen >= len(answers) {
					return modeltest.Reply{Text: "once more"}
				}
				if c.answers {
					<-answers[q.Seen]
				}
				return modeltest.Reply{Text: "from the " + []string{"first", "second"}[q.Seen], Hold: !c.answers}
			})
			r.driver = newGated()
			tune := r.tune
			r.tune = func(c *dispatch.Config) { tune(c); hasty(c) }
			first, proxy := r.through()
			r.server = first
			r.th = r.conversation()
			r.says("q", "@bot hello")
			r.awaitRequests(1)
			second := r.serve()
			r.server = second
			job := r.runningJob("turn")
			r.disconnect(proxy, job, second)
			r.awaitRequests(2)
			asked := r.models.Requests()
			if c.answers {
				close(answers[0])
				<-asked[0].Gone
			}
			proxy.Shut(false)
			r.comes("the first server leaves the turn", func() bool { return first.dispatcher.Turning() == 0 })
			select {
			case <-asked[0].Gone:
			case <-time.After(patience):
				t.Error("the first server still asks the model")
			}
			if err := first.stop(t.Context()); err != nil { // which writes what it still has for the queue
				t.Fatal(detail(err))
			}
			if err := second.dispatcher.ReviveTurns(t.Context()); err != nil {
				t.Fatal(detail(err))
			}
			if is := r.holder(job); is != "running "+second.dispatcher.Server() {
				t.Errorf("the job is %s, want it running on %s", is, second.dispatcher.Server())
			}
			c.then(r, asked[1], func() { close(answers[1]) })
			for _, problem := range r.audit(r.th, "q") {
				t.Error(problem)
			}
			if n := len(r.models.Requests()); n != 2 {
				t.Errorf("the model was asked %d times", n)
			}
		})
	}
}

// TestATurnThatWasBegunAgain: only the server that began it last writes its steps.
func TestATurnThatWasBegunAgain(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]modeltest.Reply{
		"does not answer twice":   {Text: "from the first"},
		"does not take two steps": {Text: "from the first", Calls: []modeltest.Call{{Name: "list_threads", Arguments: "{}"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{})
			r := bots(t, func(q *modeltest.Request) modeltest.Reply {
				if q.Seen > 0 {
					return modeltest.Reply{Text: "from the second"}
				}
				<-begun
				return reply
			})
			r.says("q", "@bot hello")
			r.awaitRequests(1)
			if _, err := r.Owner(t).Exec(t.Context(), "update turns set attempts = attempts + 1"); err != nil {
				t.Fatal(err)
			}
			close(begun)
			if c := r.answer("q"); c.Text != "from the second" || c.Turn.Steps != 1 || c.Turn.Usage.Input != 200 {
				t.Errorf("it answers %q after %+v", c.Text, *c.Turn)
			}
			for _, problem := range r.audit(r.th, "q") {
				t.Error(problem)
			}
		})
	}
}

func TestACommandThatAnotherServerTookOver(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver, b.tune = realBoxes(t), hasty
	first, proxy := b.through()
	b.server = first
	th := b.thread(sandbox.Recipe{})
	id := b.ask(th, "echo ran >> runs; echo begun; until test -e go; do sleep 0.05; done; echo ended")
	b.printed(th, id, "begun\n")
	second := b.serve()
	b.server = second
	job := b.runningJob("run_command")
	b.disconnect(proxy, job, second)
	proxy.Shut(false)
	b.comes("the first server is back", func() bool {
		_, err := first.threads.Get(t.Context(), b.scope, th)
		return err == nil
	})
	if err := first.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	if is := b.holder(job); is != "running "+second.dispatcher.Server() {
		t.Errorf("the job is %s, want it running on %s", is, second.dispatcher.Server())
	}
	b.sh(th, "touch go")
	if r := b.result(th, id); r.ExitCode != 0 || r.Output != "begun\nended\n" || r.Error != "" || b.results(th, id) != 1 {
		t.Errorf("the result is %+v, and there are %d results, want 1", r, b.results(th, id))
	}
	if r := b.sh(th, "cat runs"); strings.Count(r.Output, "ran") != 1 {
		t.Errorf("the runs are %q, want one", r.Output)
	}
}
