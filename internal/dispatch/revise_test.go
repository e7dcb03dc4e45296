//go:build linux

package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// revises revises a message of the house's owner.
func (b *bench) revises(th string, r dispatch.Revision) (entrystate.State, error) {
	b.t.Helper()
	_, became, err := b.dispatcher.Revise(b.t.Context(), b.talker(), th, r)
	return became, err
}

// edits is revises for an edit that succeeds.
func (b *bench) edits(th, text string) entrystate.State {
	b.t.Helper()
	became, err := b.revises(th, dispatch.Revision{Text: text})
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return became
}

func (b *bench) deletes(th string) {
	b.t.Helper()
	if became, err := b.revises(th, dispatch.Revision{Delete: true}); err != nil || !became.Deleted {
		b.t.Fatalf("%v: %s", became, detail(err))
	}
}

func TestAMessageIsEditedAndDeletedByItsAuthor(t *testing.T) {
	t.Parallel()
	b, _ := onGated(t, 1, dispatch.Limits{})
	th := b.thread(sandbox.Recipe{})
	row := b.touched(th)
	b.says(b.talker(), th, dispatch.Message{ID: "first", Text: "the frist"})
	b.says(b.talker(), th, dispatch.Message{ID: "second", Text: "the secnd"})

	if became := b.edits(th, "the second"); became.ID != "second" || became.Text != "the second" || len(became.Edits) != 1 {
		t.Errorf("it became %+v", became)
	}
	before := row()
	if before.LastSaid.Text != "the second" {
		t.Errorf("lists show %q", before.LastSaid.Text)
	}
	b.finds("secnd", 0)
	b.finds("second", 1)
	if found, err := b.search(b.scope, "second", 1); err != nil || found[0].Snippet != "the second" {
		t.Errorf("the search shows %v, %v", found, err)
	}
	all := b.entries(th)
	if said, _ := entry.As[entry.Chat](all[len(all)-2]); said.Text != "the secnd" {
		t.Errorf("the log has %q, and what was said stays in it", said.Text)
	}

	// A repeated edit changes nothing and is recorded once.
	for range 2 {
		if became, err := b.revises(th, dispatch.Revision{ID: "again", Message: "second", Text: "the 2nd"}); err != nil || len(became.Edits) != 2 {
			t.Fatalf("%+v: %s", became, detail(err))
		}
	}
	if became := b.edits(th, "the 2nd"); len(became.Edits) != 2 {
		t.Errorf("an edit that changes nothing is counted: %+v", became)
	}

	b.deletes(th)
	b.deletes(th)
	b.finds("2nd", 0)
	after := row()
	if after.LastSaid.Text != "the frist" {
		t.Errorf("lists show %q, want what was said before", after.LastSaid.Text)
	}
	if !after.ActiveAt.Equal(before.ActiveAt) || !after.LastActivity.Equal(before.LastActivity) {
		t.Error("the thread moves up because of an edit")
	}

	for name, c := range map[string]struct {
		revision dispatch.Revision
		code     fault.Code
		words    string
	}{
		"an earlier message":      {dispatch.Revision{Message: "first", Text: "x"}, fault.Precondition, "you have written later messages"},
		"what is not there":       {dispatch.Revision{Message: "none", Text: "x"}, fault.NotFound, "no entry"},
		"what is no message":      {dispatch.Revision{Message: "again", Text: "x"}, fault.Invalid, "not a message"},
		"a deleted message":       {dispatch.Revision{Text: "x"}, fault.Precondition, "was deleted"},
		"nothing as the text":     {dispatch.Revision{Text: " "}, fault.Invalid, "text: it is empty"},
		"a text that is too long": {dispatch.Revision{Text: strings.Repeat("x", entry.MaxEdited+1)}, fault.Exhausted, "text: an edited message may have"},
		"an id of something else": {dispatch.Revision{ID: "first", Message: "second", Text: "x"}, fault.Exists, "already used"},
		"an id of arbe's":         {dispatch.Revision{ID: entry.TurnPrefix + "x", Text: "x"}, fault.Invalid, "reserved"},
	} {
		t.Run("not "+name, func(t *testing.T) {
			_, err := b.revises(th, c.revision)
			wantCode(t, err, c.code)
			if err != nil && !strings.Contains(err.Error(), c.words) {
				t.Errorf("it says %v", err)
			}
		})
	}

	t.Run("not one that somebody else said", func(t *testing.T) {
		r := &botBench{bench: b, th: th}
		_, _, err := b.dispatcher.Revise(t.Context(), dispatch.Speaker{Scope: r.person("Bob")}, th, dispatch.Revision{Message: "second", Text: "x"})
		wantCode(t, err, fault.Forbidden)
	})
	t.Run("not too often", func(t *testing.T) {
		b.says(b.talker(), th, dispatch.Message{Text: "0"})
		for n := range entrystate.MaxEdits {
			b.edits(th, strings.Repeat("x", n+1))
		}
		_, err := b.revises(th, dispatch.Revision{Text: "once more"})
		wantCode(t, err, fault.Exhausted)
		b.deletes(th)
	})
	t.Run("not while the thread is closed", func(t *testing.T) {
		b.says(b.talker(), th, dispatch.Message{Text: "late"})
		b.setStatus(th, thread.Closed)
		_, err := b.revises(th, dispatch.Revision{Text: "later"})
		wantCode(t, err, fault.Precondition)
		b.setStatus(th, thread.Open)
	})
	t.Run("and a fork has the message as it was when it was made", func(t *testing.T) {
		b.edits(th, "of both")
		seq := b.entries(th)
		fork, err := b.threads.Fork(t.Context(), b.scope, th, thread.Fork{At: seq[len(seq)-2].Seq}) // before the edit
		if err != nil {
			t.Fatal(detail(err))
		}
		b.edits(th, "of the source")
		entries := b.entries(fork.ID)
		states, err := entrystate.Of(t.Context(), b.DB, b.ref(fork.ID), entries)
		if err != nil {
			t.Fatal(detail(err))
		}
		var texts []string
		for _, e := range entries {
			now, gone := states.Now(e)
			if c, ok := entry.As[entry.Chat](now); ok && !gone {
				texts = append(texts, c.Text)
			}
		}
		if got := strings.Join(texts, ", "); got != "the frist, of both" {
			t.Errorf("the fork says %q", got)
		}
	})
}

func TestABotReadsWhatAMessageSaysNow(t *testing.T) {
	t.Parallel()
	read := func(q *modeltest.Request) (text string) {
		for _, m := range q.Messages {
			text += m.Text + "\n"
		}
		return text
	}
	t.Run("in later turns", func(t *testing.T) {
		t.Parallel()
		asked := make(chan string, 10)
		r := bots(t, func(q *modeltest.Request) modeltest.Reply {
			asked <- read(q)
			return modeltest.Reply{Text: "yes"}
		})
		r.says("one", "the password is hunter2")
		r.settled("one")
		r.deletes(r.th)
		r.says("two", "it is red")
		r.settled("two")
		r.edits(r.th, "it is green")
		r.says("three", "@bot what is it?")
		got := <-asked
		if strings.Contains(got, "hunter2") || strings.Contains(got, "red") || !strings.Contains(got, "it is green") {
			t.Errorf("the model reads %s", got)
		}
		// The entries of edits have texts, which no tool shows either.
		result, err := r.dispatcher.RunTool(t.Context(), entry.ReadThreadTool, turn.Call{Scope: db.Scope{House: r.scope.House, Agent: r.bot}, Thread: r.th, ID: "x", Arguments: []byte(`{}`)})
		if err != nil || strings.Contains(result.Text, "hunter2") || strings.Contains(result.Text, "red") || !strings.Contains(result.Text, "it is green") {
			t.Errorf("the tool shows %s, %v", result.Text, err)
		}
	})
	t.Run("in the turn that answers it, which is told", func(t *testing.T) {
		t.Parallel()
		asked := make(chan string, 10)
		began, edited := make(chan bool, 1), make(chan bool)
		r := bots(t, func(q *modeltest.Request) modeltest.Reply {
			asked <- read(q)
			if q.Seen > 0 {
				return modeltest.Reply{Text: "blue, then"}
			}
			began <- true
			<-edited
			return modeltest.Reply{Text: "red"}
		})
		r.says("one", "@bot paint it red")
		<-began
		if _, err := r.revises(r.th, dispatch.Revision{Delete: true}); fault.CodeOf(err) != fault.Precondition {
			t.Errorf("it is deleted while it is answered: %v", err)
		}
		r.edits(r.th, "@bot paint it blue")
		close(edited)
		r.until(func(e entry.Entry) bool { c, ok := entry.As[entry.Chat](e); return ok && c.Text == "blue, then" })
		<-asked
		if got := <-asked; strings.Contains(got, "it red") || !strings.Contains(got, "paint it blue") || !strings.Contains(got, "edited one of their messages") {
			t.Errorf("the model reads %s", got)
		}
		r.deletes(r.th)
	})
	t.Run("and its answer is not edited", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "yes"} })
		r.says("one", "@bot go")
		r.until(func(e entry.Entry) bool { c, ok := entry.As[entry.Chat](e); return ok && c.Turn != nil })
		scope := r.scope
		scope.Agent = r.bot
		_, _, err := r.dispatcher.Revise(t.Context(), dispatch.Speaker{Scope: scope}, r.th, dispatch.Revision{Text: "no"})
		wantCode(t, err, fault.Forbidden)
	})
	t.Run("and a summary is forgotten that may have what is deleted", func(t *testing.T) {
		t.Parallel()
		b, _ := onGated(t, 1, dispatch.Limits{})
		r := &botBench{bench: b, th: b.thread(sandbox.Recipe{})}
		r.says("one", "the password is hunter2")
		r.settled("one")
		r.sql(`insert into thread_summaries (house_id, thread_id, version, begins, summary, model, unread, tail)
			values ($1, $2, 1, 1, 'before', 'm', '[]', 1), ($1, $2, 2, 100, 'hunter2', 'm', '[]', 100)`, r.scope.House, r.th)
		r.deletes(r.th)
		if n := r.counted("select count(*) from thread_summaries where thread_id = $1", r.th); n != 1 {
			t.Errorf("%d summaries are left, want the one without it", n)
		}
	})
}

func TestAnEditNotifiesWhomItMentions(t *testing.T) {
	t.Parallel()
	r := policyBench(t, 0, nil)
	tune := r.tune
	r.tune = func(c *dispatch.Config) {
		tune(c)
		c.Mentions = inbox.New(c.DB)
	}
	r.server = r.serve()
	bob, eve := r.person("Bob"), r.person("Eve")
	boxes := inbox.New(r.DB)
	needed := func(t *testing.T, who, first string) {
		t.Helper()
		scope := bob
		if who == "Eve" {
			scope = eve
		}
		got, err := boxes.Get(t.Context(), scope, []string{r.th})
		if err != nil {
			t.Fatal(detail(err))
		}
		at := ""
		for _, n := range got.Needs {
			for _, e := range r.entries() {
				if n.Thread == r.th && e.Seq == n.Seq {
					at = e.ID
				}
			}
		}
		if at != first {
			t.Errorf("%s is needed from %q on, want %q", who, at, first)
		}
	}
	r.says("one", "@bob look")
	r.settled("one")
	r.says("two", "@bob and again")
	r.settled("two")
	needed(t, "Bob", "one")

	if _, err := r.revises(r.th, dispatch.Revision{ID: "edit", Text: "@eve look"}); err != nil {
		t.Fatal(detail(err))
	}
	needed(t, "Eve", "edit")
	needed(t, "Bob", "one")
	r.deletes(r.th)
	needed(t, "Eve", "")
	needed(t, "Bob", "one")
	if _, err := boxes.MarkRead(t.Context(), bob, r.th, 1000); err != nil {
		t.Fatal(detail(err))
	}
	needed(t, "Bob", "")

	// A deleted message is not unread and asks for nobody.
	r.says("three", "@bob once more")
	r.settled("three")
	needed(t, "Bob", "three")
	r.deletes(r.th)
	needed(t, "Bob", "")
	got, err := boxes.Get(t.Context(), bob, []string{r.th})
	if err != nil || got.Readings[0].Unread != 0 {
		t.Errorf("%+v, %v", got.Readings, err)
	}
}

// asked returns how often a model was called.
func (r *botBench) asked() int { return len(r.models.Requests()) }

func TestADeletedMessageAsksNobody(t *testing.T) {
	t.Parallel()
	yes := func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "yes"} }
	// skipped asserts that the log says once, and says only, that the bot does not answer a deleted message.
	skipped := func(t *testing.T, r *botBench, message string) {
		t.Helper()
		all := r.entries()
		s := of[entry.Skipped](all)
		if len(s) != 1 || s[0].EntryID != message || s[0].Reason != string(entry.ReasonDeleted) || s[0].Explanation == "" {
			t.Errorf("the log says %+v", s)
		}
		if n := len(of[entry.TurnStarted](all)); n != 0 {
			t.Errorf("%d turns began", n)
		}
	}
	t.Run("a bot that listens", func(t *testing.T) {
		t.Parallel()
		r := bots(t, yes)
		r.says("one", "later we meet")
		r.untilRow("select asked @> '{one}' from turns")
		r.deletes(r.th)
		skipped(t, r, "one")
		if d, err := r.dispatcher.Decisions(t.Context(), r.scope, r.th); err != nil || len(d.Delayed) != 0 {
			t.Errorf("there still waits %+v, %v", d.Delayed, err)
		}
		// The bot is free for other messages.
		r.says("two", "@bot when?")
		if c := r.answer("two"); !slices.Equal(c.Turn.Answers, []string{"two"}) {
			t.Errorf("it answers %q", c.Turn.Answers)
		}
		r.still()
		if n := r.asked(); n != 1 {
			t.Errorf("the model was asked %d times, want once", n)
		}
	})
	t.Run("a bot that is considering whether it has something to say", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(q *modeltest.Request) modeltest.Reply {
			return modeltest.Reply{Text: "yes", Hold: strings.Contains(q.Asked(), "yes or no")}
		})
		r.says("one", "soon we meet")
		r.awaitRequests(1)
		r.deletes(r.th)
		r.letGo()
		r.still()
		skipped(t, r, "one")
		if n := r.asked(); n != 1 {
			t.Errorf("the model was asked %d times, want once", n)
		}
	})
	// pausing returns a house in which the bot two mentions the bot one, which pauses for an hour before it answers a bot.
	pausing := func(t *testing.T, policies ...bot.Policy) (r *botBench, one bot.Bot, two dispatch.Speaker) {
		t.Helper()
		r = policyBench(t, 1, yes)
		one = r.invent("one", policies...)
		two = dispatch.Speaker{Scope: db.Scope{House: r.scope.House, Agent: r.invent("two").ID}}
		r.says("zero", "good morning") // the first message, so that no bot answers without being mentioned
		r.settled("zero")
		r.says("first", "@one hello")
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "first") })
		r.untilRow("select count(*) = 0 from turns where ended_at is null and status <> 'delayed'")
		return r, one, two
	}
	mentions := func(t *testing.T, r *botBench, by dispatch.Speaker) {
		t.Helper()
		r.sql("update turns set ended_at = now() + interval '1 hour' where ended_at is not null")
		if _, err := r.log.Append(t.Context(), r.ref(r.th), entry.NewDraft("m", by.Agent, entry.Chat{Text: "@one and again"})); err != nil {
			t.Fatal(detail(err))
		}
		r.untilRow("select exists (select from turns where status = 'delayed' and asked @> '{m}' and reason = 'mention')")
		if _, _, err := r.dispatcher.Revise(t.Context(), by, r.th, dispatch.Revision{Delete: true}); err != nil {
			t.Fatal(detail(err))
		}
	}
	t.Run("a bot that pauses", func(t *testing.T) {
		t.Parallel()
		r, one, two := pausing(t)
		mentions(t, r, two)
		if s := of[entry.Skipped](r.entries()); len(s) != 1 || s[0].AgentID != one.ID || s[0].EntryID != "m" || s[0].Reason != "deleted" {
			t.Errorf("the log says %+v", s)
		}
		r.still()
		if n := r.asked(); n != 1 {
			t.Errorf("the model was asked %d times, want once", n)
		}
	})
	t.Run("but a turn that other messages ask for waits for those", func(t *testing.T) {
		t.Parallel()
		r, _, two := pausing(t, bot.Policy{Trigger: bot.Ambient, Config: []byte(`{"delay_ms":3600000}`)})
		r.says("other", "we meet at noon")
		r.untilRow("select exists (select from turns where status = 'delayed' and asked @> '{other}' and reason = 'ambient')")
		mentions(t, r, two)
		n := r.counted(`select count(*) from turns t join activation_policies p on p.id = t.policy_id
			where t.status = 'delayed' and t.asked = '{other}' and cardinality(t.asked_seqs) = 1 and t.entry_id = 'other' and t.reason = 'ambient' and p.trigger = 'ambient'`)
		if n != 1 {
			t.Error("the turn does not wait as it did before the mention")
		}
	})
	t.Run("also not by a retry", func(t *testing.T) {
		t.Parallel()
		r := bots(t, yes)
		r.says("one", "@bot hello")
		r.answer("one")
		r.untilRow("select count(*) = 0 from turns where ended_at is null")
		r.deletes(r.th)
		var id string
		if err := r.Owner(t).QueryRow(t.Context(), "select id from turns").Scan(&id); err != nil {
			t.Fatal(err)
		}
		_, err := r.dispatcher.RetryTurn(t.Context(), r.scope, r.th, id)
		wantCode(t, err, fault.Precondition)
		r.still()
		if n := r.asked(); n != 1 {
			t.Errorf("the model was asked %d times, want once", n)
		}
	})
}

// holdAnswers makes servers wait before they store a complete answer. held returns when one waits, and release lets all of them
// continue.
func (r *botBench) holdAnswers() (held, release func()) {
	r.t.Helper()
	const key = 4711
	r.sql(`
		create function hold_answer() returns trigger language plpgsql as $$ begin
			if current_query() like '-- name: EndTurn %' then perform pg_advisory_xact_lock(4711); end if;
			return null;
		end $$;
		create trigger hold_answer before update on turns for each statement execute function hold_answer()`)
	holder := r.Owner(r.t)
	if _, err := holder.Exec(r.t.Context(), "select pg_advisory_lock($1)", key); err != nil {
		r.t.Fatal(err)
	}
	return func() {
			r.untilRow("select exists (select from pg_locks where locktype = 'advisory' and objid = $1 and not granted and database = (select oid from pg_database where datname = current_database()))", key)
		}, func() {
			if _, err := holder.Exec(r.t.Context(), "select pg_advisory_unlock($1)", key); err != nil {
				r.t.Fatal(err)
			}
		}
}

func TestAnEditOfAnAnsweredMessageAsksNobodyAgain(t *testing.T) {
	t.Parallel()
	yes := func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "yes"} }
	once := func(t *testing.T, r *botBench) {
		t.Helper()
		r.still()
		if n := r.asked(); n != 1 {
			t.Errorf("the model was asked %d times, want once", n)
		}
		if n := len(of[entry.TurnStarted](r.entries())); n != 1 {
			t.Errorf("%d turns began, want one", n)
		}
	}
	t.Run("while its answer is stored", func(t *testing.T) {
		t.Parallel()
		r := bots(t, yes)
		held, release := r.holdAnswers()
		r.says("one", "@bot paint it red")
		held()
		r.edits(r.th, "@bot paint it blue")
		release()
		r.answer("one")
		once(t, r)
		r.edits(r.th, "@bot paint it green")
		once(t, r)
	})
	t.Run("and another message that arrives then is answered", func(t *testing.T) {
		t.Parallel()
		r := bots(t, yes)
		held, release := r.holdAnswers()
		r.says("one", "@bot paint it red")
		held()
		r.edits(r.th, "@bot paint it blue")
		r.says("two", "@bot and the door?")
		r.settled("two")
		release()
		if c := r.answer("two"); !slices.Equal(c.Turn.Answers, []string{"two"}) {
			t.Errorf("it answers %q", c.Turn.Answers)
		}
	})
	t.Run("even if the bot works on something else", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(q *modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "yes", Hold: q.Seen == 1} })
		r.says("one", "@bot paint it red")
		r.answer("one")
		r.untilRow("select count(*) = 0 from turns where ended_at is null")
		bob := r.person("Bob")
		if _, err := r.log.Append(t.Context(), r.ref(r.th), entry.NewDraft("two", bob.Agent, entry.Chat{Text: "@bot and the door?"})); err != nil {
			t.Fatal(detail(err))
		}
		r.awaitRequests(2)
		r.edits(r.th, "@bot paint it blue")
		r.letGo()
		r.answer("two")
		r.still()
		if n := r.asked(); n != 2 {
			t.Errorf("the model was asked %d times, want twice", n)
		}
	})
}

func TestAnEditAsksABotThatOnlyTheNewTextMentions(t *testing.T) {
	t.Parallel()
	read := make(chan string, 10)
	r := policyBench(t, 1, func(q *modeltest.Request) modeltest.Reply {
		read <- q.Asked()
		return modeltest.Reply{Text: "yes"}
	})
	one, two := r.invent("one"), r.invent("two")
	began := func() (by []string) {
		t.Helper()
		r.still()
		for _, s := range of[entry.TurnStarted](r.entries()) {
			by = append(by, s.AgentID)
			if s.EntryID != "first" || s.Reason != "mention" {
				t.Errorf("a turn began: %+v", s)
			}
		}
		return by
	}
	r.says("first", "who paints it?")
	r.settled("first")
	r.edits(r.th, "who paints it blue?")
	if by := began(); len(by) != 0 {
		t.Errorf("%q began", by)
	}
	r.edits(r.th, "@one who paints it blue?")
	if by := began(); !slices.Equal(by, []string{one.ID}) {
		t.Errorf("%q began, want the bot that the edit mentions", by)
	}
	if text := <-read; !strings.Contains(text, "paints it blue") {
		t.Errorf("the bot reads %q", text)
	}
	// Neither a further edit nor another mention of the same bot asks it again.
	r.edits(r.th, "@one who paints it red?")
	r.edits(r.th, "who paints it red?")
	r.edits(r.th, "@one and @two: who paints it red?")
	if by := began(); !slices.Equal(by, []string{one.ID, two.ID}) {
		t.Errorf("%q began, want each bot once", by)
	}
	// A repeated edit asks once.
	three := r.invent("three")
	for range 2 {
		if _, err := r.revises(r.th, dispatch.Revision{ID: "again", Text: "@three who paints it red?"}); err != nil {
			t.Fatal(detail(err))
		}
	}
	if by := began(); !slices.Equal(by, []string{one.ID, two.ID, three.ID}) {
		t.Errorf("%q began, want each bot once", by)
	}
}

func TestAThreadForgetsANameThatItTookFromADeletedMessage(t *testing.T) {
	t.Parallel()
	b, _ := onGated(t, 1, dispatch.Limits{})
	r := &botBench{bench: b}
	const secret, long = "the password is hunter2", "the password of the machine in the cellar is hunter2, and nobody else may know this, so keep it"
	var helper string
	err := r.owner.QueryRow(t.Context(), `
		with a as (insert into agents (kind, name, runtime) values ('bot', 'Helper', 'pi') returning id)
		insert into members (house_id, agent_id, role) select $1, a.id, 'member' from a returning agent_id::text`, r.scope.House).Scan(&helper)
	if err != nil {
		t.Fatal(err)
	}
	open := func(t *testing.T, d thread.Draft) string {
		t.Helper()
		th, err := r.threads.Create(t.Context(), r.scope, d)
		if err != nil {
			t.Fatal(detail(err))
		}
		return th.ID
	}
	say := func(th, id, text string) {
		r.bench.says(r.talker(), th, dispatch.Message{ID: id, Text: text})
	}
	named := func(t *testing.T, th, want string) {
		t.Helper()
		if got, err := r.threads.Get(t.Context(), r.scope, th); err != nil || got.Name != want {
			t.Errorf("the thread is called %q, %v, want %q", got.Name, err, want)
		}
	}
	t.Run("in a direct message, which is called as its agent again", func(t *testing.T) {
		for i, text := range []string{secret, "@Helper " + secret, long, " the\n password   is\thunter2"} {
			th := open(t, thread.Draft{ParentAgent: helper})
			id := "direct" + string(rune('0'+i))
			say(th, id, text)
			if name := r.touched(th)().Name; !strings.Contains(name, "password") {
				t.Errorf("the thread is called %q before", name)
			}
			if i > 0 { // it also forgets a name that an earlier wording gave it
				r.edits(th, "never mind")
			}
			r.deletes(th)
			named(t, th, "Helper")
			box, err := inbox.New(r.DB).Get(t.Context(), r.scope, nil)
			if err != nil {
				t.Fatal(detail(err))
			}
			list, err := r.threads.List(t.Context(), r.scope, thread.Filter{Limit: 100})
			if err != nil {
				t.Fatal(detail(err))
			}
			if shown := fmt.Sprintf("%+v %+v", box, list); strings.Contains(shown, "password") {
				t.Errorf("the lists have %s", shown)
			}
			r.finds("hunter2", 0)
			say(th, id+"next", "what is the weather?")
			r.touched(th)()
			named(t, th, "what is the weather?")
		}
	})
	t.Run("in a thread that was opened with the message", func(t *testing.T) {
		th := open(t, thread.Draft{Name: entry.Title("@arbe " + secret)})
		say(th, "q", "@arbe "+secret)
		fork, err := r.threads.Fork(t.Context(), r.scope, th, thread.Fork{})
		if err != nil {
			t.Fatal(detail(err))
		}
		r.deletes(th)
		named(t, th, "")
		named(t, fork.ID, "Fork of "+secret) // which still has the message
		r.deletes(fork.ID)
		named(t, fork.ID, "Fork of "+th)

		th = open(t, thread.Draft{Name: entry.Title(long)})
		say(th, "q", long)
		r.deletes(th)
		named(t, th, "")
	})
	t.Run("but keeps a name that a person chose", func(t *testing.T) {
		for _, name := range []string{"password", "the password is", "Secrets"} {
			th := open(t, thread.Draft{Name: name})
			say(th, "q", secret)
			r.deletes(th)
			named(t, th, name)
		}
		th := open(t, thread.Draft{ParentAgent: helper})
		say(th, "q", secret)
		r.touched(th)()
		name := "Secrets"
		if _, err := r.threads.Update(t.Context(), r.scope, th, thread.Change{Name: &name}); err != nil {
			t.Fatal(detail(err))
		}
		r.deletes(th)
		named(t, th, name)
		// A later message gave the thread no name.
		th = open(t, thread.Draft{Name: "deploy"})
		say(th, "one", "hello")
		say(th, "two", "deploy")
		r.deletes(th)
		named(t, th, "deploy")
	})
}
