package turn_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a house with Ada, a bot, a thread, and a runner whose turns the test itself runs.
type bench struct {
	*dbtest.Database
	t      testing.TB
	log    *stream.Log
	scope  db.Scope
	bot    string
	thread string
	models *modeltest.Server
	runner *turn.Runner

	mu       sync.Mutex
	settings turn.Bot
	tools    []turn.Tool
	noTools  error // what asking for the tools ends with
	removed  bool  // the bot was removed
	queued   []turn.Turn
	parked   []turn.Turn
}

// setup makes a bench. A nil script answers with what was asked. tune changes what its runner is made with.
func setup(t *testing.T, script modeltest.Script, tune ...func(*turn.Config)) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10), t: t, models: modeltest.New(t, script), settings: turn.Bot{Handle: "bot", Name: "Bot", Model: "fake-answer"}}
	err := b.Owner(t).QueryRow(t.Context(), `
		with h as (insert into houses (name) values ('Home') returning id),
		     a as (insert into agents (kind, name) values ('human', 'Ada') returning id),
		     b as (insert into agents (kind, name, runtime) values ('bot', 'Bot', 'pi') returning id),
		     m as (insert into members (house_id, agent_id, role) select h.id, a.id, 'owner' from h, a
		           union all select h.id, b.id, 'member' from h, b)
		select h.id::text, a.id::text, b.id::text from h, a, b`).Scan(&b.scope.House, &b.scope.Agent, &b.bot)
	if err != nil {
		t.Fatal(err)
	}
	if b.log, err = stream.Open(t.Context(), b.DB, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.log.Close)
	made, err := thread.New(b.DB, b.log).Create(t.Context(), b.scope, thread.Draft{Name: "a thread"})
	if err != nil {
		t.Fatal(err)
	}
	b.thread = made.ID
	c := turn.Config{
		DB: b.DB, Log: b.log, Logger: slog.New(slog.DiscardHandler), Model: new(model.Client),
		Waits: turn.Waits{First: time.Millisecond, Max: 5 * time.Millisecond},
		Tools: b.toolsOf, Bot: b.bots, Endpoint: b.endpoint, Person: b.person,
		Queue: b.keep(&b.queued), Park: b.keep(&b.parked),
	}
	for _, f := range tune {
		f(&c)
	}
	b.runner = turn.NewRunner(c)
	return b
}

func (b *bench) toolsOf(_ context.Context, scope db.Scope, bot string) ([]turn.Tool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if scope.House != b.scope.House || bot != b.bot {
		return nil, fault.New(fault.Internal, "the tools of another bot were asked for", "")
	}
	return slices.Clone(b.tools), b.noTools
}

func (b *bench) bots(context.Context, db.Scope, string) (turn.Bot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.removed {
		return turn.Bot{}, fault.New(fault.NotFound, "there is no such bot", "")
	}
	return b.settings, nil
}

func (b *bench) endpoint(_ context.Context, _ db.Scope, ref string) (model.Endpoint, string, error) {
	if ref == "" {
		return model.Endpoint{}, "", fault.New(fault.NotFound, "this house has no model", "paste the key of a provider")
	}
	return model.Endpoint{Provider: model.Anthropic, BaseURL: b.models.URL, Key: "sk-test", Trusted: true}, ref, nil
}

func (b *bench) person(_ context.Context, _ db.Scope, id string) (turn.Person, error) {
	if id == b.bot {
		return turn.Person{Name: "Bot", Bot: true}, nil
	}
	return turn.Person{Name: "Ada"}, nil
}

// keep keeps the turns that are queued or parked, as their rows were then.
func (b *bench) keep(list *[]turn.Turn) func(context.Context, pgx.Tx, turn.Turn) error {
	return func(_ context.Context, _ pgx.Tx, t turn.Turn) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		*list = append(*list, t)
		return nil
	}
}

// change changes the settings and the tools of the bot, also while a turn runs.
func (b *bench) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// has gives the bot these tools, all of them allowed by its settings.
func (b *bench) has(tools ...turn.Tool) {
	b.change(func() {
		b.tools = tools
		for _, t := range tools {
			b.settings.Tools = append(b.settings.Tools, t.Name)
		}
	})
}

// tool is a tool without arguments.
func tool(name string, run func(context.Context, turn.Call) (turn.Result, error)) turn.Tool {
	return turn.Tool{Tool: model.Tool{Name: name, Description: "does " + name, Schema: json.RawMessage(`{"type":"object","properties":{}}`)}, Run: run}
}

// says is a tool that returns a text.
func says(name, text string) turn.Tool {
	return tool(name, func(context.Context, turn.Call) (turn.Result, error) { return turn.Result{Text: text}, nil })
}

// uses is a model that calls tools, one list of them with each step, and then says what the last of them returned.
func uses(steps ...[]string) modeltest.Script {
	return func(q *modeltest.Request) modeltest.Reply {
		if q.Seen >= len(steps) {
			return modeltest.Reply{Text: "The tool said: " + q.Last().Text}
		}
		reply := modeltest.Reply{Text: "Let me look."}
		for _, name := range steps[q.Seen] {
			reply.Calls = append(reply.Calls, modeltest.Call{Name: name, Arguments: "{}"})
		}
		return reply
	}
}

func (b *bench) ref() stream.Ref {
	return stream.Ref{House: b.scope.House, Name: thread.StreamName(b.thread)}
}

// in runs f in a transaction of Ada's.
func (b *bench) in(f func(pgx.Tx) error) {
	b.t.Helper()
	if err := b.DB.In(b.t.Context(), b.scope, f); err != nil {
		b.t.Fatal(fault.From(err).Detail())
	}
}

// asks has Ada ask the bot something, and returns the turn that takes the question, and the outcome of the request.
func (b *bench) asks(id, text string, as ...func(*turn.Request)) (t turn.Turn, o turn.Outcome) {
	b.t.Helper()
	said, err := b.log.Append(b.t.Context(), b.ref(), entry.NewDraft(id, b.scope.Agent, entry.Chat{Text: text}))
	if err != nil {
		b.t.Fatal(fault.From(err).Detail())
	}
	q := turn.Request{House: b.scope.House, Thread: b.thread, Bot: b.bot, Entry: id, Seq: said[0].Seq, Reason: string(entry.ReasonMention)}
	for _, f := range as {
		f(&q)
	}
	b.in(func(tx pgx.Tx) (err error) {
		t, o, err = turn.RequestTx(b.t.Context(), tx, b.log, b.ref(), q)
		return err
	})
	return t, o
}

// run works on a turn once, as a server does.
func (b *bench) run(id string) error { return b.runOn(b.t.Context(), id) }

func (b *bench) runOn(ctx context.Context, id string) error {
	return b.runner.Run(ctx, b.scope.House, id, b.ref())
}

// answered runs a turn to its end, and returns the chat with which it answers.
func (b *bench) answered(id string) entry.Chat {
	b.t.Helper()
	if err := b.run(id); err != nil {
		b.t.Fatal(fault.From(err).Detail())
	}
	for _, c := range of[entry.Chat](b) {
		if c.Turn != nil && c.Turn.TurnID == id {
			return c
		}
	}
	b.t.Fatalf("the turn has no answer; the log says %s", b.story())
	return entry.Chat{}
}

// ended runs a turn to its end, and returns why it has no answer.
func (b *bench) ended(id string) entry.TurnEnded {
	b.t.Helper()
	if err := b.run(id); err != nil {
		b.t.Fatal(fault.From(err).Detail())
	}
	for _, e := range of[entry.TurnEnded](b) {
		if e.TurnID == id {
			return e
		}
	}
	b.t.Fatalf("the turn has not ended without an answer; the log says %s", b.story())
	return entry.TurnEnded{}
}

// row is the turn as the database has it.
func (b *bench) row(id string) (t turn.Turn) {
	b.t.Helper()
	b.in(func(tx pgx.Tx) (err error) {
		t, err = turn.GetTx(b.t.Context(), tx, id)
		return err
	})
	return t
}

func (b *bench) entries() []entry.Entry {
	b.t.Helper()
	list, _, err := b.log.Read(b.t.Context(), b.ref(), stream.Range{Limit: 1000})
	if err != nil {
		b.t.Fatal(fault.From(err).Detail())
	}
	return list
}

// of returns the thread's entries of a kind.
func of[P entry.Payload](b *bench) (found []P) {
	b.t.Helper()
	for _, e := range b.entries() {
		if p, ok := entry.As[P](e); ok {
			found = append(found, p)
		}
	}
	return found
}

func (b *bench) story() string {
	text, _ := json.Marshal(b.entries())
	return string(text)
}
