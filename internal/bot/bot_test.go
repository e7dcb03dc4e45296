package bot_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench has one house of Ada's and one of Bob's.
type bench struct {
	*dbtest.Database
	bots   *bot.Bots
	houses *house.Houses
	log    *stream.Log
	ada    db.Scope
	bob    db.Scope
}

type noDriver struct{ sandbox.Driver }

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{Database: dbtest.Reuse(t, 10)}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	b.log, err = stream.Open(t.Context(), b.DB, quiet)
	must(t, err)
	t.Cleanup(b.log.Close)
	threads := thread.New(b.DB, b.log)
	b.bots = bot.New(b.DB, threads)
	b.houses = house.New(b.DB, b.log, threads, sandbox.NewResolver(sandbox.Config{
		DB: b.DB, Log: b.log, Threads: threads, Drivers: map[string]sandbox.Driver{sandbox.DefaultDriver: noDriver{}}, Logger: quiet,
	}), b.bots)
	for name, scope := range map[string]*db.Scope{"Ada": &b.ada, "Bob": &b.bob} {
		scope.Agent, err = b.houses.CreatePerson(t.Context(), name)
		must(t, err)
		h, err := b.houses.Create(t.Context(), scope.Agent, name+"'s")
		must(t, err)
		scope.House = h.ID
	}
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

func (b *bench) create(t *testing.T, d bot.Draft) bot.Bot {
	t.Helper()
	made, err := b.bots.Create(t.Context(), b.ada, d)
	must(t, err)
	return made
}

func (b *bench) roster(t *testing.T, scope db.Scope) (r bot.Roster) {
	t.Helper()
	must(t, b.DB.In(t.Context(), scope, func(tx pgx.Tx) (err error) {
		r, err = b.bots.RosterTx(t.Context(), tx, scope.House)
		return err
	}))
	return r
}

// recorded returns the entries of Ada's house about its bots, in plain words.
func (b *bench) recorded(t *testing.T) (said []string) {
	t.Helper()
	h, err := b.houses.Get(t.Context(), b.ada)
	must(t, err)
	page, _, err := b.log.Read(t.Context(), stream.Ref{House: h.ID, Name: thread.StreamName(h.PrimaryThread)}, stream.Range{Limit: 100})
	must(t, err)
	for _, e := range page {
		if p, ok := entry.Decode(e); ok && strings.HasPrefix(e.Type, "signal.house.bot_") {
			said = append(said, p.Plain())
		}
	}
	return said
}

func refused(t *testing.T, err error, code fault.Code, words ...string) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("the error is %v, want %v", err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(fault.From(err).Message, word) {
			t.Errorf("it says %q, want %q in it", fault.From(err).Message, word)
		}
	}
	if fault.From(err).Next == "" {
		t.Errorf("of %v it does not say what to do next", err)
	}
}

func TestANewHouseHasABot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.roster(t, b.ada)
	if len(r.Bots) != 1+len(bot.Coding) || r.Bots[0].Handle != "arbe" || r.Bots[0].Name != "arbe" || !slices.Equal(r.Bots[0].Tools, entry.DefaultTools) || r.Bots[0].Model != "" {
		t.Fatalf("it has %+v", r.Bots)
	}
	got, err := b.bots.GetByHandle(t.Context(), b.ada, "@Arbe")
	must(t, err)
	if got.Instructions != bot.DefaultInstructions || got.Runtime != "arbe" || got.ID != r.Bots[0].ID {
		t.Errorf("it is %+v", got)
	}
	for handle, runtime := range map[string]string{"pi": "pi", "codex": "codex", "claude": "claude-code"} {
		if got, err := b.bots.GetByHandle(t.Context(), b.ada, handle); err != nil || got.Runtime != runtime || !got.Codes() || len(got.Policies) != 0 || len(got.Tools) != 0 {
			t.Errorf("@%s is %+v: %v", handle, got, err)
		}
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.create(t, bot.Draft{Handle: " @Reviewer ", Name: "Code reviewer", Instructions: "Review.", Model: "openai/gpt-5", Tools: []string{"say", "run_command", "say"},
		Limits: bot.Limits{TurnSteps: 5}})
	if made.Handle != "reviewer" || made.Name != "Code reviewer" || made.Runtime != "arbe" || made.Model != "openai/gpt-5" || made.Instructions != "Review." ||
		!slices.Equal(made.Tools, []string{"run_command", "say"}) || made.Limits != (bot.Limits{TurnSteps: 5}) {
		t.Errorf("it is %+v", made)
	}
	if l := made.Limits.OrDefaults(); l.TurnSteps != 5 || l.TurnTokens != bot.DefaultLimits.TurnTokens || l.TurnUSD != 1 {
		t.Errorf("its limits are %+v", l)
	}
	if len(made.Policies) != 2 || made.Policies[0].Trigger != bot.Mention || made.Policies[1].Trigger != bot.Always || !made.Policies[0].Enabled {
		t.Errorf("its policies are %+v", made.Policies)
	}
	if s, err := made.Policies[1].Settings(); err != nil || !s.Direct {
		t.Errorf("it answers always with %+v, %v", s, err)
	}
	if said := b.recorded(t); !slices.Equal(said, []string{"Ada created the bot @reviewer"}) {
		t.Errorf("it is recorded as %q", said)
	}
	if none := b.create(t, bot.Draft{Handle: "mute", Tools: []string{}}); len(none.Tools) != 0 || none.Name != "mute" {
		t.Errorf("a bot without tools is %+v", none)
	}
	for _, c := range []struct {
		name  string
		draft bot.Draft
		code  fault.Code
		words []string
	}{
		{"nothing", bot.Draft{}, fault.Invalid, []string{"name: "}},
		{"1 MiB of instructions", bot.Draft{Handle: "x", Instructions: strings.Repeat("x", 1<<20)}, fault.Invalid, []string{"instructions: ", "64 KiB", "65536"}},
		{"instructions with a NUL", bot.Draft{Handle: "x", Instructions: "a\x00b"}, fault.Invalid, []string{"instructions: "}},
		{"a model without a provider", bot.Draft{Handle: "x", Model: "gpt-5"}, fault.Invalid, []string{"model: ", "provider"}},
		{"a provider without a model", bot.Draft{Handle: "x", Model: "openai/"}, fault.Invalid, []string{"model: "}},
		{"a model with a line break", bot.Draft{Handle: "x", Model: "openai/a\nb"}, fault.Invalid, []string{"model: "}},
		{"an unknown tool", bot.Draft{Handle: "x", Tools: []string{"rm"}}, fault.Invalid, []string{"tools: "}},
		{"a limit below zero", bot.Draft{Handle: "x", Limits: bot.Limits{TurnUSD: -1}}, fault.Invalid, []string{"limits.turn_usd: "}},
		{"a limit beyond the highest", bot.Draft{Handle: "x", Limits: bot.Limits{TurnMinutes: 1440}}, fault.Invalid, []string{"limits.turn_minutes: ", "240"}},
		{"a reserved handle", bot.Draft{Handle: "everyone"}, fault.Invalid, []string{"reserved"}},
		{"one that looks reserved", bot.Draft{Handle: "h0use"}, fault.Invalid, []string{"reserved"}},
		{"a handle of two words", bot.Draft{Handle: "code reviewer"}, fault.Invalid, []string{"handle: "}},
		{"a handle in Cyrillic", bot.Draft{Handle: "аrbe"}, fault.Invalid, []string{"handle: "}},
		{"a handle with an underscore", bot.Draft{Handle: "a_b"}, fault.Invalid, []string{"handle: "}},
		{"a long handle", bot.Draft{Handle: strings.Repeat("a", 40)}, fault.Invalid, []string{"handle: ", "39"}},
		{"the same handle", bot.Draft{Handle: "REVIEWER"}, fault.Exists, []string{"handle: ", "@reviewer"}},
		{"a handle that looks like it", bot.Draft{Handle: "re-vievver"}, fault.Exists, []string{"@re-vievver looks like @reviewer"}},
		{"another that does", bot.Draft{Handle: "arbe-"}, fault.Invalid, nil},
		{"and one of the default bot", bot.Draft{Handle: "ar-be"}, fault.Exists, []string{"looks like @arbe"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := b.roster(t, b.ada).Version
			_, err := b.bots.Create(t.Context(), b.ada, c.draft)
			refused(t, err, c.code, c.words...)
			if b.roster(t, b.ada).Version != before {
				t.Error("the roster changed")
			}
		})
	}
	t.Run("another house may use the same handle", func(t *testing.T) {
		if _, err := b.bots.Create(t.Context(), b.bob, bot.Draft{Handle: "reviewer"}); err != nil {
			t.Error(err)
		}
	})
}

// A bot without a handle gets a free one made from its name.
func TestHandlesFromNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct{ name, want string }{
		{"Code Reviewer", "code-reviewer"}, {"code reviewer", "code-reviewer-2"}, {"c0de Reviewer", "c0de-reviewer-3"}, {"Everyone", "everyone-bot"},
		{"日本", "bot"}, {"!", "bot-2"}, {"Arbe", "arbe-2"}, {strings.Repeat("x-", 40), "x-x-x-x-x-x-x-x-x-x-x-x-x-x-x"},
	} {
		if made := b.create(t, bot.Draft{Name: c.name}); made.Handle != c.want {
			t.Errorf("%q is @%s, want @%s", c.name, made.Handle, c.want)
		}
	}
}

// The database normalizes look-alikes as the code does.
func TestHandlesThatLookAlikeCollide(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, pair := range [][2]string{{"bob", "b0b"}, {"lint", "1int"}, {"modern", "modem"}, {"woven", "vvoven"}, {"a-b", "ab"}, {"c--d", "c-d"}, {"learn0", "leam-o"}} {
		b.create(t, bot.Draft{Handle: pair[0]})
		_, err := b.bots.Create(t.Context(), b.ada, bot.Draft{Handle: pair[1]})
		refused(t, err, fault.Exists, "@"+pair[1]+" looks like @"+pair[0])
	}
}

func TestTwoBotsAtOnceWithOneHandle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = b.bots.Create(context.Background(), b.ada, bot.Draft{Handle: []string{"twin", "tw-in"}[i%2]})
		})
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else {
			refused(t, err, fault.Exists, "handle: ")
		}
	}
	if r := b.roster(t, b.ada); made != 1 || len(r.Bots) != 2+len(bot.Coding) {
		t.Errorf("%d were created, and the house has %d", made, len(r.Bots))
	}
	if members, err := b.houses.Members(t.Context(), b.ada, db.Cursor{}, 100); err != nil || len(members) != 3+len(bot.Coding) {
		t.Errorf("the house has %d members, want Ada, the bots of a new house and the twin: %v", len(members), err)
	}
	// Two renames at once to one handle.
	one, two := b.create(t, bot.Draft{Handle: "one"}), b.create(t, bot.Draft{Handle: "two"})
	for i, id := range []string{one.ID, two.ID} {
		wg.Go(func() { _, errs[i] = b.bots.Edit(context.Background(), b.ada, id, bot.Change{Handle: new("same")}) })
	}
	wg.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("both renames: %v, %v", errs[0], errs[1])
	}
	refused(t, errors.Join(errs[0], errs[1]), fault.Exists)
}

func TestEdit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.create(t, bot.Draft{Handle: "helper"})
	before := b.roster(t, b.ada).Version
	same, err := b.bots.Edit(t.Context(), b.ada, made.ID, bot.Change{Name: new("helper"), Handle: new("@Helper")})
	must(t, err)
	if after := b.roster(t, b.ada).Version; after != before || !same.UpdatedAt.Equal(made.UpdatedAt) {
		t.Error("a change of nothing changes something")
	}
	tools := []string{"say"}
	now, err := b.bots.Edit(t.Context(), b.ada, made.ID, bot.Change{Handle: new("he-lper"), Name: new("The helper"), Instructions: new("Help."), Model: new("ollama/qwen3"),
		Tools: &tools, Limits: &bot.Limits{TurnMinutes: 5}})
	must(t, err)
	if now.Handle != "he-lper" || now.Name != "The helper" || now.Instructions != "Help." || now.Model != "ollama/qwen3" || !slices.Equal(now.Tools, tools) ||
		now.Limits.TurnMinutes != 5 || !now.UpdatedAt.After(made.UpdatedAt) {
		t.Errorf("it is %+v", now)
	}
	r := b.roster(t, b.ada)
	if r.Version <= before || !slices.ContainsFunc(r.Bots, func(m bot.Bot) bool { return m.Name == "The helper" && m.Instructions == "" }) {
		t.Errorf("the roster is %+v", r)
	}
	want := []string{"Ada created the bot @helper", "Ada changed the bot @he-lper: handle, name, instructions, model, tools, limits"}
	if said := b.recorded(t); !slices.Equal(said, want) {
		t.Errorf("it is recorded as %q, want %q", said, want)
	}
	b.create(t, bot.Draft{Handle: "other"})
	_, err = b.bots.Edit(t.Context(), b.ada, made.ID, bot.Change{Handle: new("0ther")})
	refused(t, err, fault.Exists, "@0ther looks like @other")
	_, err = b.bots.Edit(t.Context(), b.ada, made.ID, bot.Change{Model: new("qwen3")})
	refused(t, err, fault.Invalid, "model: ")
}

// A bot of another house does not exist for this one.
func TestAnotherHousesBot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.create(t, bot.Draft{Handle: "secretary", Instructions: "secret"})
	policy := made.Policies[0].ID
	for _, id := range []string{made.ID, uuid.NewString(), "no uuid", "", b.bob.Agent} {
		_, err := b.bots.Get(t.Context(), b.bob, id)
		refused(t, err, fault.NotFound)
		_, err = b.bots.Edit(t.Context(), b.bob, id, bot.Change{Name: new("mine")})
		refused(t, err, fault.NotFound)
		_, err = b.bots.CreatePolicy(t.Context(), b.bob, bot.Policy{Bot: id, Trigger: bot.Always})
		refused(t, err, fault.NotFound)
	}
	_, err := b.bots.GetByHandle(t.Context(), b.bob, "secretary")
	refused(t, err, fault.NotFound)
	_, err = b.bots.EditPolicy(t.Context(), b.bob, policy, bot.PolicyChange{Enabled: new(false)})
	refused(t, err, fault.NotFound)
	must(t, b.bots.DeletePolicy(t.Context(), b.bob, policy))
	if got, err := b.bots.Get(t.Context(), b.ada, made.ID); err != nil || got.Name != "secretary" || len(got.Policies) != 2 || !got.Policies[0].Enabled {
		t.Errorf("it is %+v: %v", got, err)
	}
	if err := b.DB.In(t.Context(), b.bob, func(tx pgx.Tx) error { _, err := b.bots.RosterTx(t.Context(), tx, b.ada.House); return err }); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("its roster: %v", err)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.create(t, bot.Draft{Handle: "helper"})
	version := b.roster(t, b.ada).Version
	changed := func(t *testing.T, want bool) {
		t.Helper()
		now := b.roster(t, b.ada).Version
		if now > version != want {
			t.Errorf("the roster went from %d to %d", version, now)
		}
		version = now
	}
	p, err := b.bots.CreatePolicy(t.Context(), b.ada, bot.Policy{Bot: made.ID, Name: "listens", Trigger: bot.Ambient, Config: json.RawMessage(`{"delay_ms": 30000, "scope_ids": ["t7k2m9q4x1ab"]}`), Enabled: true})
	must(t, err)
	changed(t, true)
	if s, err := p.Settings(); err != nil || s.DelayMS != 30000 || !slices.Equal(s.Scope, []string{"t7k2m9q4x1ab"}) || p.ID == "" {
		t.Errorf("it is %+v, %+v: %v", p, s, err)
	}
	for range 2 {
		p, err = b.bots.EditPolicy(t.Context(), b.ada, p.ID, bot.PolicyChange{Enabled: new(false)})
		must(t, err)
		if p.Enabled || p.Name != "listens" {
			t.Errorf("it is %+v", p)
		}
	}
	changed(t, true)
	_, err = b.bots.EditPolicy(t.Context(), b.ada, p.ID, bot.PolicyChange{Config: json.RawMessage(`{}`)})
	refused(t, err, fault.Invalid, "config.delay_ms: ")
	changed(t, false)
	for range 2 {
		must(t, b.bots.DeletePolicy(t.Context(), b.ada, p.ID))
	}
	changed(t, true)
	for _, trigger := range []string{"cron", "mentions", "ambient-2"} {
		_, err = b.bots.CreatePolicy(t.Context(), b.ada, bot.Policy{Bot: made.ID, Trigger: trigger})
		refused(t, err, fault.Invalid, "trigger: ")
	}
	_, err = b.bots.CreatePolicy(t.Context(), b.ada, bot.Policy{Bot: made.ID, Trigger: bot.Always, Tools: []string{"t7k2m9q4x1ab"}})
	refused(t, err, fault.Invalid, "tool_ids: ")
	limited, err := b.bots.CreatePolicy(t.Context(), b.ada, bot.Policy{Bot: made.ID, Trigger: bot.Always, Tools: []string{entry.SayTool, entry.ReadThreadTool}, Resources: []string{"r1"}})
	must(t, err)
	if !slices.Equal(limited.Tools, []string{entry.ReadThreadTool, entry.SayTool}) || !slices.Equal(limited.Resources, []string{"r1"}) {
		t.Errorf("the policy has %+v", limited)
	}
	// A policy stored by another version can be turned off, but cannot get another unknown trigger.
	if _, err := b.Owner(t).Exec(t.Context(), "update activation_policies set trigger = 'cron' where id = $1", limited.ID); err != nil {
		t.Fatal(err)
	}
	future, err := b.bots.EditPolicy(t.Context(), b.ada, limited.ID, bot.PolicyChange{Enabled: new(false)})
	must(t, err)
	if s, err := future.Settings(); future.Known() || err != nil || s.DelayMS != 0 || future.Trigger != "cron" {
		t.Errorf("a trigger of the future is %+v", future)
	}
	_, err = b.bots.EditPolicy(t.Context(), b.ada, limited.ID, bot.PolicyChange{Trigger: new("interval")})
	refused(t, err, fault.Invalid, "trigger: ")
	want := []string{"Ada created the bot @helper", "Ada changed the bot @helper: policy listens (added)", "Ada changed the bot @helper: policy listens (off)",
		"Ada changed the bot @helper: policy listens (deleted)", "Ada changed the bot @helper: policy always (added)"}
	if said := b.recorded(t); !slices.Equal(said, want) {
		t.Errorf("it is recorded as %q, want %q", said, want)
	}
	for config, words := range map[string]string{
		`mention {"cooldown_ms": 1}`: "config.cooldown_ms: ", `mention {"direct": true}`: "config.direct: ", `always {"delay_ms": 5}`: "config.delay_ms: ",
		`ambient {}`: "config.delay_ms: ", `ambient {"delay_ms": -1}`: "config.delay_ms: ", `ambient {"delay_ms": 86400001}`: "config.delay_ms: ",
		`always {"scope_ids": ["a b"]}`: "config.scope_ids: ", `always {"scope_ids": "x"}`: "config: ", `always {"scopes": []}`: "config: ",
		`always []`: "config: ", `always null`: "config: ", `always {`: "config: ", `always {} {}`: "config: ", `always {"instructions": "x"}`: "config.instructions: ",
		`always {"a": "\u0000"}`: "config: ", `Bad {}`: "trigger: ", ` {}`: "trigger: ",
	} {
		trigger, text, _ := strings.Cut(config, " ")
		_, err := b.bots.CreatePolicy(t.Context(), b.ada, bot.Policy{Bot: made.ID, Trigger: trigger, Config: json.RawMessage(text)})
		refused(t, err, fault.Invalid, words)
	}
}

// Removing a bot removes its row and its policies, and changes the roster.
func TestABotThatIsRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.create(t, bot.Draft{Handle: "temp", Name: "Temp"})
	before := b.roster(t, b.ada)
	must(t, b.houses.Remove(t.Context(), b.ada, made.ID, nil))
	after := b.roster(t, b.ada)
	if after.Version <= before.Version || len(after.Bots) != 1+len(bot.Coding) {
		t.Errorf("the roster is %+v", after)
	}
	if again := b.create(t, bot.Draft{Handle: "temp"}); again.ID == made.ID {
		t.Error("it is the old one")
	}
	if other := b.roster(t, b.bob); len(other.Bots) != 1+len(bot.Coding) {
		t.Errorf("Bob's roster is %+v", other)
	}
}

// A stale roster is never taken for a current one: whoever reads a version and then a roster sees every change that was
// committed before that version.
func TestTheRosterIsNeverStale(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.create(t, bot.Draft{Handle: "busy"})
	first := b.roster(t, b.ada).Version
	const renames = 50
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range renames {
			if _, err := b.bots.Edit(context.Background(), b.ada, made.ID, bot.Change{Name: new(strings.Repeat("x", i+1))}); err != nil {
				t.Error(err)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		r := b.roster(t, b.ada)
		i := slices.IndexFunc(r.Bots, func(m bot.Bot) bool { return m.ID == made.ID })
		// Each rename raises the version twice: for the bot, and for the agent.
		if renamed := int(r.Version-first) / 2; renamed > 0 && len(r.Bots[i].Name) < renamed {
			t.Errorf("version %d, after %d renames, has the name of rename %d", r.Version, renamed, len(r.Bots[i].Name))
		} else if !running && renamed != renames {
			t.Errorf("the version tells of %d renames, want %d", renamed, renames)
		}
	}
}

// Bots are changed and removed concurrently, and nobody waits forever.
func TestChangesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var wg sync.WaitGroup
	for range 15 {
		made := b.create(t, bot.Draft{Name: "Temp"})
		for _, change := range []func(context.Context) error{
			func(ctx context.Context) error {
				_, err := b.bots.Edit(ctx, b.ada, made.ID, bot.Change{Name: new("Renamed")})
				return err
			},
			func(ctx context.Context) error {
				_, err := b.bots.EditPolicy(ctx, b.ada, made.Policies[0].ID, bot.PolicyChange{Enabled: new(false)})
				return err
			},
			func(ctx context.Context) error { return b.bots.DeletePolicy(ctx, b.ada, made.Policies[1].ID) },
			func(ctx context.Context) error { return b.houses.Remove(ctx, b.ada, made.ID, nil) },
			func(ctx context.Context) error {
				_, err := b.bots.Create(ctx, b.ada, bot.Draft{Name: "Another"})
				return err
			},
		} {
			wg.Go(func() {
				if err := change(context.Background()); err != nil && fault.CodeOf(err) != fault.NotFound {
					t.Error(fault.From(err).Detail())
				}
			})
		}
		wg.Wait()
	}
}
