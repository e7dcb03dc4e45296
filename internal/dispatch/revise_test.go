//go:build linux

package dispatch_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
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
		"an earlier message":      {dispatch.Revision{Message: "first", Text: "x"}, fault.Precondition, "you have said more"},
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
	t.Run("and is not asked by an edit", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "yes"} })
		r.says("one", "nothing")
		r.settled("one")
		r.edits(r.th, "@bot nothing")
		r.says("two", "@bot go")
		r.until(func(e entry.Entry) bool { c, ok := entry.As[entry.Chat](e); return ok && c.Turn != nil })
		for _, e := range r.settled("two") {
			if s, ok := entry.As[entry.TurnStarted](e); ok && s.EntryID != "two" {
				t.Errorf("the bot answers %q", s.EntryID)
			}
		}
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
