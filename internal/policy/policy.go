// Package policy decides which bots an entry wakes. It is pure: it reads no database and no clock, so every server
// decides about an entry in the same way, however often.
//
// [Select] looks at each bot of the house separately, and returns at most one decision for it. The rules:
//
//   - A bot always answers a mention. If a person mentions nobody, it also answers a reply to its own message, and a message
//     in a thread in which it answers without being mentioned. The trigger "always" answers once its cooldown is over,
//     "ambient" after a delay.
//   - A mention by a bot within the cooldown waits for the rest of it.
//   - A bot that already works in the thread receives the entry in its current turn: the entry is steered.
//   - A bot never wakes itself. Bots wake each other only after a pause, and at most eight times in a row, so that they
//     cannot talk to each other forever.
//   - A message sent with a credential for one thread wakes no bot.
//
// A bot that an entry does not concern gets no decision. Select decides to skip only if people may expect the bot to
// answer; Reason then says why it does not.
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
	// BotCooldown is how long after a bot's last turn in a thread no other bot can wake it.
	BotCooldown = 5 * time.Second
)

// Kind is the kind of an entry's author.
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
	// Author is the agent who wrote it, and AuthorKind the kind of that agent.
	Author     string
	AuthorKind Kind
	// Mentions are the handles in its text; see entry.Mentions.
	Mentions []string
	// Direct is the agent whose direct-message thread this is; empty for other threads.
	Direct string
	// Driver is the bot that drives the thread; empty for a chat. Entries reach it without a policy.
	Driver string
	// Chain is the number of bots' answers in a row up to and including this entry: 0 for an entry of a person, 1 for a
	// bot's answer to it.
	Chain int
	// Confined is the Confined of [entry.Chat].
	Confined bool
	// Named reports that it mentions somebody of the house, and is therefore meant only for them.
	Named bool
	// RepliesTo is the author of the message to which it replies; empty if it is no reply, or a reply to the author's own
	// message.
	RepliesTo string
	// Answering is the bot that answers in the thread without being mentioned; empty for none. Quiet reports that people have
	// chosen none.
	Answering string
	Quiet     bool
}

// State is a bot's activity in the thread of a trigger.
type State struct {
	// LastTurn is when its last turn in the thread ended; zero if it had none.
	LastTurn time.Time
	// Active reports that one of its turns runs there, Waiting that one waits to begin.
	Active, Waiting bool
	// Now is the time of the decision.
	Now time.Time
}

// Action is the action of a decision.
type Action string

// The actions.
const (
	// Fire: begin a turn now.
	Fire Action = "fire"
	// Steer: add the entry to the running turn.
	Steer Action = "steer"
	// Delay: begin a turn after [Decision.After]. A waiting ambient turn starts its delay again.
	Delay Action = "delay"
	// Skip: do nothing, and say why.
	Skip Action = "skip"
)

// Decision is a bot's reaction to an entry.
type Decision struct {
	// Bot is the bot's id, and Policy the id of the policy that matched; empty if none did.
	Bot, Policy string
	Action      Action
	// After is the delay of Delay.
	After time.Duration
	// Tools are the names of the bot's tools that the turn may use; empty for all.
	Tools  []string
	Reason entry.Reason
}

// Select returns the decisions about a trigger in the order of the roster: at most one for each bot. state has the states
// of bots by id; a bot without one has not worked in the thread.
func Select(t Trigger, roster []bot.Bot, state map[string]State) []Decision {
	var decisions []Decision
	for _, b := range roster {
		if b.ID == t.Author || t.Author == "" { // nobody answers entries of arbe itself
			continue
		}
		if d, matters := decide(t, b, state[b.ID]); matters {
			decisions = append(decisions, d)
		}
	}
	return decisions
}

// Listens reports whether a chat in a thread may wake a bot that it neither mentions nor replies to. The trigger describes
// the thread.
func Listens(where Trigger, roster []bot.Bot) bool {
	// A message of a person wakes at least the bots that the same message of a bot would wake.
	where.Author, where.AuthorKind = "somebody", Human
	return len(Select(where, roster, nil)) > 0
}

// speaksTo returns the reason why an entry is meant for this bot: it mentions the bot, replies to it, or is in a thread
// in which the bot answers without being mentioned. The reason is empty if the entry is meant for nobody, or for
// others.
func speaksTo(t Trigger, b bot.Bot) entry.Reason {
	switch {
	case slices.Contains(t.Mentions, b.Handle):
		return entry.ReasonMention
	case t.Named || t.AuthorKind != Human: // bots do not start conversations by replying
	case t.RepliesTo != "":
		if t.RepliesTo == b.ID {
			return entry.ReasonReply
		}
	case t.Answering == b.ID && t.Driver == "" && !t.Quiet:
		return entry.ReasonAnswering
	}
	return ""
}

// decide returns the decision about one bot: the best one of its policies.
func decide(t Trigger, b bot.Bot, s State) (best Decision, matters bool) {
	why := speaksTo(t, b)
	asked := why == entry.ReasonMention || why == entry.ReasonReply // people then wonder if it is silent
	if b.Codes() {
		return Decision{Bot: b.ID, Action: Skip, Reason: entry.ReasonCodes}, asked && t.Driver != b.ID
	}
	if asked {
		best, matters = Decision{Bot: b.ID, Action: Skip, Reason: entry.ReasonNoPolicy}, true
	}
	for _, p := range b.Policies {
		d, matches := match(t, b, p, why)
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
		// Otherwise, the bot would read and do things for the holder of the credential that the credential does not allow.
		expected := best.Reason != entry.ReasonAmbient && best.Reason != entry.ReasonAnswering
		return Decision{Bot: b.ID, Policy: best.Policy, Action: Skip, Reason: entry.ReasonConfined}, expected
	}
	return best, matters
}

// match returns the decision of one policy about a trigger, regardless of the bot's activity. why is the result of
// [speaksTo].
func match(t Trigger, b bot.Bot, p bot.Policy, why entry.Reason) (d Decision, matches bool) {
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
		case why == "", why == entry.ReasonAnswering && (!p.Enabled || !inScope):
			return d, false
		case !p.Enabled: // people who address a bot should learn why it is silent
			d.Action, d.Reason = Skip, entry.ReasonDisabled
		case !inScope:
			d.Action, d.Reason = Skip, entry.ReasonScope
		default:
			d.Action, d.Reason = Fire, why
		}
		return d, true
	}
	if !p.Enabled || !inScope || t.Quiet || settings.Direct && t.Direct != b.ID {
		return d, false
	}
	if p.Trigger == bot.Always {
		d.Action, d.Reason = Fire, entry.ReasonAlways
		return d, true
	}
	d.Action, d.Reason, d.After = Delay, entry.ReasonAmbient, milliseconds(settings.DelayMS)
	return d, d.After > 0 && t.AuthorKind == Human // an ambient turn waits until people are silent
}

// limit adapts a decision to the bot's activity, and applies the rules for entries of bots.
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
		if d.Reason == entry.ReasonMention { // whoever mentions a bot waits for its answer, so the turn comes later instead of never
			d.Action, d.After = Delay, cooldown-s.Now.Sub(s.LastTurn)
			return d
		}
		return Decision{Bot: d.Bot, Policy: d.Policy, Action: Skip, Reason: entry.ReasonCooldown}
	}
	return d
}

// preferred are the reasons of decisions, best first.
var preferred = []entry.Reason{
	entry.ReasonMention, entry.ReasonReply, entry.ReasonAnswering, entry.ReasonAlways, entry.ReasonSteered, entry.ReasonAmbient, entry.ReasonCooldown, entry.ReasonChain, entry.ReasonScope,
	entry.ReasonDisabled, entry.ReasonNoPolicy,
}

// better reports whether d is preferable to another decision about the same bot: an answer to a wait, a short wait to a
// long one, and of two reasons for silence the one closer to an answer.
func better(d, than Decision) bool {
	rank := func(d Decision) int { return slices.Index(preferred, d.Reason) }
	if d.Action == Delay && than.Action == Delay && d.Reason == than.Reason {
		return d.After < than.After
	}
	return rank(d) < rank(than)
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
