package run_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/thread"
)

// queued is a thread whose agent works, and its runner, which the test plays.
type queued struct {
	*world
	thread thread.Thread
	runner *runner
}

// atWork returns a thread whose agent has its task and works until the test ends.
func atWork(t *testing.T, options ...func(*dispatch.Config)) *queued {
	t.Helper()
	runners, end := make(chan *runner), make(chan struct{})
	w := setup(t, func(r *runner) {
		runners <- r
		select {
		case <-end:
		case <-r.ctx.Done():
		case <-r.asked:
		}
	}, options...)
	t.Cleanup(func() { close(end) })
	q := &queued{world: w, thread: w.spawn("Work.")}
	q.runner = <-runners
	q.runner.must(entry.Heartbeat{Epoch: 1, Phase: "starting"})
	must(t, q.runner.post(q.take(q.entries(q.thread.ID)[0].ID)))
	return q
}

// take returns the post of a runner that takes messages after reading the whole log.
func (q *queued) take(ids ...string) entry.QueueTaken {
	all := q.entries(q.thread.ID)
	return entry.QueueTaken{Epoch: 1, EntryIDs: ids, Read: all[len(all)-1].Seq}
}

// says posts a message of Ada with an id.
func (q *queued) says(id, text string) {
	q.t.Helper()
	_, err := q.log.Append(q.t.Context(), q.thread.Stream(), entry.NewDraft(id, q.scope.Agent, entry.Chat{Text: text}))
	must(q.t, err)
}

func (q *queued) change(c run.QueueChange) error {
	return q.runs.ChangeQueue(q.t.Context(), q.scope, q.thread.ID, c)
}

// waits returns the waiting messages: "a=text b=text".
func (q *queued) waits() string {
	q.t.Helper()
	list, err := q.runs.Waiting(q.t.Context(), q.scope, q.thread.ID)
	must(q.t, err)
	var words []string
	for _, m := range list.Messages {
		words = append(words, m.ID+"="+m.Chat.Text)
	}
	return strings.Join(words, " ")
}

// version returns the version of a message.
func (q *queued) version(id string) int64 {
	q.t.Helper()
	list, err := q.runs.Waiting(q.t.Context(), q.scope, q.thread.ID)
	must(q.t, err)
	for _, m := range list.Messages {
		if m.ID == id {
			return m.Version
		}
	}
	q.t.Fatalf("%s does not wait", id)
	return 0
}

func edit(id, text string) entry.Payload { return entry.QueueEdited{EntryID: id, Text: text} }
func move(id, before string) entry.Payload {
	return entry.QueueMoved{EntryID: id, Before: before}
}
func cancel(id string) entry.Payload { return entry.QueueCancelled{EntryID: id} }

func TestTheQueueOfAnAgentIsSeenAndChanged(t *testing.T) {
	q := atWork(t)
	for _, id := range []string{"a", "b", "c"} {
		q.says(id, "say "+id)
	}
	if got := q.waits(); got != "a=say a b=say b c=say c" {
		t.Fatalf("what waits is %q", got)
	}
	must(t, q.change(run.QueueChange{Message: "b", Version: q.version("b"), What: edit("b", "say more")}))
	must(t, q.change(run.QueueChange{Message: "c", Version: q.version("c"), What: move("c", "a")}))
	must(t, q.change(run.QueueChange{Message: "a", What: cancel("a")}))
	if got := q.waits(); got != "c=say c b=say more" {
		t.Errorf("what waits is %q", got)
	}
	all := q.entries(q.thread.ID)
	if kinds := types(all[len(all)-6:]); kinds != "chat chat chat edited moved cancelled" {
		t.Errorf("the log has %s", kinds)
	}
	if by := all[len(all)-1].Author; by != q.scope.Agent {
		t.Errorf("it was cancelled by %q", by)
	}
	must(t, q.runner.post(q.take("c", "b")))
	if got, th := q.waits(), q.get(q.thread.ID); got != "" || th.Run.Through != all[len(all)-4].Seq {
		t.Errorf("what waits is %q, and the row says %+v", got, th.Run)
	}
	for id, says := range map[string]string{"b": "already has this message", "a": "was cancelled"} {
		err := q.change(run.QueueChange{Message: id, What: edit(id, "too late")})
		if f := fault.From(err); err == nil || f.Code != fault.Precondition || f.Reason() != fault.MessageTaken || !strings.Contains(f.Message, says) {
			t.Errorf("changing %s: %v", id, err)
		}
	}
}

func TestARepeatedChangeIsMadeOnce(t *testing.T) {
	q := atWork(t)
	q.says("a", "one")
	c := run.QueueChange{ID: "once", Message: "a", Version: q.version("a"), What: edit("a", "two")}
	must(t, q.change(c))
	must(t, q.runner.post(q.take("a")))
	must(t, q.change(c))
	if edits := of[entry.QueueEdited](q.entries(q.thread.ID)); len(edits) != 1 {
		t.Errorf("the log has %+v", edits)
	}
	c.What = edit("a", "three")
	if err := q.change(c); fault.CodeOf(err) != fault.Exists {
		t.Errorf("another change with the same id: %v", err)
	}
}

// If members change one message at once, having read the same version, one succeeds and the others get an error.
func TestMembersDoNotOverwriteEachOther(t *testing.T) {
	q := atWork(t)
	q.says("a", "one")
	version := q.version("a")
	another, err := q.bots.GetByHandle(t.Context(), q.scope, "arbe")
	must(t, err)
	var done sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		scope := q.scope
		if i%2 == 1 {
			scope.Agent = another.ID
		}
		done.Go(func() {
			errs[i] = q.runs.ChangeQueue(t.Context(), scope, q.thread.ID, run.QueueChange{Message: "a", Version: version, What: edit("a", fmt.Sprint("edit ", i))})
		})
	}
	done.Wait()
	won := ""
	for i, err := range errs {
		switch {
		case err == nil && won == "":
			won = fmt.Sprint("a=edit ", i)
		case fault.CodeOf(err) != fault.Aborted || !strings.Contains(fault.From(err).Next, "read the queue again"):
			t.Errorf("member %d: %v", i, err)
		}
	}
	if got := q.waits(); got != won || won == "" {
		t.Errorf("what waits is %q, and %q won", got, won)
	}
}

// A member edits while the runner takes. Either the runner is refused and has to read the edit, or the member is
// refused because the agent has the message. It is never both and never neither.
func TestAMemberAgainstTheRunner(t *testing.T) {
	q := atWork(t)
	for i := range 20 {
		id := fmt.Sprint("m", i)
		q.says(id, "was")
		taken, version := q.take(id), q.version(id)
		var member, taker error
		var done sync.WaitGroup
		done.Go(func() { member = q.change(run.QueueChange{Message: id, Version: version, What: edit(id, "is")}) })
		done.Go(func() { taker = q.runner.post(taken) })
		done.Wait()
		switch {
		case member == nil && fault.CodeOf(taker) == fault.Precondition:
			must(t, q.runner.post(q.take(id))) // it has read the edit
		case taker == nil && fault.From(member).Reason() == fault.MessageTaken:
		default:
			t.Fatalf("the member: %v; the runner: %v", member, taker)
		}
		if got := q.waits(); got != "" {
			t.Fatalf("what waits is %q", got)
		}
	}
}

func TestWhatCannotBeChanged(t *testing.T) {
	q := atWork(t)
	q.says("a", "one")
	must(t, q.runner.post(q.runner.says("I work.")))
	other := q.spawn("Other work.")
	foreign := q.entries(other.ID)[0].ID
	for name, c := range map[string]struct {
		change run.QueueChange
		want   fault.Code
	}{
		"no such message":                 {run.QueueChange{Message: "x", What: cancel("x")}, fault.NotFound},
		"a message of another thread":     {run.QueueChange{Message: foreign, What: cancel(foreign)}, fault.NotFound},
		"another kind of entry":           {run.QueueChange{Message: "run.1.0", What: edit("run.1.0", "x")}, fault.NotFound},
		"an empty text":                   {run.QueueChange{Message: "a", What: edit("a", " \n")}, fault.Invalid},
		"a text with a NUL":               {run.QueueChange{Message: "a", What: edit("a", "a\x00")}, fault.Invalid},
		"a text that is too long":         {run.QueueChange{Message: "a", What: edit("a", strings.Repeat("x", 1<<20))}, fault.Exhausted},
		"before itself":                   {run.QueueChange{Message: "a", What: move("a", "a")}, fault.Invalid},
		"before what does not wait":       {run.QueueChange{Message: "a", What: move("a", "x")}, fault.NotFound},
		"before a message elsewhere":      {run.QueueChange{Message: "a", What: move("a", foreign)}, fault.NotFound},
		"an old version":                  {run.QueueChange{Message: "a", Version: 1, What: cancel("a")}, fault.Aborted},
		"with an id that a run would use": {run.QueueChange{ID: "run.1.7", Message: "a", What: cancel("a")}, fault.Invalid},
		"with the id of a message":        {run.QueueChange{ID: "a", Message: "a", What: cancel("a")}, fault.Exists},
	} {
		if err := q.change(c.change); fault.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if err := q.runs.ChangeQueue(t.Context(), q.scope, q.home, run.QueueChange{Message: "a", What: cancel("a")}); fault.From(err).Reason() != fault.NoCodingAgent {
		t.Errorf("in a thread without an agent: %v", err)
	}
	if list, err := q.runs.Waiting(t.Context(), q.scope, q.home); err != nil || list.Total != 0 {
		t.Errorf("the queue of a thread without an agent is %+v, %v", list, err)
	}
	elsewhere := db.Scope{House: "another house", Agent: q.scope.Agent}
	if err := q.runs.ChangeQueue(t.Context(), elsewhere, q.thread.ID, run.QueueChange{Message: "a", What: cancel("a")}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("from another house: %v", err)
	}
}

// Changes are limited, because each reads them all. Cancelling is always possible.
func TestAMemberWhoChangesForEver(t *testing.T) {
	q := atWork(t)
	q.says("a", "one")
	q.says("b", "two")
	var err error
	for n := 0; err == nil && n < 1000; n++ {
		err = q.change(run.QueueChange{Message: "a", What: move("a", "")})
	}
	if fault.From(err).Reason() != fault.LimitReached {
		t.Errorf("it ends with %v", err)
	}
	must(t, q.change(run.QueueChange{Message: "a", What: cancel("a")}))
}

// Ten thousand messages wait, and one of them moves.
func TestALongQueue(t *testing.T) {
	q := atWork(t)
	for i := range 20 {
		var drafts []entry.Draft
		for j := range 500 {
			drafts = append(drafts, entry.NewDraft(fmt.Sprintf("m%d", i*500+j), q.scope.Agent, entry.Chat{Text: "more"}))
		}
		_, err := q.log.Append(t.Context(), q.thread.Stream(), drafts...)
		must(t, err)
	}
	must(t, q.change(run.QueueChange{Message: "m9999", What: move("m9999", "m0")}))
	list, err := q.runs.Waiting(t.Context(), q.scope, q.thread.ID)
	must(t, err)
	if list.Total != 10_000 || len(list.Messages) != 100 || list.Messages[0].ID != "m9999" {
		t.Errorf("it has %d messages, shows %d, and begins with %s", list.Total, len(list.Messages), list.Messages[0].ID)
	}
	var all []string
	for i := range entry.MaxTaken + 1 {
		all = append(all, fmt.Sprint("m", i))
	}
	if err := q.runner.post(q.take(all...)); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("taking too many at once: %v", err)
	}
	must(t, q.runner.post(q.take(all[1:]...)))
}

func TestAHostileTaker(t *testing.T) {
	q := atWork(t)
	q.says("a", "one")
	task := q.entries(q.thread.ID)[0].ID
	stale := *q.runner
	stale.by.Epoch = 7
	late := q.take("a")
	late.Epoch = 7
	both := entry.NewDraft("run.1.8", "", q.take("a"))
	for name, c := range map[string]struct {
		err  error
		want fault.Code
	}{
		"of another epoch":          {stale.send(entry.NewDraft("run.7.1", "", late)), fault.Forbidden},
		"in the name of another":    {q.runner.send(entry.NewDraft("run.1.7", "", late)), fault.Forbidden},
		"what was taken":            {q.runner.post(q.take(task)), fault.Precondition},
		"what nobody said":          {q.runner.post(q.take("x")), fault.Precondition},
		"what it has not read":      {q.runner.post(entry.QueueTaken{Epoch: 1, EntryIDs: []string{"a"}}), fault.Precondition},
		"twice the same":            {q.runner.post(q.take("a", "a")), fault.Invalid},
		"together with other posts": {q.runner.send(both, entry.NewDraft("run.1.9", "", q.runner.says("x"))), fault.Invalid},
		"editing":                   {q.runner.post(entry.QueueEdited{EntryID: "a", Text: "x"}), fault.Forbidden},
		"cancelling":                {q.runner.post(entry.QueueCancelled{EntryID: "a"}), fault.Forbidden},
	} {
		if fault.CodeOf(c.err) != c.want {
			t.Errorf("%s: %v, want %s", name, c.err, c.want)
		}
	}
	if got := q.waits(); got != "a=one" {
		t.Errorf("what waits is %q", got)
	}
	// Posting the same take again is harmless, even if its response was lost.
	again := entry.NewDraft("run.1.100", "", q.take("a"))
	must(t, q.runner.send(again))
	must(t, q.runner.send(again))
}

// Messages that still wait when a run ends begin the next one. Cancelled ones do not.
func TestWhatWaitsWhenARunEnds(t *testing.T) {
	said, epochs := make(chan struct{}), make(chan int64, 10)
	w := setup(t, func(r *runner) {
		r.must(entry.Heartbeat{Epoch: r.spec.Epoch, Phase: "thinking"})
		all := r.w.entries(r.by.Thread)
		for _, e := range all {
			if c, ok := entry.As[entry.Chat](e); ok && e.Seq > r.spec.After && c.Text != "not this" {
				r.must(entry.QueueTaken{Epoch: r.spec.Epoch, EntryIDs: []string{e.ID}, Read: all[len(all)-1].Seq})
			}
		}
		epochs <- r.spec.Epoch
		if r.spec.Epoch == 1 {
			<-said
		}
		r.completes("Done.", 0)
	})
	child := w.spawn("Work.")
	q := &queued{world: w, thread: child}
	<-epochs
	q.says("a", "not this")
	q.says("b", "this, too")
	must(t, q.change(run.QueueChange{Message: "a", What: cancel("a")}))
	close(said)
	all := w.ends(child.ID, 2, thread.Completed)
	if taken := of[entry.QueueTaken](all); len(taken) != 2 || taken[1].EntryIDs[0] != "b" {
		t.Errorf("the log says\n%s", story(all))
	}
	if th := w.get(child.ID); th.Run.Epoch != 2 || th.Status != thread.Completed {
		t.Errorf("the thread is %s in run %d", th.Status, th.Run.Epoch)
	}
}

// Cancelling the only message for an agent stops the run that is being prepared for it.
func TestCancellingTheTask(t *testing.T) {
	w := setup(t, func(r *runner) { t.Error("it was launched") })
	w.driver.hold = make(chan struct{})
	q := &queued{world: w, thread: w.spawn("Work.")}
	task := q.entries(q.thread.ID)[0].ID
	must(t, q.change(run.QueueChange{Message: task, What: cancel(task)}))
	all := w.ends(q.thread.ID, 1, thread.Cancelled)
	if kinds := types(all); kinds != "chat cancelled status_changed status_changed" {
		t.Errorf("the log has %s", kinds)
	}
	told(t, w, q.thread, "cancelled")
}

// People choose whether a message waits for the agent's current work. The choice is an entry, which every later reader of
// the log sees, and any member may change it until the agent has the message.
func TestTheTimeOfAMessageIsChosen(t *testing.T) {
	q := atWork(t)
	later := func() string {
		t.Helper()
		list, err := q.runs.Waiting(t.Context(), q.scope, q.thread.ID)
		must(t, err)
		if !list.Steers {
			t.Error("the agent is said to take no messages while it works")
		}
		var words []string
		for _, m := range list.Messages {
			words = append(words, fmt.Sprint(m.ID, "=", m.Later, "=", m.Chat.Text))
		}
		return strings.Join(words, " ")
	}
	for id, queue := range map[string]bool{"a": true, "b": false} {
		_, err := q.d.Say(t.Context(), dispatch.Speaker{Scope: q.scope}, q.thread.ID, dispatch.Message{ID: id, Text: "say " + id, Queue: queue})
		must(t, err)
	}
	must(t, q.change(run.QueueChange{Message: "b", What: move("b", "")}))
	if got := later(); got != "a=true=say a b=false=say b" {
		t.Fatalf("what waits is %q", got)
	}
	another, err := q.bots.GetByHandle(t.Context(), q.scope, "arbe")
	must(t, err)
	scope := q.scope
	scope.Agent = another.ID
	now := run.QueueChange{ID: "now", Message: "a", Version: q.version("a"), What: entry.QueueTimed{EntryID: "a"}}
	for range 2 { // a retry is harmless
		must(t, q.runs.ChangeQueue(t.Context(), scope, q.thread.ID, now))
	}
	must(t, q.change(run.QueueChange{Message: "b", What: entry.QueueTimed{EntryID: "b", Queue: true}}))
	if got := later(); got != "a=false=say a b=true=say b" {
		t.Errorf("what waits is %q", got)
	}
	if timed := of[entry.QueueTimed](q.entries(q.thread.ID)); len(timed) != 2 {
		t.Errorf("the log has %+v", timed)
	}
	stale := q.take("a")
	stale.Read = 1
	if err := q.runner.post(stale); fault.CodeOf(err) != fault.Precondition {
		t.Errorf("a runner that has not read the choice: %v", err)
	}
	must(t, q.runner.post(q.take("a")))
	if err := q.change(run.QueueChange{Message: "a", What: entry.QueueTimed{EntryID: "a", Queue: true}}); fault.From(err).Reason() != fault.MessageTaken {
		t.Errorf("a message that the agent has: %v", err)
	}
}

// Where there is no choice, the error says so.
func TestTheTimeOfAMessageCannotBeChosen(t *testing.T) {
	q := atWork(t, func(c *dispatch.Config) {
		weak := c.Runs.Agents["pi"]
		weak.Steers = false
		c.Runs.Agents["pi"] = weak
	})
	q.says("a", "one")
	list, err := q.runs.Waiting(t.Context(), q.scope, q.thread.ID)
	if must(t, err); list.Steers {
		t.Error("the agent is said to take messages while it works")
	}
	if err := q.change(run.QueueChange{Message: "a", What: entry.QueueTimed{EntryID: "a"}}); fault.CodeOf(err) != fault.Precondition || !strings.Contains(fault.From(err).Next, "next prompt") {
		t.Errorf("sending it now: %v", err)
	}
	must(t, q.change(run.QueueChange{Message: "a", What: entry.QueueTimed{EntryID: "a", Queue: true}}))
	say := func(thread, text string) error {
		_, err := q.d.Say(t.Context(), dispatch.Speaker{Scope: q.scope}, thread, dispatch.Message{Text: text, Queue: true})
		return err
	}
	must(t, say(q.thread.ID, "later"))
	if err := say(q.home, "later"); fault.From(err).Reason() != fault.NoCodingAgent {
		t.Errorf("in a thread that no agent drives: %v", err)
	}
	if err := say(q.thread.ID, "!make"); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a command: %v", err)
	}
}
