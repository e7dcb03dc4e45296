// Package policy decides which bots an entry wakes. It is pure: it reads no database and no clock, so that whoever decides
// about an entry again, on any server, decides the same.
//
// [Select] looks at each bot of the house on its own, and returns at most one decision for it. What may happen:
//
//   - A mention is always answered. "always" is answered past its cooldown, "ambient" after a delay.
//   - A mention by a bot within the cooldown waits for the rest of it.
//   - A bot that works in the thread already is told what was said: the entry is steered into its turn.
//   - A bot never wakes itself. What bots say to each other wakes them only with a pause between, and at most eight times in
//     a row, so that bots cannot talk to each other for ever.
//   - What is said with a credential for one thread wakes no bot.
//
// A bot to which an entry means nothing has no decision. A decision to skip is for a bot that people may have expected to
// answer; its Reason says why it does not.
package policy

import (
	"slices"
	"time"

	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
)

const (
	// MaxChain is how many answers bots may give in a row, beginning with the one to a person.
	MaxChain = 8
	// BotCooldown is how long after its last turn in a thread a bot is not woken by another bot.
	BotCooldown = 5 * time.Second
)

// Kind is what wrote an entry.
type Kind string

// The kinds.
const (
	Human Kind = "human"
	Bot   Kind = "bot"
)

// Trigger is a chat entry that was said in a thread.
type Trigger struct {
	// Thread is the thread's id.
	Thread string
	// Author is the agent who wrote it, AuthorKind what they are.
	Author     string
	AuthorKind Kind
	// Mentions are the handles in its text; see entry.Mentions.
	Mentions []string
	// Direct is the agent to whom the thread is a direct message; empty if it is none.
	Direct string
	// Driver is the bot that drives the thread; empty for a chat. What is said there reaches it without a policy.
	Driver string
	// Chain is how many answers bots have given in a row up to this entry, itself included: 0 for an entry of a person, and 1
	// for the answer of a bot to it.
	Chain int
	// Confined is that of [entry.Chat].
	Confined bool
}

// State is what a bot does in the thread of a trigger.
type State struct {
	// LastTurn is when its last turn in the thread ended; zero if it had none.
	LastTurn time.Time
	// Active says that a turn of it runs there, Waiting that one waits to begin.
	Active, Waiting bool
	// Now is the time of the decision.
	Now time.Time
}

// Action is what to do.
type Action string

// The actions.
const (
	// Fire: begin a turn now.
	Fire Action = "fire"
	// Steer: tell the turn that runs.
	Steer Action = "steer"
	// Delay: begin a turn after [Decision.After]. An ambient turn that waits already waits again for the whole of it.
	Delay Action = "delay"
	// Skip: do nothing, and say why.
	Skip Action = "skip"
)

// Decision is what an entry means for a bot.
type Decision struct {
	// Bot is the bot's id, and Policy the id of the policy that matched; empty if none did.
	Bot, Policy string
	Action      Action
	// After is the delay of Delay.
	After time.Duration
	// Tools are the names of the tools that the turn may use, of those that the bot has; empty for all.
	Tools  []string
	Reason entry.Reason
}

// Select returns the decisions about a trigger in the order of the roster: at most one for each bot. state has the state of
// the bots by id; one without a state has not worked in the thread.
func Select(t Trigger, roster []bot.Bot, state map[string]State) []Decision {
	var decisions []Decision
	for _, b := range roster {
		if b.ID == t.Author || t.Author == "" { // arbe itself says nothing that is to be answered
			continue
		}
		if d, matters := decide(t, b, state[b.ID]); matters {
			decisions = append(decisions, d)
		}
	}
	return decisions
}

// Listens reports whether a chat in a thread may mean something to a bot that it does not mention. direct is that of
// [Trigger].
func Listens(thread, direct string, roster []bot.Bot) bool {
	// Whatever wakes a bot when another bot speaks also wakes it when a person does.
	return len(Select(Trigger{Thread: thread, Author: "somebody", AuthorKind: Human, Direct: direct}, roster, nil)) > 0
}

// decide returns the decision about one bot: the best of those of its policies.
func decide(t Trigger, b bot.Bot, s State) (best Decision, matters bool) {
	mentioned := slices.Contains(t.Mentions, b.Handle)
	if b.Codes() {
		return Decision{Bot: b.ID, Action: Skip, Reason: entry.ReasonCodes}, mentioned && t.Driver != b.ID
	}
	if mentioned {
		best, matters = Decision{Bot: b.ID, Action: Skip, Reason: entry.ReasonNoPolicy}, true
	}
	for _, p := range b.Policies {
		d, matches := match(t, b, p, mentioned)
		if !matches {
			continue
		}
		if d.Action != Skip {
			d = limit(t, p, s, d)
		}
		if !matters || better(d, best) {
			best, matters = d, true
		}
	}
	if t.Confined && matters && best.Action != Skip {
		// Otherwise a credential for one thread would have a bot read and do for it what it may not.
		return Decision{Bot: b.ID, Policy: best.Policy, Action: Skip, Reason: entry.ReasonConfined}, best.Reason != entry.ReasonAmbient
	}
	return best, matters
}

// match returns what one policy means for a trigger, whatever the bot does now.
func match(t Trigger, b bot.Bot, p bot.Policy, mentioned bool) (d Decision, matches bool) {
	settings, err := p.Settings()
	if err != nil || !p.Known() {
		return d, false // written by another version
	}
	d = Decision{Bot: b.ID, Policy: p.ID}
	if len(p.Tools) > 0 {
		d.Tools = p.Tools
	}
	inScope := len(settings.Scope) == 0 || slices.Contains(settings.Scope, t.Thread)
	if p.Trigger == bot.Mention {
		switch {
		case !mentioned:
			return d, false
		case !p.Enabled: // whoever mentions a bot wonders why it is silent
			d.Action, d.Reason = Skip, entry.ReasonDisabled
		case !inScope:
			d.Action, d.Reason = Skip, entry.ReasonScope
		default:
			d.Action, d.Reason = Fire, entry.ReasonMention
		}
		return d, true
	}
	if !p.Enabled || !inScope || settings.Direct && t.Direct != b.ID {
		return d, false
	}
	if p.Trigger == bot.Always {
		d.Action, d.Reason = Fire, entry.ReasonAlways
		return d, true
	}
	d.Action, d.Reason, d.After = Delay, entry.ReasonAmbient, milliseconds(settings.DelayMS)
	return d, d.After > 0 && t.AuthorKind == Human // because it waits for people to be silent
}

// limit applies what the bot does now, and the rules for entries of bots.
func limit(t Trigger, p bot.Policy, s State, d Decision) Decision {
	settings, _ := p.Settings()
	cooldown := milliseconds(settings.CooldownMS)
	if t.AuthorKind == Bot {
		cooldown = max(cooldown, BotCooldown)
	}
	switch {
	case t.AuthorKind == Bot && t.Chain >= MaxChain:
		return Decision{Bot: d.Bot, Policy: d.Policy, Action: Skip, Reason: entry.ReasonChain}
	case s.Active:
		return Decision{Bot: d.Bot, Policy: d.Policy, Action: Steer, Reason: entry.ReasonSteered, Tools: d.Tools}
	case !s.LastTurn.IsZero() && s.Now.Sub(s.LastTurn) < cooldown:
		if d.Reason == entry.ReasonMention { // whoever mentions a bot waits for its answer
			d.Action, d.After = Delay, cooldown-s.Now.Sub(s.LastTurn)
			return d
		}
		return Decision{Bot: d.Bot, Policy: d.Policy, Action: Skip, Reason: entry.ReasonCooldown}
	}
	return d
}

// preferred are the reasons of decisions, the best first.
var preferred = []entry.Reason{
	entry.ReasonMention, entry.ReasonAlways, entry.ReasonSteered, entry.ReasonAmbient, entry.ReasonCooldown, entry.ReasonChain, entry.ReasonScope,
	entry.ReasonDisabled, entry.ReasonNoPolicy,
}

// better reports whether d is preferred to another decision about the same bot. An answer is preferred to a wait, and a
// short wait to a long one. Of two reasons for silence, the one closer to an answer is preferred.
func better(d, than Decision) bool {
	rank := func(d Decision) int { return slices.Index(preferred, d.Reason) }
	if d.Action == Delay && than.Action == Delay && d.Reason == than.Reason {
		return d.After < than.After
	}
	return rank(d) < rank(than)
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
