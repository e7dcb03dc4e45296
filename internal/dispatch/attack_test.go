//go:build linux

package dispatch_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// siege is a house with a bot, the victim, on a server that other houses attack. All houses use the models of one scripted
// server, which reacts to the words of the question.
type siege struct {
	*botBench
	limits dispatch.Limits
	ctx    context.Context
	over   context.CancelFunc
	work   sync.WaitGroup
}

func besiege(t testing.TB, driver sandbox.Driver, limits dispatch.Limits) *siege {
	t.Helper()
	s := &siege{limits: dispatch.WithDefaults(limits)}
	s.ctx, s.over = context.WithCancel(context.Background())
	evil := slices.Collect(maps.Values(modeltest.Hostile(modeltest.Messages)))
	s.botBench = policyBenchOn(t, driver, 0, func(q *modeltest.Request) modeltest.Reply {
		asked := q.Asked()
		switch {
		case strings.Contains(asked, "drip"):
			return modeltest.Reply{Text: strings.Repeat("drop ", 3600), Before: func(int) { s.pause(time.Second) }}
		case strings.Contains(asked, "silence"):
			return modeltest.Reply{Stream: func(func(string) bool) { <-s.ctx.Done() }}
		case strings.Contains(asked, "harm"):
			return evil[q.Seen%len(evil)]
		case strings.Contains(asked, "go on"):
			reply := callers(q)
			reply.Before = func(part int) {
				if part == 1 {
					s.pause(time.Second) // as models do
				}
			}
			return reply
		}
		return modeltest.Reply{Text: "well, hello"}
	})
	tune := s.tune
	s.tune = func(c *dispatch.Config) {
		tune(c)
		c.Limits, c.Bots.Waits = limits, turn.Waits{} // use the servers' real waits for providers: other tests shorten them
	}
	s.server = s.serve()
	s.invent("helper")
	t.Cleanup(s.end)
	return s
}

// end ends the attacks.
func (s *siege) end() {
	s.over()
	s.work.Wait()
}

// pause waits, and reports whether the attacks go on.
func (s *siege) pause(d time.Duration) bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// again repeats f, with a short pause after each time, until the attacks end.
func (s *siege) again(f func()) {
	s.work.Go(func() {
		for s.pause(20 * time.Millisecond) {
			f()
		}
	})
}

// estate returns the houses of one more person, each with bots of these names.
func (s *siege) estate(houses int, bots ...string) (list []*botBench) {
	s.t.Helper()
	first := s.bench.another()
	for i := range houses {
		b := *first
		if i > 0 {
			err := s.Owner(s.t).QueryRow(s.t.Context(), `
				with h as (insert into houses (name) values ('Further') returning id)
				insert into members (house_id, agent_id, role) select h.id, $1, 'owner' from h returning house_id`, first.scope.Agent).Scan(&b.scope.House)
			if err != nil {
				s.t.Fatal(err)
			}
		}
		r := *s.botBench
		r.bench = &b
		for _, name := range bots {
			r.invent(name)
		}
		list = append(list, &r)
	}
	return list
}

// tell says something in a thread of the bench. Once the attacks have ended, errors do not matter.
func (r *botBench) tell(ctx context.Context, thread, text string) {
	_, err := r.log.Append(ctx, r.ref(thread), entry.NewDraft("", r.scope.Agent, entry.Chat{Text: text}))
	if err != nil && ctx.Err() == nil {
		r.t.Errorf("%q: %s", text, detail(err))
	}
}

// open returns a new thread of the bench; empty if the attacks have ended.
func (r *botBench) open(ctx context.Context) string {
	th, err := r.threads.Create(ctx, r.scope, thread.Draft{})
	if err != nil && ctx.Err() == nil {
		r.t.Errorf("a thread: %s", detail(err))
	}
	return th.ID
}

// The attacks. Each returns once it is at full strength, and continues until the siege ends.
var attacks = []struct {
	name  string
	real  bool // it needs real sandboxes
	begin func(*siege)
}{
	{"bots that create threads for each other", false, (*siege).breed},
	{"models that drip in 100 houses of a person", false, func(s *siege) { s.drip(100, 6) }},
	{"20,000 turns that wait", false, (*siege).backlog},
	{"a flood of output", true, (*siege).flood},
	{"a hostile server of models", false, (*siege).harm},
}

// breed makes two bots call each other in five new threads at a time, while a person starts ever more such chains.
func (s *siege) breed() {
	r := s.estate(1, "one", "two")[0]
	for range 4 {
		s.again(func() {
			if th := r.open(s.ctx); th != "" {
				r.tell(s.ctx, th, "@one go on")
			}
			s.pause(time.Second)
		})
	}
	s.untilRow("select count(*) > 20 from threads where root is not null")
}

// drip asks models that write one piece a second, in many houses of one person.
func (s *siege) drip(houses, threads int) {
	var own []string
	for _, r := range s.estate(houses, "drip") {
		own = append(own, r.scope.House)
		for range threads {
			r.tell(s.ctx, r.open(s.ctx), "@drip drip")
		}
	}
	s.untilRow(`select count(*) = $1 from turns where status = 'running' and house_id = any ($2)`, min(houses*threads, s.limits.Turns.PersonRunning), own)
}

// backlog queues 20,000 turns of a house behind as many endless ones as may run. The server's limits would not let so many
// wait.
func (s *siege) backlog() {
	r := s.estate(1, "drip")[0]
	running := s.limits.Turns.HouseRunning
	for range running {
		r.tell(s.ctx, r.open(s.ctx), "@drip drip")
	}
	s.untilRow("select count(*) = $1 from turns where status = 'running' and house_id = $2", running, r.scope.House)
	owner := s.Owner(s.t)
	for _, add := range []string{
		`insert into agents (kind, name, runtime) select 'bot', 'queued', 'pi' from generate_series(1, 80)`,
		`insert into turns (house_id, thread_id, agent_id, entry_id, reason)
			select t.house_id, t.id, a.id, 'e', 'mention' from (select * from threads where house_id = $1 limit 250) t, agents a where a.name = 'queued'`,
		`insert into ` + db.JobSchema + `.river_job (kind, queue, args, max_attempts, priority, state)
			select 'turn', 'turns', jsonb_build_object('house', t.house_id, 'thread', t.thread_id, 'turn', t.id), 1, 1, 'available' from turns t where t.status = 'queued' and t.house_id = $1`,
	} {
		var args []any
		if strings.Contains(add, "$1") {
			args = append(args, r.scope.House)
		}
		if _, err := owner.Exec(s.t.Context(), add, args...); err != nil {
			s.t.Fatal(err)
		}
	}
}

// flood prints as fast as it can with four commands, each started again when it ends.
func (s *siege) flood() {
	r := s.estate(1)[0]
	th := r.bench.thread(sandbox.Recipe{})
	r.sh(th, "true")
	for range 4 {
		s.again(func() {
			said, err := r.dispatcher.Commands.Run(s.ctx, r.scope, th, "", entry.Command{Command: "yes"})
			if err != nil {
				return
			}
			<-s.ctx.Done()
			if err := r.dispatcher.Commands.Cancel(context.Background(), r.scope, th, said.ID, command.Interrupt); err != nil {
				s.t.Error(detail(err))
			}
			r.result(th, said.ID)
		})
	}
	s.untilRow("select count(*) = 4 from "+db.JobSchema+".river_job where kind = 'run_command' and state = 'running' and args->>'house' = $1", r.scope.House)
	s.pause(time.Second) // until no program can run further ahead of its reader
}

// harm asks a model server whose answers are meant to crash or stall its client, in 16 threads at once.
func (s *siege) harm() {
	r := s.estate(1, "harm")[0]
	for range 16 {
		s.again(func() {
			if th := r.open(s.ctx); th != "" {
				r.tell(s.ctx, th, "@harm do harm")
				s.pause(500 * time.Millisecond)
			}
		})
	}
	s.untilRow("select count(*) >= 16 from turns where house_id = $1 and attempts > 0", r.scope.House)
}

// questions asks the victim's bot, in a new thread each time, and returns the time to the first piece of each answer.
func (s *siege) questions(n int) (took []time.Duration) {
	s.t.Helper()
	for range n {
		th := s.conversation()
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		tail, err := s.log.StartTail(ctx, stream.Stream{Ref: s.ref(th)}, 0)
		if err != nil {
			s.t.Fatal(detail(err))
		}
		began := time.Now()
		s.tell(ctx, th, "@helper hello")
		for ev := range tail {
			if ev.Delta != nil && strings.HasPrefix(ev.Delta.EntryID, entry.TurnPrefix) || ev.Entry != nil && len(answersTo(*ev.Entry)) > 0 {
				took = append(took, time.Since(began))
				break
			}
		}
		cancel()
	}
	if len(took) < n {
		s.t.Fatalf("%d of %d questions were answered", len(took), n)
	}
	return took
}

// BenchmarkFirstDeltaBesideAttacks measures the time from a question to the first piece of its answer, from a model that
// takes no time: in a house that is alone, and during each attack by other houses on the same server. Each round has its own
// database, in which the house is alone at first. The goal is that beside/alone-p99 is at most 2.
func BenchmarkFirstDeltaBesideAttacks(b *testing.B) {
	const questions = 200
	for _, a := range attacks {
		b.Run(strings.ReplaceAll(a.name, " ", "-"), func(b *testing.B) {
			var alone, beside []time.Duration
			for b.Loop() {
				driver := sandbox.Driver(newGated())
				if a.real {
					driver = newLocal(b, b.TempDir())
				}
				s := besiege(b, driver, dispatch.Limits{})
				s.questions(10)
				alone = append(alone, s.questions(questions)...)
				a.begin(s)
				beside = append(beside, s.questions(questions)...)
				s.end()
				if err := s.stop(b.Context()); err != nil {
					b.Fatal(detail(err))
				}
			}
			report(b, alone, "alone")
			report(b, beside, "beside")
			for name, at := range map[string]int{"p50": 50, "p99": 99} {
				b.ReportMetric(float64(beside[len(beside)*at/100])/float64(alone[len(alone)*at/100]), "beside/alone-"+name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// asks asks the victim's bot once, and runs a command.
func (s *siege) asks(at string) {
	s.t.Helper()
	s.th = s.conversation()
	s.says("q", "@helper hello")
	all := s.until(func(e entry.Entry) bool { return len(answersTo(e)) > 0 })
	if c, _ := entry.As[entry.Chat](all[len(all)-1]); c.Text != "well, hello" {
		s.t.Errorf("it answers %+v", c)
	}
	if r := s.sh(at, "echo here I am"); r.ExitCode != 0 || r.Output != "here I am\n" {
		s.t.Errorf("the command ended with %+v", r)
	}
}

// refusals returns the reasons why turns of a house did not begin.
func (r *botBench) refusals() (list []string) {
	r.t.Helper()
	rows, err := r.Owner(r.t).Query(r.t.Context(), "select e.payload->>'explanation' from entries e join streams s on s.id = e.stream_id where s.house_id = $1 and e.type = $2",
		r.scope.House, (entry.Skipped{}).Type())
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

func TestAHouseGoesOnBesideThreeAttackers(t *testing.T) {
	t.Parallel()
	s := besiege(t, newLocal(t, t.TempDir()), dispatch.Limits{Turns: jobs.Limits{HouseRunning: 6, PersonRunning: 8, PersonWaiting: 9}})
	defer s.end()
	at := s.bench.thread(sandbox.Recipe{})
	s.asks(at)
	s.breed()
	s.flood()
	s.drip(3, 6) // 8 may run and 9 wait
	const printed = 3_000_000
	printer := s.estate(1)[0]
	from := printer.bench.thread(sandbox.Recipe{})
	id := printer.ask(from, fmt.Sprintf("yes | head -c %d", printed))
	for range 2 {
		s.asks(at)
	}
	if r := printer.result(from, id); r.ExitCode != 0 || r.OutputBytes != printed || r.ArtifactBytes != printed || r.ArtifactPart {
		t.Errorf("of %d bytes that wait for others %d were read and %d are kept, in part: %t", printed, r.OutputBytes, r.ArtifactBytes, r.ArtifactPart)
	}
	if n := s.counted("select count(*) from turns t join bots b on b.agent_id = t.agent_id where b.handle = 'drip' and t.status = 'running'"); n > 8 {
		t.Errorf("%d turns of one person run", n)
	}
	s.untilRow("select exists (select from entries where type = 'pi.tool_result' and payload::text like '%may create no more%')")
	s.untilRow("select exists (select from entries where type = $1 and payload->>'explanation' like '%houses of the person who owns this one, the most allowed%')", (entry.Skipped{}).Type())
}

// A model server that stays silent holds the turns that ask it for minutes. It can hold no more of them than one person may
// have, however many houses and threads that person has.
func TestSilentModelsOfOnePersonTakeTheirShareOfWorkers(t *testing.T) {
	t.Parallel()
	s := besiege(t, newGated(), dispatch.Limits{Turns: jobs.Limits{HouseRunning: 3, PersonRunning: 4}})
	for _, r := range s.estate(3, "mute") {
		for range 4 {
			r.tell(s.ctx, r.open(s.ctx), "@mute silence")
		}
	}
	s.untilRow("select count(*) = 12 from turns")
	s.awaitRequests(4)
	s.questions(3)
	if n := len(s.models.Requests()); n != 4+3 {
		t.Errorf("%d requests came, of which 3 are the other house's", n)
	}
}

func TestTurnsOfOnePersonThatMayNotEvenWait(t *testing.T) {
	t.Parallel()
	s := besiege(t, newGated(), dispatch.Limits{Turns: jobs.Limits{HouseRunning: 1, PersonRunning: 1, HouseWaiting: 2, PersonWaiting: 3}})
	houses := s.estate(2, "mute")
	ask := func(r *botBench) {
		r.th = r.open(s.ctx)
		r.says("q", "@mute silence")
		r.settled("q")
	}
	ask(houses[0])
	s.awaitRequests(1)
	for range 3 {
		ask(houses[0])
	}
	for range 2 {
		ask(houses[1])
	}
	for i, says := range []string{"waiting in this house", "waiting in the houses of the person who owns this one"} {
		if list := houses[i].refusals(); len(list) != 1 || !strings.Contains(list[0], says) {
			t.Errorf("house %d says %q, want once %q", i, list, says)
		}
	}
	if n := s.counted("select count(*) from turns where status = 'queued'"); n != 3 {
		t.Errorf("%d turns wait", n)
	}
	s.questions(1)
}
