package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/policy"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func on(id, trigger, config string) bot.Policy {
	return bot.Policy{ID: id, Trigger: trigger, Config: json.RawMessage(config), Enabled: true}
}

func off(p bot.Policy) bot.Policy {
	p.Enabled = false
	return p
}

// ago returns the state of a bot whose last turn ended so long ago.
func ago(d time.Duration) policy.State { return policy.State{LastTurn: now.Add(-d), Now: now} }

func TestSelect(t *testing.T) {
	t.Parallel()
	var (
		mention = on("m", bot.Mention, `{}`)
		direct  = on("d", bot.Always, `{"direct": true}`)
		always  = on("a", bot.Always, `{"cooldown_ms": 60000}`)
		ambient = on("l", bot.Ambient, `{"delay_ms": 30000, "cooldown_ms": 60000}`)
		here    = on("h", bot.Mention, `{"scope_ids": ["t1", "t2"]}`)
		there   = on("t", bot.Mention, `{"scope_ids": ["t2"]}`)
	)
	person := policy.Trigger{Thread: "t1", Author: "ada", AuthorKind: policy.Human}
	program := policy.Trigger{Thread: "t1", Author: "other", AuthorKind: policy.Bot, Chain: 1}
	with := func(t policy.Trigger, change func(*policy.Trigger)) policy.Trigger { change(&t); return t }
	mentions := func(t policy.Trigger) policy.Trigger {
		return with(t, func(t *policy.Trigger) { t.Mentions = []string{"other", "bob"} })
	}
	confined := func(t policy.Trigger) policy.Trigger {
		return with(t, func(t *policy.Trigger) { t.Confined = true })
	}
	fresh, active := policy.State{Now: now}, policy.State{Now: now, Active: true}
	for _, c := range []struct {
		name     string
		trigger  policy.Trigger
		policies []bot.Policy
		state    policy.State
		want     string // action, policy and reason; empty for no decision
	}{
		// mention
		{"a mention", mentions(person), []bot.Policy{mention}, fresh, "fire m mention"},
		{"no mention", person, []bot.Policy{mention, direct}, fresh, ""},
		{"a mention right after an answer", mentions(person), []bot.Policy{mention}, ago(0), "fire m mention"},
		{"a mention while it works", mentions(person), []bot.Policy{mention}, active, "steer m steered"},
		{"a mention while it waits", mentions(person), []bot.Policy{mention}, policy.State{Now: now, Waiting: true}, "fire m mention"},
		{"a mention in scope", mentions(person), []bot.Policy{here}, fresh, "fire h mention"},
		{"a mention out of scope", mentions(person), []bot.Policy{there}, fresh, "skip t scope"},
		{"a mention that is turned off", mentions(person), []bot.Policy{off(mention)}, fresh, "skip m disabled"},
		{"a mention that is turned off, out of scope, and on", mentions(person), []bot.Policy{off(mention), there, here}, fresh, "fire h mention"},
		{"a mention that is turned off, and out of scope", mentions(person), []bot.Policy{off(mention), there}, fresh, "skip t scope"},
		{"a mention without a policy", mentions(person), nil, fresh, "skip  no_policy"},
		{"a mention without a policy, in a direct message", with(mentions(person), func(t *policy.Trigger) { t.Direct = "bob-id" }), []bot.Policy{direct}, fresh, "fire d always"},
		{"a mention with a config that cannot be read", mentions(person), []bot.Policy{on("x", bot.Mention, `{"future": 1}`)}, fresh, "skip  no_policy"},
		// without a mention
		{"a reply", with(person, func(t *policy.Trigger) { t.RepliesTo = "bob-id" }), []bot.Policy{mention}, fresh, "fire m reply"},
		{"a reply to another", with(person, func(t *policy.Trigger) { t.RepliesTo, t.Answering = "other", "bob-id" }), []bot.Policy{mention}, fresh, ""},
		{"a reply that mentions another", with(person, func(t *policy.Trigger) { t.RepliesTo, t.Named = "bob-id", true }), []bot.Policy{mention}, fresh, ""},
		{"a reply of a bot", with(program, func(t *policy.Trigger) { t.RepliesTo = "bob-id" }), []bot.Policy{mention}, fresh, ""},
		{"a reply without a policy", with(person, func(t *policy.Trigger) { t.RepliesTo = "bob-id" }), nil, fresh, "skip  no_policy"},
		{"a reply, confined", confined(with(person, func(t *policy.Trigger) { t.RepliesTo = "bob-id" })), []bot.Policy{mention}, fresh, "skip m confined"},
		{"where it answers", with(person, func(t *policy.Trigger) { t.Answering = "bob-id" }), []bot.Policy{mention}, fresh, "fire m answering"},
		{"where it answers, while it works", with(person, func(t *policy.Trigger) { t.Answering = "bob-id" }), []bot.Policy{mention}, active, "steer m steered"},
		{"where it answers, to another", with(person, func(t *policy.Trigger) { t.Answering, t.Named = "bob-id", true }), []bot.Policy{mention}, fresh, ""},
		{"where it answers, of a bot", with(program, func(t *policy.Trigger) { t.Answering = "bob-id" }), []bot.Policy{mention}, fresh, ""},
		{"where it answers, turned off", with(person, func(t *policy.Trigger) { t.Answering = "bob-id" }), []bot.Policy{off(mention)}, fresh, ""},
		{"where it answers, confined", confined(with(person, func(t *policy.Trigger) { t.Answering = "bob-id" })), []bot.Policy{mention}, fresh, ""},
		{"where another answers", with(person, func(t *policy.Trigger) { t.Answering = "other" }), []bot.Policy{mention}, fresh, ""},
		{"where nobody is to answer", with(person, func(t *policy.Trigger) { t.Quiet, t.Direct = true, "bob-id" }), []bot.Policy{mention, direct, always, ambient}, fresh, ""},
		{"a mention where nobody is to answer", with(mentions(person), func(t *policy.Trigger) { t.Quiet = true }), []bot.Policy{mention, always}, fresh, "fire m mention"},
		// always
		{"always", person, []bot.Policy{always}, fresh, "fire a always"},
		{"always, past the cooldown", person, []bot.Policy{always}, ago(time.Minute), "fire a always"},
		{"always, in the cooldown", person, []bot.Policy{always}, ago(time.Minute - 1), "skip a cooldown"},
		{"always, while it works", person, []bot.Policy{always}, policy.State{LastTurn: now, Now: now, Active: true}, "steer a steered"},
		{"always, turned off", person, []bot.Policy{off(always)}, fresh, ""},
		{"always, elsewhere", person, []bot.Policy{on("a", bot.Always, `{"scope_ids": ["t9"]}`)}, fresh, ""},
		{"always, and mentioned in the cooldown", mentions(person), []bot.Policy{always, mention}, ago(0), "fire m mention"},
		{"always, twice, of which one is past its cooldown", person, []bot.Policy{always, on("b", bot.Always, `{}`)}, ago(0), "fire b always"},
		{"a direct message", with(person, func(t *policy.Trigger) { t.Direct = "bob-id" }), []bot.Policy{mention, direct}, ago(0), "fire d always"},
		{"a direct message to another bot", with(person, func(t *policy.Trigger) { t.Direct = "other" }), []bot.Policy{mention, direct}, fresh, ""},
		// ambient
		{"ambient", person, []bot.Policy{ambient}, fresh, "delay l ambient 30s"},
		{"ambient, while it waits", person, []bot.Policy{ambient}, policy.State{Now: now, Waiting: true}, "delay l ambient 30s"},
		{"ambient, in the cooldown", person, []bot.Policy{ambient}, ago(time.Second), "skip l cooldown"},
		{"ambient, while it works", person, []bot.Policy{ambient}, active, "steer l steered"},
		{"ambient, of a bot", program, []bot.Policy{ambient}, fresh, ""},
		{"ambient, and mentioned", mentions(person), []bot.Policy{ambient, mention}, fresh, "fire m mention"},
		{"ambient, twice", person, []bot.Policy{ambient, on("k", bot.Ambient, `{"delay_ms": 5000}`)}, fresh, "delay k ambient 5s"},
		{"ambient, and always in its cooldown", person, []bot.Policy{on("k", bot.Ambient, `{"delay_ms": 5000}`), always}, ago(0), "delay k ambient 5s"},
		// what bots say
		{"a mention by a bot", mentions(program), []bot.Policy{mention}, fresh, "fire m mention"},
		{"a mention by a bot, right after an answer", mentions(program), []bot.Policy{mention}, ago(policy.BotCooldown - 1), "delay m mention 1ns"},
		{"a mention by a bot, right after an answer, and always", mentions(program), []bot.Policy{always, mention}, ago(time.Second), "delay m mention 4s"},
		{"a mention by a bot, right after an answer, confined", confined(mentions(program)), []bot.Policy{mention}, ago(0), "skip m confined"},
		{"a mention by a bot, later", mentions(program), []bot.Policy{mention}, ago(policy.BotCooldown), "fire m mention"},
		{"a mention by a bot, while it works", mentions(program), []bot.Policy{mention}, active, "steer m steered"},
		{"always, after a bot", program, []bot.Policy{always}, ago(10 * time.Second), "skip a cooldown"},
		{"the last of a chain", with(mentions(program), func(t *policy.Trigger) { t.Chain = policy.MaxChain - 1 }), []bot.Policy{mention}, fresh, "fire m mention"},
		{"one too many of a chain", with(mentions(program), func(t *policy.Trigger) { t.Chain = policy.MaxChain }), []bot.Policy{mention}, fresh, "skip m chain"},
		{"one too many, while it works", with(mentions(program), func(t *policy.Trigger) { t.Chain = policy.MaxChain }), []bot.Policy{mention}, active, "skip m chain"},
		{"a person ends a chain", with(mentions(person), func(t *policy.Trigger) { t.Chain = policy.MaxChain }), []bot.Policy{mention}, fresh, "fire m mention"},
		// what a credential for one thread says
		{"a mention, confined", confined(mentions(person)), []bot.Policy{mention}, fresh, "skip m confined"},
		{"a mention, confined, while it works", confined(mentions(person)), []bot.Policy{mention}, active, "skip m confined"},
		{"a mention that is turned off, confined", confined(mentions(person)), []bot.Policy{off(mention)}, fresh, "skip m disabled"},
		{"a direct message, confined", confined(with(person, func(t *policy.Trigger) { t.Direct = "bob-id" })), []bot.Policy{mention, direct}, fresh, "skip d confined"},
		{"always, confined, of a bot", confined(program), []bot.Policy{always}, fresh, "skip a confined"},
		{"ambient, confined", confined(person), []bot.Policy{ambient}, fresh, ""},
		{"no mention, confined", confined(person), []bot.Policy{mention, direct}, fresh, ""},
		// nobody
		{"itself", with(mentions(program), func(t *policy.Trigger) { t.Author = "bob-id" }), []bot.Policy{mention, always}, fresh, ""},
		{"arbe itself", with(mentions(person), func(t *policy.Trigger) { t.Author = "" }), []bot.Policy{mention, always}, fresh, ""},
		{"a trigger of the future", mentions(person), []bot.Policy{on("c", "cron", `{"expression": "0 * * * *"}`), mention}, fresh, "fire m mention"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			for _, d := range policy.Select(c.trigger, []bot.Bot{{ID: "bob-id", Handle: "bob", Policies: c.policies}}, map[string]policy.State{"bob-id": c.state}) {
				got += fmt.Sprintf("%s %s %s", d.Action, d.Policy, d.Reason)
				if d.After > 0 {
					got += " " + d.After.String()
				}
				if d.Bot != "bob-id" {
					t.Errorf("it is about %q", d.Bot)
				}
			}
			if got != c.want {
				t.Errorf("it is %q, want %q", got, c.want)
			}
		})
	}
}

func TestSeveralBotsAnswer(t *testing.T) {
	t.Parallel()
	mention := []bot.Policy{on("m", bot.Mention, `{}`)}
	roster := []bot.Bot{{ID: "1", Handle: "ann", Policies: mention}, {ID: "2", Handle: "bob", Policies: mention}, {ID: "3", Handle: "cyd", Policies: mention}}
	got := policy.Select(policy.Trigger{Thread: "t", Author: "ada", AuthorKind: policy.Human, Mentions: []string{"cyd", "nobody", "ann"}}, roster, nil)
	want := []policy.Decision{{Bot: "1", Policy: "m", Action: policy.Fire, Reason: entry.ReasonMention}, {Bot: "3", Policy: "m", Action: policy.Fire, Reason: entry.ReasonMention}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("they are %v", got)
	}
}

// world returns a random house.
func world(r *rand.Rand) (policy.Trigger, []bot.Bot, map[string]policy.State) {
	configs := map[string][]string{
		bot.Mention: {``, `{}`, `{"scope_ids": ["t0"]}`, `{"scope_ids": ["t1", "t2"]}`, `{"direct": 5}`},
		bot.Always:  {`{}`, `{"direct": true}`, `{"cooldown_ms": 3000}`, `{"scope_ids": ["t0"], "cooldown_ms": 86400000}`},
		bot.Ambient: {`{"delay_ms": 1000}`, `{"delay_ms": 5000, "cooldown_ms": 1000}`, `null`},
		"cron":      {`{}`, `[]`},
	}
	triggers := []string{bot.Mention, bot.Always, bot.Ambient, "cron"}
	var roster []bot.Bot
	state := map[string]policy.State{}
	for i := range r.IntN(6) {
		b := bot.Bot{ID: fmt.Sprint(i), Handle: fmt.Sprint("bot", i)}
		for j := range r.IntN(5) {
			trigger := triggers[r.IntN(len(triggers))]
			p := on(fmt.Sprintf("%d.%d", i, j), trigger, configs[trigger][r.IntN(len(configs[trigger]))])
			p.Enabled = r.IntN(4) > 0
			b.Policies = append(b.Policies, p)
		}
		roster = append(roster, b)
		if r.IntN(2) == 0 {
			state[b.ID] = policy.State{Now: now, Active: r.IntN(3) == 0, Waiting: r.IntN(3) == 0, LastTurn: now.Add(-time.Duration(r.IntN(8000)) * time.Millisecond)}
		}
	}
	t := policy.Trigger{Thread: fmt.Sprint("t", r.IntN(3)), AuthorKind: policy.Human, Author: "ada", Chain: r.IntN(10)}
	if r.IntN(2) == 0 {
		t.AuthorKind, t.Author = policy.Bot, fmt.Sprint(r.IntN(7))
	}
	for i := range r.IntN(8) {
		t.Mentions = append(t.Mentions, fmt.Sprint("bot", i))
	}
	if r.IntN(3) == 0 {
		t.Direct = fmt.Sprint(r.IntN(6))
	}
	if r.IntN(3) == 0 {
		t.Answering = fmt.Sprint(r.IntN(6))
	} else {
		t.Quiet = r.IntN(4) == 0
	}
	if r.IntN(3) == 0 {
		t.RepliesTo = fmt.Sprint(r.IntN(6))
	}
	t.Named = len(t.Mentions) > 0
	return t, roster, state
}

// In every house, nobody wakes themselves. Each bot gets at most one decision, in the order of the roster, with a
// reason that can be explained. A repetition decides the same.
func TestWhatHoldsInEveryHouse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		trigger, roster, state := world(rand.New(rand.NewPCG(seed, 1)))
		decisions := policy.Select(trigger, roster, state)
		if again := policy.Select(trigger, roster, state); !reflect.DeepEqual(decisions, again) {
			t.Fatalf("seed %d: %v, and then %v", seed, decisions, again)
		}
		if len(decisions) > 0 && len(trigger.Mentions) == 0 && trigger.RepliesTo == "" && !policy.Listens(trigger, roster) {
			t.Fatalf("seed %d: nobody listens, and %v", seed, decisions)
		}
		last := -1
		for _, d := range decisions {
			at := slices.IndexFunc(roster, func(b bot.Bot) bool { return b.ID == d.Bot })
			mentioned := slices.Contains(trigger.Mentions, roster[at].Handle)
			wakes := d.Action == policy.Fire || d.Action == policy.Steer || d.Action == policy.Delay
			switch {
			case d.Bot == trigger.Author:
				t.Fatalf("seed %d: there is a decision about the author", seed)
			case at <= last:
				t.Fatalf("seed %d: %v are not one for each bot, in order", seed, decisions)
			case strings.Contains(d.Reason.Explain(), "does not know"):
				t.Fatalf("seed %d: %q is not explained", seed, d.Reason)
			case wakes && trigger.AuthorKind == policy.Bot && trigger.Chain >= policy.MaxChain:
				t.Fatalf("seed %d: a chain continues: %v", seed, d)
			case d.Action == policy.Fire && state[d.Bot].Active:
				t.Fatalf("seed %d: two turns of one bot at once", seed)
			case d.Action == policy.Steer && !state[d.Bot].Active:
				t.Fatalf("seed %d: it is steered without a running turn", seed)
			case (d.After > 0) != (d.Action == policy.Delay):
				t.Fatalf("seed %d: %v", seed, d)
			case wakes && d.Policy == "":
				t.Fatalf("seed %d: no policy wakes it: %v", seed, d)
			case wakes && !roster[at].Policies[slices.IndexFunc(roster[at].Policies, func(p bot.Policy) bool { return p.ID == d.Policy })].Enabled:
				t.Fatalf("seed %d: a policy that is off wakes it: %v", seed, d)
			case d.Reason == entry.ReasonMention && !mentioned:
				t.Fatalf("seed %d: it was not mentioned: %v", seed, d)
			case (d.Reason == entry.ReasonReply || d.Reason == entry.ReasonAnswering) && (trigger.Named || trigger.AuthorKind != policy.Human):
				t.Fatalf("seed %d: it was not for it: %v", seed, d)
			case wakes && trigger.Quiet && !mentioned && trigger.RepliesTo != d.Bot:
				t.Fatalf("seed %d: it answers where nobody wants it: %v", seed, d)
			}
			last = at
		}
	}
}

// Bots that always answer each other stop.
func TestChainsEnd(t *testing.T) {
	t.Parallel()
	always := []bot.Policy{on("a", bot.Always, `{}`), on("m", bot.Mention, `{}`)}
	roster := []bot.Bot{{ID: "1", Handle: "ann", Policies: always}, {ID: "2", Handle: "bob", Policies: always}}
	trigger := policy.Trigger{Thread: "t", Author: "ada", AuthorKind: policy.Human}
	answers := 0
	for range 100 {
		fired := ""
		for _, d := range policy.Select(trigger, roster, nil) {
			if d.Action == policy.Fire {
				fired = d.Bot
			}
		}
		if fired == "" {
			break
		}
		answers++
		trigger = policy.Trigger{Thread: "t", Author: fired, AuthorKind: policy.Bot, Mentions: []string{"ann", "bob"}, Chain: trigger.Chain + 1}
	}
	if answers != policy.MaxChain {
		t.Errorf("%d answers were given, want %d", answers, policy.MaxChain)
	}
}
