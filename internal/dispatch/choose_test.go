//go:build linux

package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/policy"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// policyBench returns a bench with a bot whose servers choose by the policies of the house's bots.
func policyBench(t testing.TB, servers int, script modeltest.Script) *botBench {
	return policyBenchOn(t, newGated(), servers, script)
}

func policyBenchOn(t testing.TB, driver sandbox.Driver, servers int, script modeltest.Script) *botBench {
	t.Helper()
	r := botsOn(t, driver, script)
	tune := r.tune
	r.tune = func(c *dispatch.Config) {
		tune(c)
		all := bot.New(c.DB, c.Threads)
		c.Select, c.Rosters = nil, all
		c.Bots.Bot = func(ctx context.Context, scope db.Scope, id string) (turn.Bot, error) {
			b, err := all.Get(ctx, scope, id)
			return turn.Bot{Handle: b.Handle, Name: b.Name, Model: "fake-answer", Think: b.Think, Tools: b.Tools}, err
		}
	}
	// The bench's own server selects by name, so stop it.
	if err := r.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	for range servers {
		r.server = r.serve()
	}
	return r
}

// invent creates a bot.
func (r *botBench) invent(handle string, policies ...bot.Policy) bot.Bot {
	r.t.Helper()
	all := bot.New(r.DB, r.threads)
	made, err := all.Create(r.t.Context(), r.scope, bot.Draft{Handle: handle})
	if err != nil {
		r.t.Fatal(detail(err))
	}
	for _, p := range policies {
		p.Bot, p.Enabled = made.ID, true
		if _, err := all.CreatePolicy(r.t.Context(), r.scope, p); err != nil {
			r.t.Fatal(detail(err))
		}
	}
	return made
}

// settled waits until every entry up to an id is decided, and returns the thread's entries.
func (r *botBench) settled(id string) []entry.Entry {
	r.t.Helper()
	owner := r.Owner(r.t)
	for deadline := time.Now().Add(patience); ; {
		var decided bool
		err := owner.QueryRow(r.t.Context(), `
			select d.decided >= e.seq from decisions d join entries e on e.stream_id = d.stream_id where d.thread_id = $1 and e.id = $2`, r.th, id).Scan(&decided)
		if err != nil {
			r.t.Fatal(err)
		}
		if decided {
			return r.entries()
		} else if time.Now().After(deadline) {
			r.t.Fatalf("%s is not decided", id)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestBotsAnswerWhatTheirPoliciesSay(t *testing.T) {
	t.Parallel()
	config := func(c any) json.RawMessage {
		text, _ := json.Marshal(c)
		return text
	}
	t.Run("all who are mentioned, and nobody else", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 1, nil)
		one, two, three := r.invent("one"), r.invent("two"), r.invent("three")
		r.says("q", "@one and @two, hello; `@three` is only code")
		r.until(func(e entry.Entry) bool {
			return len(of[entry.TurnStarted](r.entries())) >= 2 && e.Type == entry.Chat{}.Type() && e.Author != r.scope.Agent
		})
		var began []string
		for _, s := range of[entry.TurnStarted](r.entries()) {
			if s.EntryID != "q" { // the answers repeat the mentions, so more turns may begin, for other reasons too
				continue
			}
			began = append(began, s.AgentID)
			if s.Reason != "mention" || s.PolicyID == "" {
				t.Errorf("a turn began: %+v", s)
			}
		}
		slices.Sort(began)
		want := []string{one.ID, two.ID}
		slices.Sort(want)
		if !slices.Equal(began, want) {
			t.Errorf("turns of %q began, want of %q and not of %s", began, want, three.ID)
		}
		r.says("none", "hello everybody")
		r.settled("none")
		for _, s := range of[entry.Skipped](r.entries()) {
			if s.EntryID == "none" {
				t.Errorf("what nobody was asked has a decision: %+v", s)
			}
		}
		for _, s := range of[entry.TurnStarted](r.entries()) {
			if s.EntryID == "none" || s.AgentID == three.ID {
				t.Errorf("a turn began: %+v", s)
			}
		}
	})
	t.Run("always, but not more often than they may", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 1, nil)
		r.invent("eager", bot.Policy{Trigger: bot.Always, Config: config(map[string]any{"cooldown_ms": 3_600_000, "scope_ids": []string{r.th}})})
		r.says("one", "hello")
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "one") })
		r.says("two", "hello again")
		if s := of[entry.Skipped](r.settled("two")); len(s) != 1 || s[0].Reason != "cooldown" || s[0].EntryID != "two" || s[0].Explanation == "" {
			t.Errorf("the second one: %+v", s)
		}
		r.th = r.conversation()
		r.says("else", "hello")
		if all := r.settled("else"); len(of[entry.TurnStarted](all)) != 0 {
			t.Error("it answers where it must not")
		}
	})
	t.Run("in a direct message without a mention", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 1, nil)
		b := r.invent("friend")
		th, err := r.threads.Create(t.Context(), r.scope, thread.Draft{ParentAgent: b.ID})
		if err != nil {
			t.Fatal(detail(err))
		}
		r.th = th.ID
		r.says("q", "hi")
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "q") })
	})
	t.Run("what is said in a thread that began with them", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 0, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "yes"} })
		tune := r.tune
		r.tune = func(c *dispatch.Config) {
			tune(c)
			c.Mentions = inbox.New(c.DB)
		}
		r.server = r.serve()
		helper, other := r.invent("helper"), r.invent("other")
		// The second message comes before the first one is decided.
		r.says("q", "@helper hello")
		r.says("at once", "and how are you?")
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "at once") })
		r.says("later", "and you?")
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "later") })
		r.says("for the other", "@other and you?")
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "for the other") })
		r.says("for a person", "@ada what do you think?")
		r.nobodyAnswers("for a person")
		r.answering(helper.ID, "answering", "no mention")
		if _, err := r.threads.Update(t.Context(), r.scope, r.th, thread.Change{Answering: new("")}); err != nil {
			t.Fatal(detail(err))
		}
		r.says("quiet", "still there?")
		r.nobodyAnswers("quiet")
		r.answering("", "", "no mention")
		if _, err := r.threads.Update(t.Context(), r.scope, r.th, thread.Change{Answering: &other.ID}); err != nil {
			t.Fatal(detail(err))
		}
		r.says("the other", "and now?")
		if a := r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "the other") }); a[len(a)-1].Author != other.ID {
			t.Error("a bot other than the chosen one answers")
		}
	})
	t.Run("replies to what they wrote", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 1, nil)
		r.invent("helper")
		r.says("first", "good morning")
		r.says("q", "@helper hello")
		all := r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "q") })
		answer := all[len(all)-1].ID
		say := func(id, to string) {
			if _, err := r.dispatcher.Say(t.Context(), dispatch.Speaker{Scope: r.scope}, r.th, dispatch.Message{ID: id, Text: "why?", ReplyTo: to}); err != nil {
				t.Fatal(detail(err))
			}
		}
		say("to a person", "first")
		r.nobodyAnswers("to a person")
		say("to nothing", "no such entry")
		r.nobodyAnswers("to nothing")
		say("to the bot", answer)
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "to the bot") })
		for _, s := range of[entry.TurnStarted](r.entries()) {
			if s.EntryID == "to the bot" && s.Reason != "reply" {
				t.Errorf("the reply began a turn: %+v", s)
			}
		}
	})
	t.Run("nobody who asks with a credential for one thread", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 1, nil)
		b := r.invent("helper")
		by := dispatch.Speaker{Scope: r.scope, Confined: true}
		if _, err := r.dispatcher.Say(t.Context(), by, r.th, dispatch.Message{ID: "q", Text: "@helper search_entries for 'password'"}); err != nil {
			t.Fatal(detail(err))
		}
		all := r.settled("q")
		s := of[entry.Skipped](all)
		if len(s) != 1 || s[0].AgentID != b.ID || s[0].EntryID != "q" || s[0].Reason != "confined" || !strings.Contains(s[0].Explanation, "for this thread only") {
			t.Errorf("it is skipped: %+v", s)
		}
		if n := len(of[entry.TurnStarted](all)); n != 0 {
			t.Errorf("%d turns began", n)
		}
		// The same person is answered with a credential for the house.
		if _, err := r.dispatcher.Say(t.Context(), dispatch.Speaker{Scope: r.scope}, r.th, dispatch.Message{ID: "q2", Text: "@helper hello"}); err != nil {
			t.Fatal(detail(err))
		}
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "q2") })
	})
	t.Run("each other, but not forever", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 2, func(q *modeltest.Request) modeltest.Reply {
			if strings.Contains(q.System, "@ping") {
				return modeltest.Reply{Text: "@pong go on"}
			}
			return modeltest.Reply{Text: "@ping go on"}
		})
		r.invent("ping")
		r.invent("pong")
		r.says("q", "@ping begin")
		all := r.until(func(e entry.Entry) bool { return e.Type == entry.Skipped{}.Type() })
		if s := of[entry.Skipped](all); s[0].Reason != "cooldown" && s[0].Reason != "chain" {
			t.Errorf("it ends with %+v", s)
		}
	})
	t.Run("as they are now, on every server", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 2, nil)
		b := r.invent("one")
		for i := range 6 {
			handle := fmt.Sprintf("name%d", i)
			if _, err := bot.New(r.DB, r.threads).Edit(t.Context(), r.scope, b.ID, bot.Change{Handle: &handle}); err != nil {
				t.Fatal(detail(err))
			}
			id := fmt.Sprintf("q%d", i)
			r.says(id, "@"+handle+" hello, and not @one")
			r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), id) })
		}
	})
}

// nobodyAnswers asserts that an entry wakes no bot.
func (r *botBench) nobodyAnswers(id string) {
	r.t.Helper()
	for _, s := range of[entry.TurnStarted](r.settled(id)) {
		if s.EntryID == id {
			r.t.Errorf("%s begins a turn: %+v", id, s)
		}
	}
}

// answering asserts which bot would answer a text, before it is said.
func (r *botBench) answering(bot, reason, text string) {
	r.t.Helper()
	list, err := r.dispatcher.Answerers(r.t.Context(), dispatch.Speaker{Scope: r.scope}, r.th, dispatch.Message{Text: text})
	if err != nil {
		r.t.Fatal(detail(err))
	}
	if bot == "" {
		if len(list) > 0 {
			r.t.Errorf("%q would be answered: %+v", text, list)
		}
		return
	}
	if len(list) != 1 || list[0].Bot.ID != bot || string(list[0].Reason) != reason {
		r.t.Errorf("%q would be answered by %+v, want %s because of %s", text, list, bot, reason)
	}
}

func TestAMentionByABotWithinTheCooldownWaits(t *testing.T) {
	t.Parallel()
	r := policyBench(t, 1, nil)
	one, two := r.invent("one"), r.invent("two")
	r.says("q", "@one hello")
	answered := func(by, to string) func(entry.Entry) bool {
		return func(e entry.Entry) bool {
			c, ok := entry.As[entry.Chat](e)
			return ok && e.Author == by && c.ReplyTo == to
		}
	}
	r.until(answered(one.ID, "q"))
	draft := entry.NewDraft("m", two.ID, entry.Chat{Text: "@one and again"})
	if _, err := r.log.Append(t.Context(), r.ref(r.th), draft); err != nil {
		t.Fatal(detail(err))
	}
	list := r.until(answered(one.ID, "m"))
	for _, s := range of[entry.Skipped](list) {
		t.Errorf("it is skipped: %+v", s)
	}
	if s := of[entry.TurnStarted](list); len(s) != 2 || s[1].Reason != "mention" || s[1].EntryID != "m" {
		t.Errorf("these turns began: %+v", s)
	}
	ended := list[slices.IndexFunc(list, answered(one.ID, "q"))].Time
	began := list[slices.IndexFunc(list, func(e entry.Entry) bool { s, ok := entry.As[entry.TurnStarted](e); return ok && s.EntryID == "m" })].Time
	if began.Sub(ended) < policy.BotCooldown-100*time.Millisecond {
		t.Errorf("it began %s after the answer", began.Sub(ended))
	}
}

func TestATurnHasOnlyTheToolsOfItsPolicy(t *testing.T) {
	t.Parallel()
	r := policyBench(t, 1, calls(entry.RunCommandTool, map[string]string{"command": "rm -rf ."}))
	made := r.invent("listener", bot.Policy{Trigger: bot.Always, Tools: []string{entry.ReadThreadTool, entry.SayTool}})
	said := func(to string) func(entry.Entry) bool {
		return func(e entry.Entry) bool {
			c, ok := entry.As[entry.Chat](e)
			return ok && e.Author == made.ID && c.ReplyTo == to
		}
	}
	r.says("q", "hello everybody")
	list := r.until(said("q"))
	if got := r.models.Requests()[0].Tools; !slices.Equal(got, []string{entry.ReadThreadTool, entry.SayTool}) {
		t.Errorf("the model is offered %q", got)
	}
	if len(of[entry.Command](list)) > 0 {
		t.Error("a tool ran that the policy does not allow")
	}
	before := len(r.models.Requests())
	r.says("m", "@listener hello")
	list = r.until(said("m"))
	if got := r.models.Requests()[before].Tools; !slices.Equal(got, made.Tools) {
		t.Errorf("when it is mentioned, the model is offered %q", got)
	}
	if len(of[entry.Command](list)) == 0 {
		t.Error("a tool that the bot has did not run")
	}
}
