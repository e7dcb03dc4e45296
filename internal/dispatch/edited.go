package dispatch

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/policy"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// stillMentioned limits the messages that are read to find other mentions of a person.
const stillMentioned = 1000

// asksTx returns the turns of the bots that an edit asks: those that only the new text mentions, and that were never asked
// about the message. Call it before tx locks a log; see [admissionTx].
func (r *revising) asksTx(ctx context.Context, tx pgx.Tx, message entry.Entry, was entry.Chat, became entrystate.State) (asks Outcome, err error) {
	if r.Delete || r.roster == nil {
		return asks, nil
	}
	before, now := entry.Mentions(was.Text), entry.Mentions(r.Text)
	var mentioned []bot.Bot
	for _, b := range r.roster.Bots {
		if slices.Contains(now, b.Handle) && !slices.Contains(before, b.Handle) {
			mentioned = append(mentioned, b)
		}
	}
	t := r.triggerOf(entry.Reworded(message, r.Text))
	if len(mentioned) == 0 || t == nil {
		return asks, nil
	}
	asked, err := turn.AskedTx(ctx, tx, r.news.House, r.news.Thread, append([]int64{message.Seq}, became.Edits...))
	if err != nil {
		return asks, err
	}
	mentioned = slices.DeleteFunc(mentioned, func(b bot.Bot) bool { return slices.Contains(asked, b.ID) })
	a := &asking{news: r.news, triggers: []*trigger{t}}
	if err := a.begin(ctx, tx, r.chooser, mentioned); err != nil {
		return asks, err
	}
	for _, d := range policy.Select(t.Trigger, mentioned, a.states) {
		if err := a.decide(ctx, tx, t, d); err != nil {
			return asks, err
		}
	}
	return a.outcome, nil
}

// askTx requests the turns that an edit asks for. A bot that is working on something else in the thread receives the edit,
// because it may have read the message with its earlier text.
func (r *revising) askTx(ctx context.Context, tx pgx.Tx, th thread.Thread, asks Outcome, edit entry.Entry) error {
	for _, t := range asks.Turns {
		if t.Reason == string(entry.ReasonSteered) {
			t.Entry, t.Seq = edit.ID, edit.Seq
		}
		if _, err := r.requestTurnTx(ctx, tx, th.Stream(), t); err != nil {
			return err
		}
	}
	if len(asks.Notes) == 0 {
		return nil
	}
	_, err := r.log.AppendTx(ctx, tx, th.Stream(), asks.Notes...)
	return err
}

// triggerOf returns the trigger of a message, or nil if it asks nobody. It leaves out to whom the message replies.
func (r *revising) triggerOf(message entry.Entry) *trigger {
	t := triggerOf(r.news, message)
	if t == nil {
		return nil
	}
	if slices.ContainsFunc(r.roster.Bots, func(b bot.Bot) bool { return b.ID == message.Author }) {
		t.AuthorKind = policy.Bot
	}
	handles := r.roster.handles()
	t.Named = slices.ContainsFunc(t.Mentions, func(m string) bool { return slices.Contains(handles, m) })
	t.Confined = t.Confined || r.by.Confined
	return t
}

// mentionsTx notifies the people whom only the new text mentions, and removes the notices of those whom it no longer
// mentions. at is the position of the entry that records the revision.
func (r *revising) mentionsTx(ctx context.Context, tx pgx.Tx, message entry.Entry, was entry.Chat, became entrystate.State, at int64) error {
	if r.roster == nil || r.config.Mentions == nil {
		return nil
	}
	before, now := r.peopleIn(message, was), []string(nil)
	if !r.Delete {
		is := was
		is.Text = r.Text
		now = r.peopleIn(message, is)
	}
	added := slices.DeleteFunc(slices.Clone(now), func(p string) bool { return slices.Contains(before, p) })
	if len(added) > 0 {
		if err := r.config.Mentions.MentionTx(ctx, tx, r.news.Thread, added, at); err != nil {
			return err
		}
	}
	places := append([]int64{message.Seq}, became.Edits...)
	for _, p := range before {
		if slices.Contains(now, p) {
			continue
		}
		err := r.config.Mentions.UnmentionTx(ctx, tx, r.by.House, r.news.Thread, p, places, func(first, last int64) ([]int64, error) {
			return r.mentionedTx(ctx, tx, p, first, last, message.Seq)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// peopleIn returns the people whom a message would mention if it were c.
func (r *revising) peopleIn(message entry.Entry, c entry.Chat) []string {
	said := entry.Entry{Seq: message.Seq, ID: message.ID, Author: message.Author, Type: c.Type(), Payload: unescapedJSON(c)}
	if found := r.roster.mentionsIn(r.news, []entry.Entry{said}); len(found) > 0 {
		return found[0].people
	}
	return nil
}

// mentionedTx returns the positions of the messages from first to last, except one, that mention a person.
func (r *revising) mentionedTx(ctx context.Context, tx pgx.Tx, person string, first, last, but int64) (seqs []int64, err error) {
	rows, err := queries.Chats(ctx, tx, query.ChatsParams{Stream: r.news.move.stream, Behind: first - 1, Upto: last, Most: stillMentioned})
	if err != nil {
		return nil, err
	}
	said := make([]int64, len(rows))
	for i, row := range rows {
		said[i] = row.Seq
	}
	states, err := entrystate.AtTx(ctx, tx, r.news.log, said...)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		e, gone := states.Now(entry.Entry{Seq: row.Seq, ID: row.ID, Type: entry.Chat{}.Type(), Author: row.Author, Payload: row.Payload})
		if gone || e.Seq == but {
			continue
		}
		for _, m := range r.roster.mentionsIn(r.news, []entry.Entry{e}) {
			if slices.Contains(m.people, person) {
				seqs = append(seqs, e.Seq)
			}
		}
	}
	return seqs, nil
}
