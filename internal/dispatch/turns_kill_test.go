//go:build linux

package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// place is a point in the work on a question at which the server, or Postgres, is killed.
type place struct {
	what string
	// round numbers the kill: all turns of a round are brought to their places and hit at once. Serial turns are brought
	// there one by one, in the order of the list and after the others, because a server that is held there stops doing some
	// other things.
	round  int
	serial bool
	// row is the row whose write is held, as [holds] names it. It belongs to the question's thread; with side, to the thread
	// in which the bot says something; with name, to the thread that it creates.
	row        string
	side, name bool
	// committed means that the row is committed although its server is dead.
	committed bool
	// model answers the model's calls, counted from 0, for which it returns true. here is called when the place is reached,
	// and returns after the kill.
	model func(call int, here func()) (modeltest.Reply, bool)
	// delta means that the place is reached when a piece of the answer is seen.
	delta bool
	// word begins the question. Defaults to "@bot".
	word string
	// then runs after the question was asked.
	then func(s *scene)
	// ends is the outcome if there is to be no answer.
	ends string
}

// stays holds a model's call without marking a place.
func stays(n int) func(int, func()) (modeltest.Reply, bool) {
	return func(call int, here func()) (modeltest.Reply, bool) {
		if call == n {
			here()
		}
		return modeltest.Reply{}, false
	}
}

var places = []place{
	{what: "the turn is about to begin", row: "begin"},
	{what: "the model is called", model: stays(0)},
	{what: "a piece of the answer was seen", delta: true, model: func(call int, _ func()) (modeltest.Reply, bool) {
		return modeltest.Reply{Text: "one two three four", Hold: true}, call == 0
	}},
	{what: "the answer was cut, and the model is called again", model: func(call int, here func()) (modeltest.Reply, bool) {
		if call == 1 {
			here()
		}
		return modeltest.Reply{Text: "one two three four", Cut: 3}, call == 0
	}},
	{what: "a step is about to be committed", row: "pi.assistant"},
	{what: "the model is called with the results", model: stays(1)},
	{what: "a tool is about to create a thread", row: "thread", name: true},
	{what: "the answer is about to be committed", row: "chat"},
	{what: "the job of an answered turn is about to end", row: "done"},
	{what: "a failure is about to be committed", row: "signal.dispatch.turn_ended", ends: entry.TurnFailed, model: func(int, func()) (modeltest.Reply, bool) {
		return modeltest.Refused(modeltest.Messages, 401), true
	}},
	{what: "a stopped turn is about to end", row: "signal.dispatch.turn_ended", ends: entry.TurnStopped, model: stays(0), then: func(s *scene) {
		s.awaitHere()
		s.r.th = s.th
		s.r.stopAll(1)
	}},
	{what: "a bot that listens asks whether it should speak", word: "soon", model: stays(0)},
	{what: "a bot that listens is about to begin", word: "soon", row: "gated"},
	{what: "a question is about to become a turn", serial: true, row: "ask"},

	{what: "a tool is about to run a command", round: 1, serial: true, row: "command"},
	{what: "a result is about to be committed", round: 1, serial: true, row: "pi.tool_result"},

	{what: "a command's result is about to be committed", round: 2, serial: true, row: "command_result"},
	{what: "a question is about to be passed to a turn", round: 2, serial: true, row: "signal.dispatch.turn_steered", model: stays(0), then: func(s *scene) {
		s.awaitHere()
		s.say("more", "@bot and be quick")
	}},

	{what: "a tool is about to say something", round: 3, row: "chat", side: true},

	// A commit can outlive only the death of a server; the death of Postgres undoes it.
	{what: "a result is committed by a dead server", round: 4, row: "pi.tool_result", committed: true},
	{what: "something is said by a dead server", round: 5, row: "chat", side: true, committed: true},
}

// holds makes the database block every writer of a row on which a test has a lock. Rows are named by their kind and owner.
const holds = `
	create function hold() returns trigger language plpgsql as $$
	declare r jsonb := to_jsonb(new);
	begin
	  if tg_table_name <> 'entries' and tg_table_name not like 'entries\_%' or r->>'id' like 'turn.%' then
	    perform pg_advisory_xact_lock_shared(hashtextextended(coalesce(tg_argv[0], r->>'type') || ' ' ||
	      coalesce(r->>'name', r->>'thread_id', r->'args'->>'thread', r->>'stream_id'), 0));
	  end if;
	  return new;
	end $$;
	create trigger hold before insert on entries for each row execute function hold();
	create trigger hold before insert on threads for each row when (new.name is not null) execute function hold('thread');
	create trigger hold_ask before insert on turns for each row execute function hold('ask');
	create trigger hold_begin before update on turns for each row when (old.status = 'queued' and new.status = 'running') execute function hold('begin');
	create trigger hold_gated before update on turns for each row when (old.status = 'delayed' and new.status = 'queued') execute function hold('gated');
	create trigger hold_done before update on ` + db.JobSchema + `.river_job for each row when (new.kind = 'turn' and new.state = 'completed') execute function hold('done');`

// waiters returns the backends that wait for a lock with a key.
const waiters = `
	select pid from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())
	  and (classid::bigint << 32) | objid::bigint = $1`

// scene is one question at its place.
type scene struct {
	place
	r        *botBench
	th, side string
	// id is the question's id, and also the name of the thread that the bot creates.
	id string
	// key is the key of the lock.
	key int64

	here, hit    chan struct{}
	came, struck sync.Once
	mu           sync.Mutex
	calls        int
}

// strike releases the waiting model.
func (s *scene) strike() {
	s.struck.Do(func() {
		close(s.hit)
		if s.delta {
			s.r.letGo()
		}
	})
}

func (s *scene) say(id, text string) {
	s.r.th = s.th
	s.r.says(id, text)
}

// awaitHere waits until the model has reached the place.
func (s *scene) awaitHere() {
	select {
	case <-s.here:
	case <-time.After(patience):
		s.r.t.Fatalf("%s: the model is not called; the log says %s", s.what, s.r.story(s.th))
	}
}

// killBench brings turns to their places.
type killBench struct {
	*botBench
	owner *pgx.Conn
	env   string

	mu     sync.Mutex
	scenes map[string]*scene
}

// reply answers as the model of all scenes.
func (th *killBench) reply(q *modeltest.Request) modeltest.Reply {
	work := workOf(q)
	th.mu.Lock()
	s := th.scenes[work.id]
	th.mu.Unlock()
	if s == nil {
		return modeltest.Reply{Text: "what?"}
	}
	if s.model != nil {
		s.mu.Lock()
		call := s.calls
		s.calls++
		s.mu.Unlock()
		reply, ok := s.model(call, func() {
			s.came.Do(func() { close(s.here) })
			<-s.hit
		})
		if ok {
			return reply
		}
	}
	return work.reply()
}

// build prepares a killBench on a bench whose server is running.
func (th *killBench) build() {
	t := th.t
	env, err := th.boxes.CreateEnvironment(t.Context(), th.scope, "an environment", sandbox.Recipe{Driver: "local"})
	if err != nil {
		t.Fatal(detail(err))
	}
	th.env = env.ID
	th.enter()
	if _, err := th.owner.Exec(t.Context(), holds); err != nil {
		t.Fatal(err)
	}
}

// enter connects to the database, past row-level security.
func (th *killBench) enter() { th.owner = th.Owner(th.t) }

// begin asks a question whose turn will reach a place.
func (th *killBench) begin(p place) *scene {
	t := th.t
	t.Helper()
	s := &scene{place: p, r: th.botBench, th: th.threadWith(th.env), side: th.conversation(), here: make(chan struct{}), hit: make(chan struct{})}
	th.mu.Lock()
	s.id = "q" + strconv.Itoa(len(th.scenes))
	th.scenes[s.id] = s
	th.mu.Unlock()
	t.Cleanup(s.strike)
	if s.row != "" {
		err := th.owner.QueryRow(t.Context(), `
			with key as (
			  select hashtextextended($1 || ' ' || case when $4 then $5 when $1 in ('ask', 'begin', 'gated', 'done') then $2
			    else (select stream_id::text from decisions where thread_id = case when $3 then $6 else $2 end) end, 0) as key)
			select key from key, lateral (select pg_advisory_lock(key)) l`, s.row, s.th, p.side, p.name, s.id, s.side).Scan(&s.key)
		if err != nil {
			t.Fatal(err)
		}
	}
	word := p.word
	if word == "" {
		word = "@bot"
	}
	s.say(s.id, fmt.Sprintf("%s do %s/%s", word, s.side, s.id))
	return s
}

// arrive waits until the turn has reached the place.
func (th *killBench) arrive(s *scene) {
	th.t.Helper()
	if s.then != nil {
		s.then(s)
	}
	switch {
	case s.row != "":
		for deadline := time.Now().Add(patience); len(th.waiting(s)) == 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				th.t.Fatalf("%s: nobody comes; the log says %s", s.what, th.story(s.th))
			}
		}
	case s.delta:
		th.follow(s.th, func(ev stream.Event) bool { return ev.Delta != nil })
	default:
		s.awaitHere()
	}
}

// waiting returns the backends that wait for a scene's row.
func (th *killBench) waiting(s *scene) []int {
	th.t.Helper()
	rows, err := th.owner.Query(th.t.Context(), waiters, s.key)
	if err != nil {
		th.t.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		th.t.Fatal(err)
	}
	return pids
}

// clear lets all work continue after a server was killed.
func (th *killBench) clear(scenes []*scene) {
	for _, s := range scenes {
		if s.row == "" {
			continue
		}
		for _, pid := range th.waiting(s) {
			if s.committed {
				continue
			}
			if _, err := th.owner.Exec(th.t.Context(), "select pg_terminate_backend($1, 10000)", pid); err != nil {
				th.t.Fatal(err)
			}
		}
	}
	if _, err := th.owner.Exec(th.t.Context(), "select pg_advisory_unlock_all()"); err != nil {
		th.t.Fatal(err)
	}
}

// rounds kills at every place. only selects the places.
func (th *killBench) rounds(only func(place) bool, kill func(), revive func(scenes []*scene)) {
	for round := 0; ; round++ {
		var scenes []*scene
		for _, serial := range []bool{false, true} {
			for _, p := range places {
				if p.round != round || p.serial != serial || !only(p) {
					continue
				}
				s := th.begin(p)
				if scenes = append(scenes, s); serial {
					th.arrive(s)
				}
			}
			if !serial {
				for _, s := range scenes {
					th.arrive(s)
				}
			}
		}
		if scenes == nil {
			return
		}
		kill()
		for _, s := range scenes {
			s.strike()
		}
		revive(scenes)
		for _, s := range scenes {
			th.check(s)
		}
	}
}

// check waits for the end of a scene and checks it.
func (th *killBench) check(s *scene) {
	t := th.t
	t.Helper()
	asked := []string{s.id}
	if s.row == (entry.TurnSteered{}).Type() {
		asked = append(asked, "more")
	}
	for _, problem := range th.audit(s.th, asked...) {
		t.Errorf("killed when %s: %s", s.what, problem)
	}
	var ended []string
	th.th = s.th
	for _, e := range of[entry.TurnEnded](th.entries()) {
		ended = append(ended, e.Outcome)
	}
	if want := slices.DeleteFunc([]string{s.ends}, func(o string) bool { return o == "" }); !slices.Equal(ended, want) {
		t.Errorf("killed when %s: it ends with %q, want %q; the log says %s", s.what, ended, want, th.story(s.th))
	}
	effects := 1
	if s.ends != "" {
		effects = 0
	}
	th.th = s.side
	if said := of[entry.Chat](th.entries()); len(said) != effects {
		t.Errorf("killed when %s: it said %v, want %d", s.what, said, effects)
	}
	var created int
	if err := th.owner.QueryRow(t.Context(), "select count(*) from threads where name = $1", s.id).Scan(&created); err != nil || created != effects {
		t.Errorf("killed when %s: it created %d threads, want %d: %v", s.what, created, effects, err)
	}
	th.th = s.th
	if ran := of[entry.Command](th.entries()); len(ran) != effects {
		t.Errorf("killed when %s: it ran %v, want %d; the log says %s", s.what, ran, effects, th.story(s.th))
	}
}

// audit waits until questions of a thread are answered, and returns the defects in that thread: a question without exactly
// one answer or reported failure, a step or a result that is missing or duplicated, a turn or a job that has not ended.
func (r *botBench) audit(th string, asked ...string) (problems []string) {
	r.t.Helper()
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	missing := map[string]bool{}
	for _, id := range asked {
		missing[id] = true
	}
	r.follow(th, func(ev stream.Event) bool {
		if ev.Entry != nil {
			for _, id := range answersTo(*ev.Entry) {
				delete(missing, id)
			}
		}
		return len(missing) == 0
	})
	owner := r.Owner(r.t)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var turns, jobs int
		err := owner.QueryRow(r.t.Context(), `
			select (select count(*) from turns where thread_id = $1 and ended_at is null),
			  (select count(*) from `+db.JobSchema+`.river_job where kind = 'turn' and args->>'thread' = $1 and state not in ('completed', 'cancelled'))`, th).Scan(&turns, &jobs)
		if err == nil && turns == 0 && jobs == 0 {
			break
		}
		if time.Now().After(deadline) {
			problem("%d turns and %d jobs have not ended (%v)", turns, jobs, err)
			break
		}
	}
	times, started := map[string]int{}, map[string]int{}
	steps, results, commands, ended := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	list := r.bench.entries(th)
	for _, e := range list {
		for _, id := range answersTo(e) {
			times[id]++
		}
		turn := entry.TurnOf(e.ID)
		p, _ := entry.Decode(e)
		switch p := p.(type) {
		case entry.TurnStarted:
			started[p.TurnID]++
		case entry.PiAssistant:
			steps[turn]++
			if p.StopReason == entry.PiToolUse {
				for i := range p.Calls() {
					results[entry.CallResultID(e.ID, i)]--
				}
			}
		case entry.PiToolResult:
			results[e.ID]++
		case entry.Command:
			commands[e.ID]--
		case entry.CommandResult:
			commands[p.CommandID]++
		case entry.Chat:
			if p.Turn != nil && p.Turn.Steps != steps[turn]+1 {
				problem("the answer has %d steps, and says %d", steps[turn]+1, p.Turn.Steps)
			}
			ended[turn]++
		case entry.TurnEnded:
			ended[turn]++
		}
	}
	for _, id := range asked {
		if times[id] != 1 {
			problem("%s has %d answers", id, times[id])
		}
	}
	for id, n := range started {
		if n != 1 || ended[id] != 1 {
			problem("the turn %s began %d times and ended %d times", id, n, ended[id])
		}
	}
	for what, counts := range map[string]map[string]int{"call": results, "command": commands} {
		for id, n := range counts {
			if n != 0 {
				problem("the %s %s has %d results", what, id, n+1)
			}
		}
	}
	if problems != nil {
		problem("the log says %s", r.story(th))
	}
	return problems
}

// work is a bot's reaction to a question of the form "@bot do THREAD/ID": it says something in that thread, creates one, runs
// a command if the question's thread has an environment, and answers.
type work struct {
	asked      string
	target, id string
	done       int
	gate       bool
}

func workOf(q *modeltest.Request) (w work) {
	for _, m := range q.Messages {
		text, _, _ := strings.Cut(m.Text, "⟦arbe: it is") // this quotes a question further up
		if at := strings.LastIndex(text, " do "); m.Role == "user" && at >= 0 {
			what := text[at+len(" do "):]
			what, _, _ = strings.Cut(what, "\n") // the message may have more text
			w = work{asked: what}
			w.target, w.id, _ = strings.Cut(what, "/")
		}
		if m.Role == "tool" {
			w.done++
		}
	}
	w.gate = strings.Contains(q.Asked(), "yes or no")
	return w
}

func (w work) reply() modeltest.Reply {
	call := func(name string, arguments any) modeltest.Call {
		text, _ := json.Marshal(arguments)
		return modeltest.Call{Name: name, Arguments: string(text)}
	}
	switch {
	case w.gate:
		return modeltest.Reply{Text: "yes"}
	case w.done == 0:
		return modeltest.Reply{Calls: []modeltest.Call{
			call("say", map[string]string{"thread_id": w.target, "text": "about " + w.asked}),
			call("list_threads", map[string]int{}),
		}}
	case w.done == 2:
		return modeltest.Reply{Calls: []modeltest.Call{call("create_thread", map[string]string{"name": w.id})}}
	case w.done == 3:
		return modeltest.Reply{Calls: []modeltest.Call{call("run_command", map[string]string{"command": "true"})}}
	}
	return modeltest.Reply{Text: "done with " + w.asked}
}

// hasty returns the settings of servers whose deaths are noticed quickly.
func hasty(c *dispatch.Config) {
	c.Jobs.SweepEvery = 200 * time.Millisecond
	c.Jobs.LockGrace = 200 * time.Millisecond
}

// ready returns a gated driver whose commands end at once.
func ready() *gated {
	s := newGated()
	s.Ends = func(string) <-chan time.Time { return time.After(0) }
	return s
}

// TestTurnsSurviveAServerKilledAtEveryStep kills the server of a turn at every place, and lets another one continue.
func TestTurnsSurviveAServerKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	th := &killBench{scenes: map[string]*scene{}}
	th.botBench = bots(t, th.reply)
	// The test itself only writes.
	if err := th.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	th.build()
	kill := th.botProcess()
	th.rounds(func(place) bool { return true }, func() { kill() }, func(scenes []*scene) {
		th.clear(scenes)
		kill = th.botProcess()
	})
}

// TestTurnsSurviveAKilledPostgres kills all processes of Postgres at every place of a turn, and restarts it. The servers stay
// alive.
func TestTurnsSurviveAKilledPostgres(t *testing.T) {
	t.Parallel()
	pg := newPostgres(t)
	b := databaseOn(t, pg.database)
	b.driver, b.conns = ready(), 40
	th := &killBench{scenes: map[string]*scene{}}
	th.botBench = benchWithBot(b, th.reply)
	tune := th.tune
	th.tune = func(c *dispatch.Config) { tune(c); hasty(c) }
	th.server = th.serve()
	th.build()
	th.rounds(func(p place) bool { return !p.committed }, pg.kill, func([]*scene) {
		pg.start()
		th.enter()
		th.reconnected()
	})
}

// reconnected waits until the server can write again.
func (r *botBench) reconnected() {
	th := ""
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var err error
		if th == "" {
			made, createErr := r.threads.Create(r.t.Context(), r.scope, thread.Draft{})
			th, err = made.ID, createErr
		}
		if err == nil {
			_, err = r.log.Append(r.t.Context(), r.ref(th), entry.NewDraft("hello", r.scope.Agent, entry.Chat{Text: "hello"}))
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatal(detail(err))
		}
	}
}

// postgres is the test's own Postgres, which syncs each commit.
type postgres struct {
	t        testing.TB
	dir      string
	server   *embedded.Server
	database *dbtest.Database
}

func newPostgres(t testing.TB) *postgres {
	t.Helper()
	dir, err := os.MkdirTemp("", "arbe-kill-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // Postgres may run as another user
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &postgres{t: t, dir: filepath.Join(dir, "postgres")}
	p.start()
	t.Cleanup(func() {
		p.server.Stop(context.Background()) //nolint:errcheck // its files are removed
		os.RemoveAll(dir)
	})
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	p.database = &dbtest.Database{OwnerURL: p.server.URL()}
	if p.database.Sealer, err = secret.NewSealer(key, nil); err == nil {
		p.database.ServerURL, err = db.Migrate(t.Context(), p.database.OwnerURL, p.database.Sealer)
	}
	if err == nil {
		p.database.DB, err = db.Open(t.Context(), p.database.ServerURL, db.Options{})
	}
	if err != nil {
		t.Fatal(detail(err))
	}
	t.Cleanup(p.database.DB.Close)
	return p
}

// start starts it, even after a kill. Its address stays the same.
func (p *postgres) start() {
	p.t.Helper()
	var err error
	if p.server, err = embedded.Start(p.t.Context(), embedded.Config{Dir: p.dir, Log: slog.New(slog.DiscardHandler)}); err != nil {
		p.t.Fatal(detail(err))
	}
	if p.database != nil && p.server.URL() != p.database.OwnerURL {
		p.t.Fatalf("it is at %s now", p.server.URL())
	}
}

// kill kills all its processes with SIGKILL.
func (p *postgres) kill() {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "data", "postmaster.pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(line)
	if err != nil {
		p.t.Fatal(err)
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", postmaster, postmaster))
	for _, child := range append([]string{line}, strings.Fields(string(children))...) {
		if pid, err := strconv.Atoi(child); err == nil {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may be gone
		}
	}
	<-p.server.Done()
}
