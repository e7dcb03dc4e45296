//go:build linux

package dispatch_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// botBench is a bench whose house has a bot that answers chats beginning with its name.
type botBench struct {
	*bench
	models *modeltest.Server
	bot    string
	// settings are the bot's; change them before something is said.
	settings *turn.Bot
	th       string
}

// bots returns a bot bench with one server and a thread, on a driver whose commands do nothing.
func bots(t testing.TB, script modeltest.Script) *botBench { return botsOn(t, newGated(), script) }

func botsOn(t testing.TB, driver sandbox.Driver, script modeltest.Script) *botBench {
	t.Helper()
	b := database(t)
	b.driver = driver
	r := benchWithBot(b, script)
	r.server = r.serve()
	r.th = r.conversation()
	return r
}

// benchWithBot adds a bot to the house of a bench, which has no server yet.
func benchWithBot(b *bench, script modeltest.Script) *botBench {
	t := b.t
	t.Helper()
	r := &botBench{bench: b, models: modeltest.New(t, script)}
	err := r.owner.QueryRow(t.Context(), `
		with a as (insert into agents (kind, name, runtime) values ('bot', 'Bot', 'pi') returning id)
		insert into members (house_id, agent_id, role) select $1, a.id, 'member' from a returning agent_id::text`, r.scope.House).Scan(&r.bot)
	if err != nil {
		t.Fatal(err)
	}
	r.settings = &turn.Bot{Handle: "bot", Name: "Bot", Model: "fake-answer", Tools: entry.Tools}
	r.tune = answering(r.models.URL, r.bot, r.settings)
	return r
}

// answering lets a server's bot answer chats that begin with its name, with the models of a scripted server.
func answering(models, bot string, settings *turn.Bot) func(*dispatch.Config) {
	return func(c *dispatch.Config) {
		c.Bots = turn.Config{
			Model: new(model.Client),
			Waits: turn.Waits{First: 10 * time.Millisecond, Max: 50 * time.Millisecond},
			Bot:   func(context.Context, db.Scope, string) (turn.Bot, error) { return *settings, nil },
			Endpoint: func(_ context.Context, _ db.Scope, ref string) (model.Endpoint, string, error) {
				if ref == "" {
					return model.Endpoint{}, "", fault.New(fault.NotFound, "this house has no model", "paste the key of a provider")
				}
				return model.Endpoint{Provider: model.Anthropic, BaseURL: models, Key: "sk-test", Trusted: true}, ref, nil
			},
			Person: func(_ context.Context, _ db.Scope, id string) (turn.Person, error) {
				if id == bot {
					return turn.Person{Name: settings.Name, Bot: true}, nil
				}
				return turn.Person{Name: "Ada"}, nil
			},
		}
		c.Select = func(ctx context.Context, n *dispatch.News) (dispatch.Work, error) {
			entries, err := n.Entries(ctx)
			if err != nil {
				return nil, err
			}
			var asks []turn.Request
			for _, e := range entries {
				said, ok := entry.As[entry.Chat](e)
				ask := turn.Request{House: n.House, Thread: n.Thread, Bot: bot, Entry: e.ID, Seq: e.Seq, Reason: "mention", Think: said.Think}
				switch word, _, _ := strings.Cut(said.Text, " "); {
				case !ok || e.Author == bot:
					continue
				case word == "soon":
					ask.Reason, ask.Delay = "ambient", 300*time.Millisecond
				case word == "later":
					ask.Reason, ask.Delay = "ambient", time.Hour
				case word != "@bot":
					continue
				}
				asks = append(asks, ask)
			}
			if len(asks) == 0 {
				return nil, nil
			}
			return func(context.Context, pgx.Tx) (dispatch.Outcome, error) { return dispatch.Outcome{Turns: asks}, nil }, nil
		}
	}
}

// says writes a chat by Ada.
func (r *botBench) says(id, text string) {
	r.t.Helper()
	if _, err := r.log.Append(r.t.Context(), r.ref(r.th), entry.NewDraft(id, r.scope.Agent, entry.Chat{Text: text})); err != nil {
		r.t.Fatal(detail(err))
	}
}

// entries returns all entries of the thread so far.
func (r *botBench) entries() []entry.Entry {
	r.t.Helper()
	return r.bench.entries(r.th)
}

// until waits for an entry and returns all entries up to it.
func (r *botBench) until(is func(entry.Entry) bool) (all []entry.Entry) {
	r.t.Helper()
	for _, ev := range r.follow(r.th, func(ev stream.Event) bool { return ev.Entry != nil && is(*ev.Entry) }) {
		if ev.Entry != nil {
			all = append(all, *ev.Entry)
		}
	}
	return all
}

// answer waits for the bot's answer to an entry.
func (r *botBench) answer(id string) entry.Chat {
	r.t.Helper()
	all := r.until(func(e entry.Entry) bool {
		c, ok := entry.As[entry.Chat](e)
		ended, isEnd := entry.As[entry.TurnEnded](e)
		return ok && c.Turn != nil && slices.Contains(c.Turn.Answers, id) || isEnd && slices.Contains(ended.Summary.Answers, id)
	})
	last := all[len(all)-1]
	c, ok := entry.As[entry.Chat](last)
	if !ok {
		r.t.Fatalf("the turn ended with %s", last.Payload)
	}
	if last.Author != r.bot {
		r.t.Errorf("the author of the answer is %s", last.Author)
	}
	return c
}

// end waits for the end of a turn without an answer.
func (r *botBench) end(id string) entry.TurnEnded {
	r.t.Helper()
	all := r.until(func(e entry.Entry) bool {
		ended, ok := entry.As[entry.TurnEnded](e)
		return ok && slices.Contains(ended.Summary.Answers, id)
	})
	e, _ := entry.As[entry.TurnEnded](all[len(all)-1])
	return e
}

// of returns the entries of a kind.
func of[P entry.Payload](list []entry.Entry) (found []P) {
	for _, e := range list {
		if p, ok := entry.As[P](e); ok {
			found = append(found, p)
		}
	}
	return found
}

// calls returns a model that calls a tool once with these arguments, and then repeats the tool's result.
func calls(name string, arguments ...any) modeltest.Script {
	return func(q *modeltest.Request) modeltest.Reply {
		if q.Last().Role == "tool" {
			return modeltest.ByName(q)
		}
		reply := modeltest.Reply{Text: "Let me look."}
		for _, a := range arguments {
			text, _ := json.Marshal(a)
			reply.Calls = append(reply.Calls, modeltest.Call{Name: name, Arguments: string(text)})
		}
		return reply
	}
}

// toolCaller is [calls] for any model's name.
func toolCaller(name string, arguments ...any) modeltest.Script {
	script := calls(name, arguments...)
	return func(q *modeltest.Request) modeltest.Reply {
		q.Model = "fake-tool~" + name
		return script(q)
	}
}

func TestABotAnswers(t *testing.T) {
	t.Parallel()
	r := bots(t, nil)
	r.says("before", "we meet at noon")
	r.says("q", "@bot when do we meet?")
	c := r.answer("q")
	if !strings.Contains(c.Text, "when do we meet?") || c.ReplyTo != "q" {
		t.Errorf("it answers %q to %q", c.Text, c.ReplyTo)
	}
	if s := c.Turn; s.Model != "anthropic/fake-answer" || s.Steps != 1 || s.Usage.Input != 100 || s.Usage.Output != 20 || !s.Usage.CostUnknown {
		t.Errorf("its summary is %+v", *s)
	}
	asked := r.models.Requests()[0]
	if !strings.Contains(asked.System, "@bot") || len(asked.Messages) == 0 || !strings.Contains(fmt.Sprint(asked.Messages), "⟦person: Ada⟧\n  we meet at noon") {
		t.Errorf("the model was asked %+v with the system prompt %q", asked.Messages, asked.System)
	}
	if s := of[entry.TurnStarted](r.entries()); len(s) != 1 || s[0].EntryID != "q" || s[0].Reason != "mention" {
		t.Errorf("the log says that these turns began: %v", s)
	}
	r.says("again", "@bot and where?")
	r.answer("again")
	if last := r.models.Requests()[1]; !strings.Contains(fmt.Sprint(last.Messages), "assistant") {
		t.Errorf("the next turn does not know the first answer: %+v", last.Messages)
	}
}

func TestWhatABotWritesIsSeenWhileItIsWritten(t *testing.T) {
	t.Parallel()
	t.Run("its answer", func(t *testing.T) {
		t.Parallel()
		r := bots(t, nil)
		r.settings.Model = "fake-slow"
		r.says("q", "@bot one two three four")
		var text strings.Builder
		r.follow(r.th, func(ev stream.Event) bool {
			for _, c := range chunks(ev) {
				if c.Kind == "text" {
					text.WriteString(c.Text)
				}
			}
			if text.Len() > 0 {
				go func() { _ = r.models.Step(t.Context()) }()
			}
			return strings.Contains(text.String(), "two")
		})
		if len(of[entry.Chat](r.entries())) != 1 {
			t.Error("it is in the log before it was whole")
		}
		for range 20 {
			go func() { _ = r.models.Step(t.Context()) }()
		}
		r.answer("q")
	})
	t.Run("and its thoughts, in each step", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(q *modeltest.Request) modeltest.Reply {
			if q.Last().Role == "tool" {
				return modeltest.Reply{Thinking: "So there is one.", Text: "There is one.", Hold: true}
			}
			return modeltest.Reply{Thinking: "Which are there?", Text: "Let me look.", Calls: []modeltest.Call{{Name: entry.ListThreadsTool, Arguments: "{}"}}, Hold: true}
		})
		r.says("q", "@bot which threads are there?")
		var seen []string // complete thoughts and texts, in the order in which they began
		kind := ""
		r.follow(r.th, func(ev stream.Event) bool {
			for _, c := range chunks(ev) {
				if c.Kind == "text" || c.Kind == "thinking" {
					if c.Kind != kind {
						seen = append(seen, c.Kind+": ")
					}
					seen[len(seen)-1] += c.Text
				}
				kind = c.Kind
				if len(seen) == 1 && len(of[entry.PiAssistant](r.entries())) > 0 {
					t.Error("the step is in the log before it was whole")
				}
				go func() { _ = r.models.Step(t.Context()) }() // release the next piece, now that this one was seen
			}
			return ev.Entry != nil && slices.Contains(answersTo(*ev.Entry), "q")
		})
		if want := []string{"thinking: Which are there?", "text: Let me look.", "thinking: So there is one.", "text: There is one."}; !slices.Equal(seen, want) {
			t.Errorf("one sees %q, want %q", seen, want)
		}
		steps := of[entry.PiAssistant](r.entries())
		if len(steps) != 1 || len(steps[0].Content) == 0 || steps[0].Content[0].Thinking != "Which are there?" {
			t.Errorf("the log has the steps %+v", steps)
		}
		if c := r.answer("q"); c.Text != "There is one." {
			t.Errorf("it answers %q", c.Text) // without what it thought
		}
		var thought []string
		for _, m := range r.models.Requests()[1].Messages {
			if m.Thinking != "" {
				thought = append(thought, m.Thinking)
			}
		}
		if !slices.Equal(thought, []string{"Which are there?"}) {
			t.Errorf("with the result, the model gets %q as what it thought", thought)
		}
	})
}

// chunks returns the pieces of a bot's writing in an event.
func chunks(ev stream.Event) (all []entry.PiChunk) {
	if ev.Delta == nil || !strings.HasPrefix(ev.Delta.EntryID, entry.TurnPrefix) {
		return nil
	}
	for line := range strings.Lines(string(ev.Delta.Data)) {
		var c entry.PiChunk
		if json.Unmarshal([]byte(line), &c) == nil {
			all = append(all, c)
		}
	}
	return all
}

// A model server may know its key and reveal it: in an answer, or in a call, which redaction would change.
func TestWhatAProviderSaysDoesNotHaveItsKey(t *testing.T) {
	t.Parallel()
	const value = "staging1"
	r := bots(t, func(q *modeltest.Request) modeltest.Reply {
		if q.Last().Role == "tool" {
			return modeltest.Reply{Text: "the key is " + value + ", as it is"}
		}
		return modeltest.Reply{Thinking: "it is " + value, Proof: base64.StdEncoding.EncodeToString([]byte(value)), Text: "I say " + value, Calls: []modeltest.Call{
			{Name: "run_command", Arguments: `{"command":"rm -rf ./` + value + `"}`}, {Name: "list_threads", Arguments: `{"limit":1}`},
			{Name: "say", Arguments: `{"text":"` + base64.StdEncoding.EncodeToString([]byte(value)) + `"}`}, {Name: value, Arguments: `{}`},
		}}
	})
	tune := r.tune
	r.tune = func(c *dispatch.Config) {
		tune(c)
		endpoint := c.Bots.Endpoint
		c.Bots.Endpoint = func(ctx context.Context, scope db.Scope, ref string) (model.Endpoint, string, error) {
			e, id, err := endpoint(ctx, scope, ref)
			e.Key, e.KeyName = value, "LAB_KEY"
			return e, id, err
		}
	}
	if err := r.stop(t.Context()); err != nil {
		t.Fatal(detail(err))
	}
	r.server = r.serve()
	r.says("q", "@bot go")
	pieces := map[string]*strings.Builder{} // by the kind and block of what was written
	for _, ev := range r.follow(r.th, func(ev stream.Event) bool { return ev.Entry != nil && slices.Contains(answersTo(*ev.Entry), "q") }) {
		if ev.Delta == nil {
			continue
		}
		for line := range strings.Lines(string(ev.Delta.Data)) {
			var c entry.PiChunk
			if json.Unmarshal([]byte(line), &c) != nil {
				continue
			}
			key := fmt.Sprint(c.Kind, c.Block)
			if pieces[key] == nil {
				pieces[key] = &strings.Builder{}
			}
			pieces[key].WriteString(c.Text)
		}
	}
	for key, text := range pieces {
		if strings.Contains(text.String(), value) {
			t.Errorf("the pieces %s say %q", key, text)
		}
	}
	for _, e := range r.entries() {
		if strings.Contains(string(e.Payload), value) {
			t.Errorf("an entry says %s", e.Payload)
		}
	}
	if c := r.answer("q"); !strings.Contains(c.Text, "the key is xxxxxxxx") || !strings.Contains(c.Text, "as it is") {
		t.Errorf("it answers %q", c.Text)
	}
	if n := len(of[entry.Command](r.entries())); n != 0 {
		t.Errorf("%d commands were run", n)
	}
	refused, ran := 0, 0
	for _, result := range of[entry.PiToolResult](r.entries()) {
		if result.IsError && strings.Contains(result.Content[0].Text, "contains the secret LAB_KEY") {
			refused++
		} else if !result.IsError && result.ToolName == "list_threads" {
			ran++
		}
	}
	if refused != 3 || ran != 1 {
		t.Errorf("%d calls were refused and %d run: %s", refused, ran, r.story(r.th))
	}
}

// A key that is also one of arbe's own words changes neither what arbe writes about its work nor what runs.
func TestAKeyThatIsAWordOfTheStructureBreaksNothing(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"content", "turn_id", "toolCallId", "stopReason", "command", "arguments", "limit", "text", "type", "true", "0", "list_threads"} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			r := bots(t, toolCaller("list_threads", map[string]int{"limit": 1}))
			tune := r.tune
			r.tune = func(c *dispatch.Config) {
				tune(c)
				endpoint := c.Bots.Endpoint
				c.Bots.Endpoint = func(ctx context.Context, scope db.Scope, ref string) (model.Endpoint, string, error) {
					e, id, err := endpoint(ctx, scope, ref)
					e.Key = value
					return e, id, err
				}
			}
			if err := r.stop(t.Context()); err != nil {
				t.Fatal(detail(err))
			}
			r.server = r.serve()
			r.says("q", "@bot look")
			if c := r.answer("q"); c.Turn == nil || c.Turn.Steps != 2 {
				t.Errorf("it answers %+v", c)
			}
			results := of[entry.PiToolResult](r.entries())
			if len(results) != 1 || results[0].IsError && value != "list_threads" || results[0].ToolCallID == "" {
				t.Errorf("the results are %+v", results)
			}
		})
	}
}

func TestABotUsesItsTools(t *testing.T) {
	t.Parallel()
	t.Run("and runs a command", func(t *testing.T) {
		t.Parallel()
		r := botsOn(t, realBoxes(t), toolCaller("run_command", map[string]string{"command": "echo from the sandbox"}))
		env, err := r.boxes.CreateEnvironment(t.Context(), r.scope, "an environment", sandbox.Recipe{Driver: "local"})
		if err != nil {
			t.Fatal(detail(err))
		}
		r.th = r.threadWith(env.ID)
		r.says("q", "@bot look")
		c := r.answer("q")
		if !strings.Contains(c.Text, "from the sandbox") || c.Turn.Steps != 2 || c.Turn.Commands != 1 {
			t.Errorf("it answers %q after %+v", c.Text, *c.Turn)
		}
		all := r.entries()
		steps, results, commands := of[entry.PiAssistant](all), of[entry.PiToolResult](all), of[entry.CommandResult](all)
		if len(steps) != 1 || steps[0].StopReason != entry.PiToolUse || len(results) != 1 || results[0].IsError || len(commands) != 1 {
			t.Errorf("the log has the steps %v, the results %v and the commands %v", steps, results, commands)
		}
	})
	t.Run("several at once", func(t *testing.T) {
		t.Parallel()
		r := bots(t, toolCaller("list_threads", map[string]int{"limit": 1}, map[string]int{"limit": 2}))
		r.says("q", "@bot look")
		r.answer("q")
		if results := of[entry.PiToolResult](r.entries()); len(results) != 2 {
			t.Errorf("%d results are in the log", len(results))
		}
	})
	t.Run("reads and writes in other threads", func(t *testing.T) {
		t.Parallel()
		r := bots(t, toolCaller("create_thread", map[string]string{"name": "Plan", "text": "First, think."}))
		r.says("q", "@bot begin a plan")
		c := r.answer("q")
		id := c.Text[strings.LastIndex(c.Text, " ")+1:]
		said, _, err := r.log.Read(t.Context(), r.ref(id), stream.Range{})
		if err != nil || len(said) == 0 || said[len(said)-1].Author != r.bot {
			t.Errorf("the new thread %q has %v (%v)", id, said, err)
		}
	})
	for name, c := range map[string]struct {
		tool      string
		arguments any
		says      string
	}{
		"that there is no such tool":        {"rm_rf", map[string]string{}, "there is no tool"},
		"that the arguments do not fit":     {"run_command", map[string]int{"command": 1}, "command"},
		"that the thread is not there":      {"read_thread", map[string]string{"thread_id": "nowhere"}, "thread"},
		"that it has nothing to run in yet": {"run_command", map[string]string{"command": "true"}, "environment"},
	} {
		t.Run("and is told "+name, func(t *testing.T) {
			t.Parallel()
			r := bots(t, toolCaller(c.tool, c.arguments))
			r.says("q", "@bot go")
			r.answer("q")
			results := of[entry.PiToolResult](r.entries())
			if len(results) != 1 || !results[0].IsError && c.tool != "run_command" || !strings.Contains(results[0].Text(), c.says) {
				t.Errorf("the tool returned %+v", results)
			}
		})
	}
	t.Run("which are those that its settings name", func(t *testing.T) {
		t.Parallel()
		r := bots(t, nil)
		if names := r.dispatcher.ToolNames(); !slices.Equal(names, entry.Tools) {
			t.Errorf("the tools are %q, and the names %q", names, entry.Tools)
		}
		tools, err := r.dispatcher.Tools(t.Context(), r.scope, r.bot)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			if tool.Behalf == "" {
				t.Errorf("%s does not say on whose behalf it acts", tool.Name)
			}
		}
	})
	t.Run("but only those that it has", func(t *testing.T) {
		t.Parallel()
		r := bots(t, toolCaller("list_threads", map[string]int{}))
		r.settings.Tools = []string{"say"}
		r.says("q", "@bot go")
		r.answer("q")
		if asked := r.models.Requests()[0]; !slices.Equal(asked.Tools, []string{"say"}) {
			t.Errorf("the model is offered %q", asked.Tools)
		}
		if results := of[entry.PiToolResult](r.entries()); len(results) != 1 || !results[0].IsError {
			t.Errorf("the tool returned %+v", results)
		}
	})
}

func TestWhatGoesWrongHasItsOwnWords(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]string{
		"fake-401": "bad_key", "fake-404": "unknown_model", "fake-500": "overload", "fake-529": "overload", "fake-nomoney": "no_money",
		"fake-refusal": "refusal", "fake-garbage": "unreadable", "fake-cut": "cut", "fake-overflow": "context_overflow", "": "no_model",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tunedBench(t, nil, func(c *dispatch.Config) {
				c.Bots.Waits = turn.Waits{First: 2 * time.Hour, Max: 2 * time.Hour} // longer than a turn, so it does not wait
			})
			r.settings.Model = name
			r.says("q", "@bot hello")
			e := r.end("q")
			if e.Outcome != entry.TurnFailed || e.Reason != reason || e.Message == "" || e.Next == "" {
				t.Errorf("it ends with %+v", e)
			}
			r.settings.Model = "fake-answer"
			if _, err := r.dispatcher.RetryTurn(t.Context(), r.scope, r.th, e.TurnID); err != nil {
				t.Fatal(detail(err))
			}
			r.answers("q", 1)
		})
	}
}

// answers waits until an entry is answered, and asserts the number of answers.
func (r *botBench) answers(id string, want int) {
	r.t.Helper()
	r.until(func(e entry.Entry) bool {
		c, ok := entry.As[entry.Chat](e)
		return ok && c.Turn != nil && slices.Contains(c.Turn.Answers, id)
	})
	n := 0
	for _, c := range of[entry.Chat](r.entries()) {
		if c.Turn != nil && slices.Contains(c.Turn.Answers, id) {
			n++
		}
	}
	if n != want {
		r.t.Errorf("%s has %d answers, want %d", id, n, want)
	}
}

func TestWhatIsSaidMeanwhileIsSteeredIntoTheTurn(t *testing.T) {
	t.Parallel()
	t.Run("at its next step", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(q *modeltest.Request) modeltest.Reply {
			if q.Seen == 0 {
				return modeltest.Reply{Text: "Wait.", Calls: []modeltest.Call{{Name: "list_threads", Arguments: "{}"}}, Hold: true}
			}
			return modeltest.Reply{Text: q.Asked()}
		})
		r.says("one", "@bot one")
		r.awaitRequests(1)
		r.says("two", "@bot two")
		r.until(func(e entry.Entry) bool { return e.Type == entry.TurnSteered{}.Type() })
		r.letGo()
		c := r.answer("two")
		if !slices.Equal(c.Turn.Answers, []string{"one", "two"}) || !strings.Contains(c.Text, "two") {
			t.Errorf("it answers %q to %q", c.Text, c.Turn.Answers)
		}
	})
	t.Run("or fails with it", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(q *modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: " ", Hold: q.Seen == 0} })
		r.says("one", "@bot one")
		r.awaitRequests(1)
		r.says("two", "@bot two")
		r.until(func(e entry.Entry) bool { return e.Type == entry.TurnSteered{}.Type() })
		r.letGo()
		e := r.end("two")
		if !slices.Equal(e.Summary.Answers, []string{"one", "two"}) {
			t.Errorf("it ends with %+v for %q", e, e.Summary.Answers)
		}
		if _, err := r.dispatcher.RetryTurn(t.Context(), r.scope, r.th, e.TurnID); err != nil {
			t.Fatal(detail(err))
		}
		again := r.until(func(a entry.Entry) bool { s, ok := entry.As[entry.TurnEnded](a); return ok && s.TurnID != e.TurnID })
		if ended := of[entry.TurnEnded](again); !slices.Equal(ended[1].Summary.Answers, []string{"one", "two"}) {
			t.Errorf("the turns end with %+v", ended)
		}
	})
	t.Run("or gets a turn of its own if the answer is already written", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(q *modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: q.Asked(), Hold: q.Seen == 0} })
		r.says("one", "@bot one")
		r.awaitRequests(1)
		r.says("two", "@bot two")
		r.says("three", "@bot three")
		r.until(func(e entry.Entry) bool { s, ok := entry.As[entry.TurnSteered](e); return ok && s.EntryID == "three" })
		r.letGo()
		first, second := r.answer("one"), r.answer("three")
		if !slices.Equal(first.Turn.Answers, []string{"one"}) || !slices.Equal(second.Turn.Answers, []string{"two", "three"}) {
			t.Errorf("the answers are to %q and %q", first.Turn.Answers, second.Turn.Answers)
		}
	})
}

// untilRow waits until a query returns true.
func (r *botBench) untilRow(query string, args ...any) {
	r.t.Helper()
	owner := r.Owner(r.t)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var is bool
		err := owner.QueryRow(r.t.Context(), query, args...).Scan(&is)
		if err == nil && is {
			return
		} else if time.Now().After(deadline) {
			r.t.Fatalf("it does not become true: %s: %v", query, err)
		}
	}
}

func TestATurnWithoutAJobIsQueuedAgain(t *testing.T) {
	t.Parallel()
	r := bots(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "Here I am."} })
	r.says("zero", "@bot hello")
	done := r.answer("zero").Turn.TurnID
	// Pretend that the job ended, or was deleted, before its turn.
	for i, lose := range []string{"select 1", "delete from river.river_job where args @> jsonb_build_object('turn', $1::text)"} {
		asks := fmt.Sprint("again", i)
		if _, err := r.Owner(t).Exec(t.Context(), `update turns set status = 'running', ended_at = null, steps = steps + 1, created_at = now() - interval '1 minute',
			asked = array[$2], entry_id = $2 where id = $1`, done, asks); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Owner(t).Exec(t.Context(), strings.Replace(lose, "select 1", "select $1::text", 1), done); err != nil {
			t.Fatal(err)
		}
		if err := r.dispatcher.ReviveTurns(t.Context()); err != nil {
			t.Fatal(detail(err))
		}
		r.answer(asks)
	}
}

func (r *botBench) awaitRequests(n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if _, err := r.models.Await(ctx, n); err != nil {
		r.t.Fatal(err)
	}
}

// letGo releases held answers.
func (r *botBench) letGo() {
	ctx := r.t.Context()
	go func() {
		for r.models.Step(ctx) == nil {
		}
	}()
}

func TestATurnIsStopped(t *testing.T) {
	t.Parallel()
	t.Run("while its bot writes, which keeps what was written", func(t *testing.T) {
		t.Parallel()
		r := bots(t, nil)
		r.settings.Model = "fake-slow"
		r.says("q", "@bot one two three four")
		r.follow(r.th, func(ev stream.Event) bool { return ev.Delta != nil && strings.Contains(string(ev.Delta.Data), "⟦") })
		r.stopAll(1)
		e := r.end("q")
		steps := of[entry.PiAssistant](r.entries())
		if e.Outcome != entry.TurnStopped || e.StoppedBy != r.scope.Agent || len(steps) != 1 || steps[0].StopReason != entry.PiAborted || steps[0].Text() == "" {
			t.Errorf("it ends with %+v after %+v", e, steps)
		}
		asked := r.models.Requests()[0]
		select {
		case <-asked.Gone:
		case <-time.After(patience):
			t.Error("the model is still being asked")
		}
	})
	t.Run("while its tool runs, which is stopped, too", func(t *testing.T) {
		t.Parallel()
		r := botsOn(t, realBoxes(t), toolCaller("run_command", map[string]string{"command": "echo begun; sleep 1000"}))
		env, err := r.boxes.CreateEnvironment(t.Context(), r.scope, "an environment", sandbox.Recipe{Driver: "local"})
		if err != nil {
			t.Fatal(detail(err))
		}
		r.th = r.threadWith(env.ID)
		r.says("q", "@bot go")
		r.follow(r.th, func(ev stream.Event) bool { return ev.Delta != nil && string(ev.Delta.Data) == "begun\n" }) // not what the model writes
		r.stopAll(1)
		if e := r.end("q"); e.Outcome != entry.TurnStopped {
			t.Errorf("it ends with %+v", e)
		}
		all := r.until(func(e entry.Entry) bool { return e.Type == entry.CommandResult{}.Type() })
		if res := of[entry.CommandResult](all); !res[0].Cancelled {
			t.Errorf("the command ends with %+v", res[0])
		}
	})
	t.Run("only if it is there", func(t *testing.T) {
		t.Parallel()
		r := bots(t, nil)
		r.says("q", "@bot hello")
		done := r.answer("q").Turn.TurnID
		if found, err := r.dispatcher.StopTurns(t.Context(), r.scope, r.th, done); err != nil || len(found) != 0 {
			t.Errorf("of a turn that has ended it says %v, %v", found, err)
		}
		if _, err := r.dispatcher.StopTurns(t.Context(), r.scope, r.th, "nothing"); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("of a turn that is not there it says %v", err)
		}
		if _, err := r.dispatcher.StopTurns(t.Context(), r.scope, r.conversation(), done); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("of another thread's turn it says %v", err)
		}
	})
}

// stopAll stops the thread's turns.
func (r *botBench) stopAll(want int) {
	r.t.Helper()
	found, err := r.dispatcher.StopTurns(r.t.Context(), r.scope, r.th, "")
	if err != nil || len(found) != want {
		r.t.Fatalf("%d turns were stopped, want %d: %v", len(found), want, err)
	}
}

func TestATurnEndsAtItsLimits(t *testing.T) {
	t.Parallel()
	// endless takes 10 steps to each limit. A step has 100 tokens of input and 20 of output, and costs 600 millionths of a
	// dollar.
	endless := func(q *modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Calls: []modeltest.Call{{Name: "list_threads", Arguments: fmt.Sprintf(`{"limit":%d}`, q.Seen%100+1)}}}
	}
	for name, c := range map[string]struct {
		limits turn.Limits
		near   entry.LimitNear // without the turn and its bot
	}{
		"turn_steps":     {turn.Limits{Steps: 10}, entry.LimitNear{Used: 8, Max: 10}},
		"turn_tokens":    {turn.Limits{Tokens: 1190}, entry.LimitNear{Used: 960, Max: 1190}},
		"turn_usd":       {turn.Limits{Micros: 5900}, entry.LimitNear{Used: 0.0048, Max: 0.0059}},
		"thread_usd_day": {turn.Limits{ThreadMicros: 5900}, entry.LimitNear{Used: 0.0048, Max: 0.0059}},
		"member_usd_day": {turn.Limits{MemberMicros: 5900}, entry.LimitNear{Used: 0.0048, Max: 0.0059}},
		"house_usd_day":  {turn.Limits{HouseMicros: 5900}, entry.LimitNear{Used: 0.0048, Max: 0.0059}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bots(t, endless)
			r.settings.Model, r.settings.Limits = "claude-sonnet-4-5", c.limits
			r.says("q", "@bot go")
			if e := r.end("q"); e.Outcome != entry.TurnLimited || e.Reason != name || e.Summary.Steps != 10 || e.Message == "" || e.Next == "" {
				t.Errorf("it ends with %+v", e)
			}
			c.near.Limit = name
			r.near(c.near)
		})
	}
	t.Run("turn_minutes", func(t *testing.T) {
		t.Parallel()
		r := bots(t, nil)
		r.settings.Model, r.settings.Limits = "fake-slow", turn.Limits{Time: 15 * time.Second}
		r.says("q", "@bot one two three")
		if e := r.end("q"); e.Outcome != entry.TurnLimited || e.Reason != "turn_minutes" || e.Message == "" || e.Next == "" {
			t.Errorf("it ends with %+v", e)
		}
		if steps := of[entry.PiAssistant](r.entries()); len(steps) != 1 || steps[0].Text() == "" {
			t.Errorf("of what it wrote it keeps %+v", steps)
		}
		r.near(entry.LimitNear{Limit: "turn_minutes", Used: 0.2, Max: 0.25})
	})
	t.Run("turn_minutes, while a tool runs", func(t *testing.T) {
		t.Parallel()
		r := botsOn(t, newGated(), toolCaller("run_command", map[string]string{"command": "endless"}))
		env, err := r.boxes.CreateEnvironment(t.Context(), r.scope, "an environment", sandbox.Recipe{Driver: "local"})
		if err != nil {
			t.Fatal(detail(err))
		}
		r.th = r.threadWith(env.ID)
		r.settings.Limits = turn.Limits{Time: 15 * time.Second}
		r.says("q", "@bot go")
		if e := r.end("q"); e.Outcome != entry.TurnLimited || e.Reason != "turn_minutes" {
			t.Errorf("it ends with %+v", e)
		}
		r.near(entry.LimitNear{Limit: "turn_minutes", Used: 0.2, Max: 0.25})
	})
	t.Run("of sense", func(t *testing.T) {
		t.Parallel()
		r := bots(t, func(*modeltest.Request) modeltest.Reply {
			// Its result is always the same, whereas a list of threads changes over time.
			return modeltest.Reply{Calls: []modeltest.Call{{Name: "read_thread", Arguments: `{"thread_id":"nowhere"}`}}}
		})
		r.says("q", "@bot go")
		if e := r.end("q"); e.Reason != "loop" {
			t.Errorf("it ends with %+v", e)
		}
	})
}

// near asserts that exactly one entry before the end of the thread's turn warns that a limit is near.
func (r *botBench) near(want entry.LimitNear) {
	r.t.Helper()
	var near []entry.LimitNear
	for _, e := range r.entries() {
		if ended, ok := entry.As[entry.TurnEnded](e); ok {
			want.TurnID, want.AgentID = ended.TurnID, ended.AgentID
			break
		}
		near = append(near, of[entry.LimitNear]([]entry.Entry{e})...)
	}
	if !slices.Equal(near, []entry.LimitNear{want}) {
		r.t.Errorf("before the end it says %+v, want %+v", near, want)
	}
}

func TestATurnInAThreadThatIsClosedOrDeletedEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*botBench) error{
		"closed": func(r *botBench) error {
			_, err := r.threads.Update(r.t.Context(), r.scope, r.th, thread.Change{Status: new(thread.Closed)})
			return err
		},
		"deleted": func(r *botBench) error { return r.dispatcher.DeleteThread(r.t.Context(), r.scope, r.th) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bots(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "one two", Hold: true} })
			r.says("q", "@bot go")
			r.awaitRequests(1)
			if err := end(r); err != nil {
				t.Fatal(detail(err))
			}
			r.letGo()
			owner := r.Owner(t)
			for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
				var active int
				err := owner.QueryRow(t.Context(), "select (select count(*) from turns where ended_at is null) + (select count(*) from "+db.JobSchema+".river_job where kind = 'turn' and state in ('running', 'available', 'scheduled'))").Scan(&active)
				if err != nil {
					t.Fatal(err)
				}
				if active == 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d turns and jobs are left", active)
				}
			}
			if name == "closed" {
				if e := r.end("q"); e.Reason != "thread_closed" || len(of[entry.PiAssistant](r.entries())) != 1 {
					t.Errorf("it ends with %+v", e)
				}
			}
		})
	}
}

// threadWith creates a thread with an environment.
func (r *botBench) threadWith(environment string) string {
	r.t.Helper()
	th, err := r.threads.Create(r.t.Context(), r.scope, thread.Draft{Environment: environment})
	if err != nil {
		r.t.Fatal(detail(err))
	}
	return th.ID
}

func TestABotThatListensSpeaksOnlyIfItHasSomethingToSay(t *testing.T) {
	t.Parallel()
	gate := func(word string) modeltest.Script {
		return func(q *modeltest.Request) modeltest.Reply {
			if strings.Contains(q.Asked(), "yes or no") {
				return modeltest.Reply{Text: word}
			}
			return modeltest.Reply{Text: "By the way: " + q.Asked()}
		}
	}
	t.Run("it has", func(t *testing.T) {
		t.Parallel()
		r := bots(t, gate("Yes."))
		r.says("q", "soon we meet")
		if c := r.answer("q"); !strings.HasPrefix(c.Text, "By the way") {
			t.Errorf("it says %q", c.Text)
		}
		if s := of[entry.TurnStarted](r.entries()); len(s) != 1 || s[0].Reason != "ambient" {
			t.Errorf("these turns began: %+v", s)
		}
	})
	t.Run("it has not", func(t *testing.T) {
		t.Parallel()
		r := bots(t, gate("no"))
		r.says("q", "soon we meet")
		all := r.until(func(e entry.Entry) bool { return e.Type == entry.Skipped{}.Type() })
		if s := of[entry.Skipped](all); s[0].Reason != "gate" || s[0].EntryID != "q" || len(of[entry.TurnStarted](all)) != 0 {
			t.Errorf("the log says %+v", s)
		}
	})
	t.Run("nothing is decided while it waits", func(t *testing.T) {
		t.Parallel()
		r := bots(t, gate("yes"))
		r.says("one", "later we meet")
		r.untilRow("select asked @> '{one}' from turns")
		d, err := r.server.dispatcher.Decisions(t.Context(), r.scope, r.th)
		if err != nil || d.Upto != 1 || len(d.Delayed) != 1 || d.Delayed[0].Bot != r.bot || !slices.Equal(d.Delayed[0].Asked, []string{"one"}) {
			t.Errorf("decided is %+v, %v", d, err)
		}
	})
	t.Run("further messages delay it", func(t *testing.T) {
		t.Parallel()
		r := bots(t, gate("yes"))
		r.says("one", "later we meet")
		r.says("two", "soon we meet")
		if c := r.answer("two"); !slices.Equal(c.Turn.Answers, []string{"one", "two"}) {
			t.Errorf("it answers %q", c.Turn.Answers)
		}
	})
	t.Run("a mention ends the delay", func(t *testing.T) {
		t.Parallel()
		r := bots(t, gate("no"))
		r.says("one", "later we meet")
		r.says("two", "@bot when?")
		if c := r.answer("two"); !slices.Equal(c.Turn.Answers, []string{"one", "two"}) {
			t.Errorf("it answers %q", c.Turn.Answers)
		}
	})
	// hesitate is a gate whose first call waits until the test releases it.
	hesitate := func(q *modeltest.Request) modeltest.Reply {
		if strings.Contains(q.Asked(), "yes or no") {
			return modeltest.Reply{Text: "no", Hold: q.Seen == 0}
		}
		return modeltest.Reply{Text: "By the way"}
	}
	t.Run("a mention is answered even while it considers", func(t *testing.T) {
		t.Parallel()
		r := bots(t, hesitate)
		r.says("one", "soon we meet")
		r.awaitRequests(1)
		r.says("two", "@bot when?")
		r.until(func(e entry.Entry) bool { return e.Type == entry.TurnStarted{}.Type() })
		r.letGo()
		if c := r.answer("two"); !slices.Equal(c.Turn.Answers, []string{"one", "two"}) {
			t.Errorf("it answers %q", c.Turn.Answers)
		}
	})
	t.Run("what is said while it considers is considered, too", func(t *testing.T) {
		t.Parallel()
		r := bots(t, hesitate)
		r.says("one", "soon we meet")
		r.awaitRequests(1)
		r.says("two", "soon at noon")
		r.untilRow("select asked @> '{two}' from turns")
		r.letGo()
		r.awaitRequests(2)
		r.until(func(e entry.Entry) bool { return e.Type == entry.Skipped{}.Type() })
		if asked := r.models.Requests()[1].Messages; !strings.Contains(fmt.Sprint(asked), "at noon") {
			t.Errorf("it considered %v", asked)
		}
	})
	t.Run("it can be stopped while it considers, and answers later", func(t *testing.T) {
		t.Parallel()
		r := bots(t, hesitate)
		r.says("one", "soon we meet")
		r.awaitRequests(1)
		r.stopAll(1)
		all := r.until(func(e entry.Entry) bool { return e.Type == entry.Skipped{}.Type() })
		if s := of[entry.Skipped](all); s[0].Reason != "stopped" {
			t.Errorf("the log says %+v", s)
		}
		r.says("two", "@bot when?")
		r.answer("two")
	})
	t.Run("its policy says what it listens for", func(t *testing.T) {
		t.Parallel()
		r := bots(t, gate("no"))
		r.settings.Listens = map[string]string{"": "the tunedBench"}
		r.says("one", "soon we meet")
		r.awaitRequests(1)
		if asked := r.models.Requests()[0].Asked(); !strings.Contains(asked, "only about this: the tunedBench") {
			t.Errorf("it is asked %q", asked)
		}
	})
	t.Run("it can be stopped before it speaks", func(t *testing.T) {
		t.Parallel()
		r := bots(t, gate("yes"))
		r.says("one", "later we meet")
		deadline := time.Now().Add(patience)
		for {
			found, err := r.dispatcher.StopTurns(t.Context(), r.scope, r.th, "")
			if err != nil {
				t.Fatal(detail(err))
			}
			if len(found) == 1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("nothing is waiting")
			}
			time.Sleep(20 * time.Millisecond)
		}
		all := r.until(func(e entry.Entry) bool { return e.Type == entry.Skipped{}.Type() })
		if s := of[entry.Skipped](all); s[0].Reason != "stopped" {
			t.Errorf("the log says %+v", s)
		}
	})
}

func TestABotThatListensAsksTheSmallModelOfItsProvider(t *testing.T) {
	t.Parallel()
	const own = "claude-sonnet-4-5"
	_, small := model.DefaultModels(model.Anthropic)
	for name, c := range map[string]struct {
		unknown bool
		own     string
		// asked holds the models that are asked about two conversations.
		asked []string
	}{
		"where there is one":                           {own: own, asked: []string{small, small}},
		"and its own once it is known not to be there": {own: own, unknown: true, asked: []string{small, own, own}},
		"but not where its own is not the provider's":  {own: "fake-answer", asked: []string{"fake-answer", "fake-answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bots(t, func(q *modeltest.Request) modeltest.Reply {
				if c.unknown && q.Model == small {
					return modeltest.Refused(modeltest.Messages, 404)
				}
				return modeltest.Reply{Text: "no"}
			})
			r.settings.Model = c.own
			for _, id := range []string{"one", "two"} {
				r.says(id, "soon we meet")
				all := r.until(func(e entry.Entry) bool { s, ok := entry.As[entry.Skipped](e); return ok && s.EntryID == id })
				if s, _ := entry.As[entry.Skipped](all[len(all)-1]); s.Reason != "gate" {
					t.Errorf("the log says %+v", s)
				}
			}
			var asked []string
			for _, q := range r.models.Requests() {
				asked = append(asked, q.Model)
			}
			if !slices.Equal(asked, c.asked) {
				t.Errorf("it asked %q, want %q", asked, c.asked)
			}
		})
	}
}

func TestABotThatListensGivesUpAfterSomeFailures(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"that are errors": func() error { return fault.New(fault.Internal, "the names are gone", "report it") },
		"that are panics": func() error { panic("the names are gone") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := benchWithBot(database(t), func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "Here I am."} })
			r.driver = newGated()
			var failed, mended atomic.Int64
			tune := r.tune
			r.tune = func(c *dispatch.Config) {
				tune(c)
				person := c.Bots.Person
				c.Bots.Person = func(ctx context.Context, scope db.Scope, id string) (turn.Person, error) {
					if mended.Load() == 0 {
						failed.Add(1)
						return turn.Person{}, fail()
					}
					return person(ctx, scope, id)
				}
			}
			r.server = r.serve()
			r.th = r.conversation()
			r.says("one", "soon we meet")
			all := r.until(func(e entry.Entry) bool { return e.Type == entry.Skipped{}.Type() })
			if s := of[entry.Skipped](all); s[0].Reason != "gate_failed" || s[0].EntryID != "one" || s[0].Explanation == "" {
				t.Errorf("the log says %+v", s)
			}
			if n := failed.Load(); n != 5 {
				t.Errorf("it was tried %d times", n)
			}
			mended.Store(1)
			r.says("two", "@bot when?")
			r.answer("two")
		})
	}
}
