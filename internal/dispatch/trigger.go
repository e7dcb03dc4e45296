package dispatch

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/policy"
	"github.com/arbe-dev/arbe/internal/turn"
)

// trigger is an entry that may ask for turns.
type trigger struct {
	entry entry.Entry
	policy.Trigger
	// by is the id of the turn, if any, that wrote the entry.
	by string
	// replyTo is the id of the entry, if any, that it replies to.
	replyTo string
	// think is how hard the bots it asks should think.
	think entry.Effort
	// root is the person's entry from which it follows; see [turn.RootOf].
	root string
}

// triggersOf returns the triggers among entries for which a bot has a policy.
func triggersOf(ctx context.Context, n *News, roster known, entries []entry.Entry) (matter []*trigger, err error) {
	for _, e := range entries {
		t := triggerOf(n, e)
		if t == nil {
			continue
		}
		if slices.ContainsFunc(roster.Bots, func(b bot.Bot) bool { return b.ID == e.Author }) {
			t.AuthorKind = policy.Bot
		}
		if err := t.complete(ctx, n, roster); err != nil {
			return nil, err
		}
		if len(policy.Select(t.Trigger, roster.Bots, nil)) > 0 {
			matter = append(matter, t)
		}
	}
	return matter, nil
}

// complete finds out whether a person's message mentions somebody and, if not, to whom it replies.
func (t *trigger) complete(ctx context.Context, n *News, roster known) error {
	if t.AuthorKind != policy.Human {
		return nil
	}
	handles := roster.handles()
	t.Named = slices.ContainsFunc(t.Mentions, func(m string) bool { return slices.Contains(handles, m) })
	if t.Named || t.replyTo == "" {
		return nil
	}
	author, err := n.authorOf(ctx, t.replyTo)
	if author != t.Author { // asking again is a reply to oneself
		t.RepliesTo = author
	}
	return err
}

// where returns the fields that all triggers of a thread share.
func (n *News) where() policy.Trigger {
	return policy.Trigger{Thread: n.Thread, Direct: n.Direct, Driver: n.Driver, Answering: n.Answering, Quiet: n.Settled && n.Answering == ""}
}

// begins returns the bot that the thread begins with: the only one that the first message mentions. That bot then answers in
// the thread without being mentioned. begins returns "" if the first message is not among the triggers, or mentions no bot or
// several.
func begins(ctx context.Context, n *News, bots []bot.Bot, triggers []*trigger) (agent string, first *trigger, err error) {
	if n.Settled || n.Direct != "" || n.Driver != "" || len(triggers) == 0 {
		return "", nil, nil
	}
	id, err := n.first(ctx)
	if err != nil {
		return "", nil, err
	}
	at := slices.IndexFunc(triggers, func(t *trigger) bool { return t.entry.ID == id })
	if at < 0 || triggers[at].AuthorKind != policy.Human || triggers[at].Confined {
		return "", nil, nil
	}
	first = triggers[at]
	for _, b := range bots {
		switch mentioned := slices.Contains(first.Mentions, b.Handle); {
		case mentioned && (agent != "" || b.Codes()):
			return "", nil, nil
		case mentioned:
			agent = b.ID
		}
	}
	return agent, first, nil
}

// triggerOf returns the trigger of an entry, or nil if entries of its kind never ask for anything. A new kind that asks for
// turns needs a case here.
func triggerOf(n *News, e entry.Entry) *trigger {
	said, ok := chatOf(e)
	if !ok || said.Run != nil { // the result of a run concerns only the bot that waits for it
		return nil
	}
	t := &trigger{entry: e, think: said.Think, replyTo: said.ReplyTo, Trigger: n.where()}
	t.Author, t.AuthorKind, t.Mentions, t.Confined = e.Author, policy.Human, entry.Mentions(said.Text), said.Confined
	if said.Turn != nil {
		t.by = said.Turn.TurnID
	}
	return t
}

// chatOf returns the chat of an entry, if an agent said one.
func chatOf(e entry.Entry) (entry.Chat, bool) {
	if e.Author == "" || e.Type != (entry.Chat{}).Type() {
		return entry.Chat{}, false
	}
	return entry.As[entry.Chat](e)
}

// origin returns the number of bots' answers in the chain that led from a person's message to the entry, and the root that
// stands for that message.
func (t trigger) origin(ctx context.Context, tx pgx.Tx) (chain int, root string, err error) {
	itself := turn.RootOf(t.Thread, t.entry.ID)
	switch {
	case t.AuthorKind == policy.Human:
		return 0, itself, nil
	case t.by == "": // a program said it with the bot's key
		return 1, itself, nil
	}
	before, root, err := turn.ChainTx(ctx, tx, t.by)
	if errors.Is(err, pgx.ErrNoRows) {
		return 1, itself, nil
	}
	return before + 1, root, err
}

// toldDriver returns the position of the last chat in which a person addresses the coding agent that drives the thread, or 0
// if no chat does. A chat that mentions other bots but not the driver is meant for them.
func toldDriver(n *News, bots []bot.Bot, chats []entry.Entry) (seq int64) {
	if n.Driver == "" {
		return 0
	}
	handles, driver := map[string]bool{}, ""
	for _, b := range bots {
		handles[b.Handle] = true
		if b.ID == n.Driver {
			driver = b.Handle
		}
	}
	for _, e := range chats {
		said, ok := chatOf(e)
		if !ok || said.Run != nil || said.Confined || slices.ContainsFunc(bots, func(b bot.Bot) bool { return b.ID == e.Author }) {
			continue
		}
		mentions := entry.Mentions(said.Text)
		if slices.Contains(mentions, driver) || !slices.ContainsFunc(mentions, func(m string) bool { return handles[m] }) {
			seq = e.Seq
		}
	}
	return seq
}
