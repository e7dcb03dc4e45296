//go:build linux

package dispatch_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// The thinking budgets of these tests' models, as they appear on the wire.
const (
	noBudget   = ""
	lowBudget  = "2048"
	highBudget = "4096" // half of the answer
)

var sentBudget = regexp.MustCompile(`"budget_tokens":(\d+)`)

// budgets returns the thinking budget of each request, in the order of the requests.
func (r *botBench) budgets() (list []string) {
	for _, q := range r.models.Requests() {
		budget := noBudget
		if found := sentBudget.FindSubmatch(q.Body); found != nil {
			budget = string(found[1])
		}
		list = append(list, budget)
	}
	return list
}

// ponders says something as if a person typed it.
func (r *botBench) ponders(id, text string) {
	r.t.Helper()
	if _, err := r.dispatcher.Say(r.t.Context(), r.runner(), r.th, dispatch.Message{ID: id, Text: text}); err != nil {
		r.t.Fatal(detail(err))
	}
}

// looks is a model that thinks, looks for threads, and answers.
func looks(q *modeltest.Request) modeltest.Reply {
	if q.Last().Role == "tool" {
		return modeltest.Reply{Thinking: "So there is one.", Text: "There is one."}
	}
	return modeltest.Reply{Thinking: "Which are there?", Calls: []modeltest.Call{{Name: entry.ListThreadsTool, Arguments: "{}"}}}
}

func TestABotThinksAsHardAsItIsTold(t *testing.T) {
	t.Parallel()
	t.Run("by its settings, and by a person for one question", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 1, looks)
		b := r.invent("helper")
		if _, err := bot.New(r.DB, r.threads).Edit(t.Context(), r.scope, b.ID, bot.Change{Think: new(entry.EffortLow)}); err != nil {
			t.Fatal(detail(err))
		}
		for i, text := range []string{"@helper what is there?", "@helper /think high what is there?", "@helper /think off and now?", "@helper /thinking aside, and now?"} {
			id := string(rune('a' + i))
			r.ponders(id, text)
			r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), id) })
		}
		// All calls of a turn think equally hard. A model with a budget that did not think before its call does not think
		// after it.
		want := []string{lowBudget, lowBudget, highBudget, highBudget, noBudget, noBudget, lowBudget, lowBudget}
		if got := r.budgets(); !slices.Equal(got, want) {
			t.Errorf("the requests have the budgets %q, want %q", got, want)
		}
		if said := of[entry.Chat](r.entries())[2]; said.Text != "@helper /think high what is there?" || said.Think != entry.EffortHigh {
			t.Errorf("the log has %+v", said)
		}
		for _, q := range r.models.Requests() {
			if strings.Contains(string(q.Body), "/think ") {
				t.Errorf("the model reads the directive: %s", q.Asked())
			}
		}
		// The prefix of the requests stays, however hard their models think.
		system := r.models.Requests()[0].System
		for i, q := range r.models.Requests() {
			if q.System != system || !slices.Equal(q.Tools, r.models.Requests()[0].Tools) {
				t.Errorf("request %d begins otherwise", i)
			}
		}
	})
	t.Run("but not by a bot, a program, or what somebody quotes", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 1, looks)
		r.invent("helper")
		other := r.invent("other")
		say := func(author, id string, c entry.Chat) {
			if _, err := r.log.Append(t.Context(), r.ref(r.th), entry.NewDraft(id, author, c)); err != nil {
				t.Fatal(detail(err))
			}
			r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), id) })
		}
		say(other.ID, "by-a-bot", entry.Chat{Text: "@helper /think high go", Think: entry.EffortHigh})
		r.ponders("quoted", "@helper look at this:\n\n> @helper /think high go")
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "quoted") })
		if _, err := r.dispatcher.Say(t.Context(), r.runner(), r.th, dispatch.Message{ID: "literal", Text: "@helper /think high go", Literal: true}); err != nil {
			t.Fatal(detail(err))
		}
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "literal") })
		for i, budget := range r.budgets() {
			if budget != noBudget {
				t.Errorf("request %d thinks with %s", i, budget)
			}
		}
		if n := len(r.models.Requests()); n != 6 {
			t.Errorf("there were %d requests", n)
		}
	})
	t.Run("which must be an effort that there is", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 1, looks)
		r.invent("helper")
		for _, text := range []string{"/think hgih why?", "@helper /think hgih why?", "@helper /think high"} {
			_, err := r.dispatcher.Say(t.Context(), r.runner(), r.th, dispatch.Message{ID: "q", Text: text})
			if fault.CodeOf(err) != fault.Invalid || !strings.Contains(detail(err), "off, low, medium or high") && !strings.Contains(detail(err), "write your question after it") {
				t.Errorf("%q: %v", text, err)
			}
		}
		if n := len(of[entry.Chat](r.entries())); n != 0 {
			t.Errorf("%d chats were written", n)
		}
		// A directive that an older client appends unparsed is text.
		r.says("raw", "@helper /think hgih why?")
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "raw") })
	})
	t.Run("from the entry on that says so, and each turn by its own", func(t *testing.T) {
		t.Parallel()
		r := policyBench(t, 1, func(q *modeltest.Request) modeltest.Reply {
			reply := looks(q)
			reply.Hold = true
			return reply
		})
		r.invent("helper")
		r.ponders("a", "@helper /think low what is there?")
		r.awaitRequests(1)
		r.ponders("b", "@helper /think high and why?")
		r.settled("b")
		r.letGo()
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "b") })
		if got, want := r.budgets(), []string{lowBudget, highBudget}; !slices.Equal(got, want) {
			t.Errorf("the requests have the budgets %q, want %q", got, want)
		}
		r.ponders("c", "@helper and so?")
		r.until(func(e entry.Entry) bool { return slices.Contains(answersTo(e), "c") })
		if got := r.budgets(); got[2] != noBudget {
			t.Errorf("the next turn thinks as hard: %q", got)
		}
	})
	t.Run("also when it tries again", func(t *testing.T) {
		t.Parallel()
		broken := true
		r := policyBench(t, 1, func(q *modeltest.Request) modeltest.Reply {
			if broken {
				broken = false
				return modeltest.Refused(modeltest.Messages, 401)
			}
			return looks(q)
		})
		r.invent("helper")
		r.ponders("a", "@helper /think high what is there?")
		failed := r.end("a")
		if _, err := r.dispatcher.RetryTurn(t.Context(), r.scope, r.th, failed.TurnID); err != nil {
			t.Fatal(detail(err))
		}
		r.until(func(e entry.Entry) bool { c, ok := entry.As[entry.Chat](e); return ok && c.Turn != nil })
		if got, want := r.budgets(), []string{highBudget, highBudget, highBudget}; !slices.Equal(got, want) {
			t.Errorf("the requests have the budgets %q, want %q", got, want)
		}
	})
}

// A turn's effort, and its model's thoughts, survive a server killed between two steps.
func TestThinkingOutlivesAKilledServer(t *testing.T) {
	t.Parallel()
	r := bots(t, func(q *modeltest.Request) modeltest.Reply {
		reply := looks(q)
		reply.HoldHeaders = q.Last().Role == "tool" && len(q.Messages) > 0 && q.Seen == 1
		return reply
	})
	if err := r.stop(t.Context()); err != nil { // this server only writes
		t.Fatal(detail(err))
	}
	kill := r.botProcess()
	if _, err := r.log.Append(t.Context(), r.ref(r.th), entry.NewDraft("q", r.scope.Agent, entry.Chat{Text: "@bot /think high look", Think: entry.EffortHigh})); err != nil {
		t.Fatal(detail(err))
	}
	r.awaitRequests(2) // the first step is in the log
	kill()
	r.botProcess()
	r.answer("q")
	if got, want := r.budgets(), []string{highBudget, highBudget, highBudget}; !slices.Equal(got, want) {
		t.Errorf("the requests have the budgets %q, want %q", got, want)
	}
	before, after := r.models.Requests()[1], r.models.Requests()[2]
	if string(before.Body) != string(after.Body) {
		t.Errorf("the next server asks otherwise:\n%s\n%s", before.Body, after.Body)
	}
	if step := after.Messages[len(after.Messages)-2]; step.Thinking != "Which are there?" || step.Proof != modeltest.DefaultProof {
		t.Errorf("it sends back %+v", step)
	}
}

// OpenAI stores nothing, so each request contains the encrypted reasoning so far, from the log, even after a restart and with
// the next question.
func TestATurnCarriesEncryptedReasoning(t *testing.T) {
	t.Parallel()
	r := bots(t, func(q *modeltest.Request) modeltest.Reply {
		reply := looks(q)
		reply.HoldHeaders = q.Last().Role == "tool" && q.Seen == 1
		return reply
	})
	tune := r.tune
	r.tune = func(c *dispatch.Config) {
		tune(c)
		c.Bots.Endpoint = func(_ context.Context, _ db.Scope, ref string) (model.Endpoint, string, error) {
			return model.Endpoint{Provider: model.OpenAI, Dialect: model.Responses, BaseURL: r.models.URL + "/v1", Key: "sk-test", Trusted: true}, "gpt-5.1", nil
		}
	}
	restart := func() {
		if err := r.stop(t.Context()); err != nil {
			t.Fatal(detail(err))
		}
		r.server = r.serve()
	}
	restart()
	r.says("q", "@bot which threads are there?")
	r.awaitRequests(2)
	restart()
	r.answer("q")
	r.says("q2", "@bot and now?")
	r.answer("q2")
	for i, q := range r.models.Requests() {
		var body struct {
			Store   *bool
			Include []string
			Input   []struct {
				Type      string
				Encrypted string `json:"encrypted_content"`
			}
		}
		if err := json.Unmarshal(q.Body, &body); err != nil {
			t.Fatal(err)
		}
		if body.Store == nil || *body.Store || !slices.Equal(body.Include, []string{"reasoning.encrypted_content"}) {
			t.Errorf("request %d stores %v and includes %q", i, body.Store, body.Include)
		}
		reasoned := 0
		for at, item := range body.Input {
			if item.Type == "reasoning" && item.Encrypted == modeltest.DefaultProof && body.Input[at+1].Type == "function_call" && body.Input[at+2].Type == "function_call_output" {
				reasoned++
			}
		}
		if want := []int{0, 1, 1, 1, 2}[i]; reasoned != want {
			t.Errorf("request %d has %d items of reasoning before their calls, want %d: %s", i, reasoned, want, q.Body)
		}
	}
	// The log has the thinking that the model showed: in its steps, and with its answer.
	steps := of[entry.PiAssistant](r.entries())
	if len(steps) != 2 || steps[0].Thought() != "Which are there?" {
		t.Errorf("the steps are %+v", steps)
	}
	if c := r.answer("q"); c.Text != "There is one." || c.Turn.Thinking != "So there is one." {
		t.Errorf("the answer is %+v, %+v", c, c.Turn)
	}
	// Nobody else reads it.
	for _, e := range r.entries() {
		if p, ok := entry.Decode(e); ok && strings.Contains(p.Plain(), modeltest.DefaultProof) {
			t.Errorf("the proof is a text of %s", e.Type)
		}
	}
}
