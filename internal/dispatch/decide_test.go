//go:build linux

package dispatch_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// oneForEach is a selector that asks for one job per entry, named after the entry.
func oneForEach(ctx context.Context, n *dispatch.News) (dispatch.Work, error) {
	entries, err := n.Entries(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, tx pgx.Tx) (asks dispatch.Outcome, err error) {
		for _, e := range entries {
			_, err = tx.Exec(ctx, "insert into "+db.JobSchema+".river_job (queue, kind, args, max_attempts) values ('nobodys', 'none', jsonb_build_object('name', $1::text), 1)",
				n.Thread+" "+e.ID)
			if err != nil {
				return asks, err
			}
		}
		return asks, nil
	}, nil
}

// deciding returns a bench with this many servers that decide with a selector.
func deciding(t *testing.T, servers int, s dispatch.Selector) *bench {
	t.Helper()
	b := database(t)
	b.driver = newGated()
	b.tune = func(c *dispatch.Config) { c.Select = s }
	for range servers {
		b.server = b.serve()
	}
	return b
}

// conversation creates a thread and returns its id.
func (b *bench) conversation() string {
	b.t.Helper()
	th, err := b.threads.Create(b.t.Context(), b.scope, thread.Draft{})
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return th.ID
}

func (b *bench) chat(thread string, ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		if _, err := b.log.Append(b.t.Context(), b.ref(thread), entry.NewDraft(id, b.scope.Agent, entry.Chat{Text: "hello"})); err != nil {
			b.t.Fatal(detail(err))
		}
	}
}

// decisions counts the decisions about each entry, by the names of their jobs.
func decisions(t testing.TB, conn *pgx.Conn) map[string]int {
	t.Helper()
	rows, err := conn.Query(t.Context(), "select args->>'name' from "+db.JobSchema+".river_job where queue = 'nobodys'")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]int{}
	for _, name := range names {
		made[name]++
	}
	return made
}

// decided waits until every entry of a thread is decided, and asserts that none is decided twice.
func (b *bench) decided(conn *pgx.Conn, thread string, ids ...string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		made := decisions(b.t, conn)
		missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return made[thread+" "+id] > 0 })
		for name, n := range made {
			if n > 1 {
				b.t.Fatalf("%s has %d decisions", name, n)
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("no decision was made about %d entries, such as %s", len(missing), missing[0])
		}
	}
}

func (b *bench) undecided(conn *pgx.Conn) (n int) {
	b.t.Helper()
	err := conn.QueryRow(b.t.Context(), "select count(*) from undecided_after(0, 1000)").Scan(&n)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func TestEveryEntryOfAThreadHasOneDecision(t *testing.T) {
	t.Parallel()
	b := deciding(t, 2, oneForEach)
	owner := b.Owner(t)
	th := b.thread(sandbox.Recipe{})

	t.Run("when it is appended", func(t *testing.T) {
		b.chat(th, "a", "b", "c")
		b.chat(th, "a")
		b.decided(owner, th, "a", "b", "c")
	})
	t.Run("when it belongs to a caller's transaction", func(t *testing.T) {
		id := b.ask(th, "line")
		b.decided(owner, th, id)
		b.driver.(*gated).HasBegun(t, "line")
		b.driver.(*gated).End("line")
		b.result(th, id)
		b.decided(owner, th, entry.ResultID(id))
		err := b.DB.In(t.Context(), b.scope, func(tx pgx.Tx) error {
			_, err := b.log.AppendTx(t.Context(), tx, b.ref(th), entry.NewDraft("undone", "", entry.Chat{Text: "never"}))
			return errors.Join(err, errors.New("undo"))
		})
		if err == nil || !strings.Contains(err.Error(), "undo") {
			t.Fatal(err)
		}
	})
	t.Run("when a producer wrote it, with others", func(t *testing.T) {
		w := stream.Write{ContentType: "application/json", Producer: &stream.Producer{Name: "p"}, Content: []entry.Draft{
			entry.NewDraft("p1", b.scope.Agent, entry.Chat{Text: "one"}), entry.NewDraft("p2", b.scope.Agent, entry.Chat{Text: "two"}),
		}}
		for range 2 {
			if _, err := b.log.Write(t.Context(), b.ref(th), w); err != nil {
				t.Fatal(detail(err))
			}
		}
		b.decided(owner, th, "p1", "p2")
	})
	t.Run("when there are more than one round takes", func(t *testing.T) {
		var drafts []entry.Draft
		for i := range 2500 {
			drafts = append(drafts, entry.NewDraft(fmt.Sprint("many-", i), b.scope.Agent, entry.Chat{Text: "hello"}))
		}
		if _, err := b.log.Append(t.Context(), b.ref(th), drafts...); err != nil {
			t.Fatal(detail(err))
		}
		b.decided(owner, th, "many-0", "many-999", "many-1000", "many-2499")
	})
	t.Run("but not again in a fork, which has only its own", func(t *testing.T) {
		fork, err := b.threads.Fork(t.Context(), b.scope, th, thread.Fork{})
		if err != nil {
			t.Fatal(detail(err))
		}
		b.chat(fork.ID, "own")
		b.chat(fork.ID, "a") // an id that the source has
		b.decided(owner, fork.ID, "own")
		for name := range decisions(t, owner) {
			if of, id, _ := strings.Cut(name, " "); of == fork.ID && id != "own" {
				if e, err := b.log.Get(t.Context(), b.ref(fork.ID), id); err != nil || fork.Inherited(e.Seq) {
					t.Errorf("there is one about %s, which it inherited (%v)", id, err)
				}
			}
		}
	})
	t.Run("nor outside of threads", func(t *testing.T) {
		ref := stream.Ref{House: b.scope.House, Name: "mine"}
		if _, _, err := b.log.Create(t.Context(), ref, stream.CreateOptions{ContentType: "application/json", Content: func(string) ([]entry.Draft, error) { return nil, nil }}); err != nil {
			t.Fatal(detail(err))
		}
		if _, err := b.log.Append(t.Context(), ref, entry.NewDraft("private", b.scope.Agent, entry.Chat{Text: "hello"})); err != nil {
			t.Fatal(detail(err))
		}
		b.chat(th, "later")
		b.decided(owner, th, "later")
		for name := range decisions(t, owner) {
			if strings.HasSuffix(name, "private") || strings.HasSuffix(name, "undone") {
				t.Errorf("there is one about %s", name)
			}
		}
	})
}

func TestTwoServersThatDecideAtTheSameMoment(t *testing.T) {
	t.Parallel()
	// Each server holds back its first answer about an entry until the other one was asked about it too.
	var asked sync.WaitGroup
	asked.Add(2)
	holding := func() dispatch.Selector {
		hold := sync.OnceFunc(func() { asked.Done(); asked.Wait() })
		return func(ctx context.Context, n *dispatch.News) (dispatch.Work, error) {
			work, err := oneForEach(ctx, n)
			hold()
			return work, err
		}
	}
	b := database(t)
	b.driver = newGated()
	b.tune = func(c *dispatch.Config) { c.Select = holding() }
	one, other := b.serve(), b.serve()
	b.server = one
	th := b.conversation()
	b.chat(th, "a")
	b.server = other
	b.chat(th, "b")
	b.decided(b.Owner(t), th, "a", "b")
	// The second server looks again before it stops.
	for _, s := range []*server{one, other} {
		if err := s.stop(t.Context()); err != nil {
			t.Fatal(detail(err))
		}
		s.log.Close()
	}
	b.decided(b.Owner(t), th, "a", "b")
}

func TestADecisionThatFailsIsMadeLater(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	bad, failures := "", 0
	b := deciding(t, 1, func(ctx context.Context, n *dispatch.News) (dispatch.Work, error) {
		mu.Lock()
		defer mu.Unlock()
		if n.Thread == bad && failures < 2 {
			failures++
			return nil, errors.New("not now")
		}
		return oneForEach(ctx, n)
	})
	owner := b.Owner(t)
	one, other := b.conversation(), b.conversation()
	mu.Lock()
	bad = one
	mu.Unlock()
	b.chat(one, "bad")
	b.chat(other, "good")
	b.decided(owner, other, "good")
	b.decided(owner, one, "bad")
	mu.Lock()
	defer mu.Unlock()
	if failures != 2 {
		t.Errorf("it failed %d times", failures)
	}
}

// A house is delayed only if more houses than a server decides for at once are slow.
func TestNobodyWaitsForTheDecisionsOfAnotherHouse(t *testing.T) {
	t.Parallel()
	var slow sync.Map
	begun, end := make(chan struct{}, 10), make(chan struct{})
	b := deciding(t, 1, func(ctx context.Context, n *dispatch.News) (dispatch.Work, error) {
		if _, ok := slow.Load(n.House); ok {
			begun <- struct{}{}
			<-end
		}
		return oneForEach(ctx, n)
	})
	owner := b.Owner(t)
	other := b.another()
	slow.Store(other.scope.House, true)
	var threads []string
	for range 3 {
		th := other.conversation()
		other.chat(th, "slow")
		threads = append(threads, th)
	}
	<-begun
	th := b.conversation()
	b.chat(th, "quick")
	b.decided(owner, th, "quick")
	slow.Clear()
	close(end)
	for _, th := range threads {
		other.decided(owner, th, "slow")
	}
}

func TestAServerThatStopsLeavesNothingUndecided(t *testing.T) {
	t.Parallel()
	for name, selector := range map[string]dispatch.Selector{"with work": oneForEach, "without": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := deciding(t, 1, selector)
			owner := b.Owner(t)
			th := b.conversation()
			b.chat(th, "a", "b")
			if err := b.stop(t.Context()); err != nil {
				t.Fatal(detail(err))
			}
			b.chat(th, "late")
			b.log.Close()
			if n := b.undecided(owner); n != 0 {
				t.Errorf("%d threads are undecided", n)
			}
			if selector != nil {
				b.decided(owner, th, "a", "b", "late")
			}
			var servers int
			if err := owner.QueryRow(t.Context(), "select count(*) from servers").Scan(&servers); err != nil || servers != 0 {
				t.Errorf("it left %d servers (%v)", servers, err)
			}
		})
	}
}

// asTalker makes this test program a server that says a lot. Its value is [talker]'s input: the database's URL, house, agent
// and threads.
const asTalker = "ARBE_TEST_AS_TALKER"

// talker says something in threads, in several ways at once, and prints the thread and id of each acknowledged entry until it
// is killed.
func talker() {
	ctx := context.Background()
	given := strings.Split(os.Getenv(asTalker), "\n")
	url, scope, threads := given[0], db.Scope{House: given[1], Agent: given[2]}, given[3:]
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, detail(err))
			os.Exit(1)
		}
	}
	d, err := db.Open(ctx, url, db.Options{})
	fail(err)
	s, err := start(ctx, d, newGated(), func(c *dispatch.Config) {
		c.Select = oneForEach
		c.Jobs.SweepEvery = 500 * time.Millisecond
	})
	fail(err)
	var printing sync.Mutex
	for i := range 6 {
		go func() {
			for pace := time.Tick(5 * time.Millisecond); ; <-pace {
				th, id := threads[rand.IntN(len(threads))], uuid.NewString()
				ref, said := stream.Ref{House: scope.House, Name: thread.StreamName(th)}, entry.NewDraft(id, scope.Agent, entry.Chat{Text: "hello"})
				var err error
				switch i % 3 {
				case 0:
					err = d.In(ctx, scope, func(tx pgx.Tx) error {
						_, err := s.log.AppendTx(ctx, tx, ref, said)
						return err
					})
				case 1:
					_, err = s.log.Write(ctx, ref, stream.Write{ContentType: "application/json", Producer: &stream.Producer{Name: id}, Content: []entry.Draft{said}})
				case 2:
					_, err = s.log.Append(ctx, ref, said)
				}
				fail(err)
				printing.Lock()
				fmt.Println(th, id)
				printing.Unlock()
			}
		}()
	}
	select {}
}

// said collects the entries that talkers had acknowledged.
type said struct {
	mu  sync.Mutex
	all []string
}

// talk starts a talker, waits until some of its entries are acknowledged, and returns a function that kills it.
func (b *bench) talk(threads []string, to *said) (kill func()) {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asTalker+"="+strings.Join(append([]string{b.ServerURL, b.scope.House, b.scope.Agent}, threads...), "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	some, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			to.mu.Lock()
			to.all = append(to.all, lines.Text())
			to.mu.Unlock()
			if n == 20+rand.IntN(200) || n == 220 {
				select {
				case <-some:
				default:
					close(some)
				}
			}
		}
	}()
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill()
		<-ended
		cmd.Wait()
	})
	b.t.Cleanup(kill)
	select {
	case <-some:
	case <-ended:
		b.t.Fatal("it ended by itself")
	case <-time.After(patience):
		b.t.Fatal("nothing is acknowledged")
	}
	return kill
}

// all waits until every entry of said is decided.
func (b *bench) all(conn *pgx.Conn, of *said) {
	b.t.Helper()
	of.mu.Lock()
	list := slices.Clone(of.all)
	of.mu.Unlock()
	byThread := map[string][]string{}
	for _, line := range list {
		th, id, _ := strings.Cut(line, " ")
		byThread[th] = append(byThread[th], id)
	}
	for th, ids := range byThread {
		b.decided(conn, th, ids...)
	}
}

func TestDecisionsSurviveKilledServers(t *testing.T) {
	t.Parallel()
	b := database(t)
	b.driver = newGated()
	owner := b.Owner(t)
	first := b.serve()
	b.server = first
	// Each talker has its own threads, and both share one.
	both := b.conversation()
	ones, others := []string{both, b.conversation(), b.conversation()}, []string{both, b.conversation(), b.conversation()}
	if err := first.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	first.log.Close()

	var one, other said
	killOther := b.talk(others, &other)
	for range 3 {
		b.talk(ones, &one)()
		killOther()
		killOther = b.talk(others, &other)
	}
	b.talk(ones, &one)()
	t.Run("by a server that lives on", func(t *testing.T) { b.all(owner, &one) })
	killOther()
	b.tune = func(c *dispatch.Config) { c.Select = oneForEach }
	b.server = b.serve()
	t.Run("by the next one", func(t *testing.T) {
		b.all(owner, &other)
		b.all(owner, &one)
		t.Logf("%d entries were acknowledged by servers that were killed", len(one.all)+len(other.all))
	})
}
