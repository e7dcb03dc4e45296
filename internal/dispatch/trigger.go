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
	// by is the id of the turn that wrote the entry; empty if none did.
	by string
	// think is how hard the bots should think that are asked.
	think entry.Effort
	// root is the entry of a person from which it follows; see [turn.RootOf].
	root string
}

// triggersOf returns the triggers among entries for which a bot has a policy.
func triggersOf(n *News, bots []bot.Bot, entries []entry.Entry) (matter []*trigger) {
	for _, e := range entries {
		t := triggerOf(n, e)
		if t == nil {
			continue
		}
		if slices.ContainsFunc(bots, func(b bot.Bot) bool { return b.ID == e.Author }) {
			t.AuthorKind = policy.Bot
		}
		if len(policy.Select(t.Trigger, bots, nil)) > 0 {
			matter = append(matter, t)
		}
	}
	return matter
}

// triggerOf returns what an entry may ask for; nil if entries of its kind ask for nothing. A kind that asks for turns has a
// case here.
func triggerOf(n *News, e entry.Entry) *trigger {
	said, ok := chatOf(e)
	if !ok || said.Run != nil { // the result of a run says nothing to anyone but the bot that waits for it
		return nil
	}
	t := &trigger{entry: e, think: said.Think, Trigger: policy.Trigger{
		Thread: n.Thread, Author: e.Author, AuthorKind: policy.Human, Mentions: entry.Mentions(said.Text), Direct: n.Direct, Driver: n.Driver, Confined: said.Confined,
	}}
	if said.Turn != nil {
		t.by = said.Turn.TurnID
	}
	return t
}

// chatOf returns an entry's chat, if somebody said one.
func chatOf(e entry.Entry) (entry.Chat, bool) {
	if e.Author == "" || e.Type != (entry.Chat{}).Type() {
		return entry.Chat{}, false
	}
	return entry.As[entry.Chat](e)
}

// origin returns how many answers of bots led to the entry, one by one, since a person spoke, and what that person said.
func (t trigger) origin(ctx context.Context, tx pgx.Tx) (chain int, root string, err error) {
	itself := turn.RootOf(t.Thread, t.entry.ID)
	switch {
	case t.AuthorKind == policy.Human:
		return 0, itself, nil
	case t.by == "": // said by a program with the bot's key
		return 1, itself, nil
	}
	before, root, err := turn.ChainTx(ctx, tx, t.by)
	if errors.Is(err, pgx.ErrNoRows) {
		return 1, itself, nil
	}
	return before + 1, root, err
}

// toldDriver returns the position of the last of some chats that a person says to the coding agent that drives the thread; 0 if
// nobody does. A chat that mentions other bots, and not that one, is for them.
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
