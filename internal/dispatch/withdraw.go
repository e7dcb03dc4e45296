package dispatch

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/policy"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// stillAsking limits the messages that are read to find another reason for a delayed turn.
const stillAsking = 100

// takeBackTx removes a deleted message from the summaries and turns of bots, and from the thread's title.
func (r *revising) takeBackTx(ctx context.Context, tx pgx.Tx, th thread.Thread, message entry.Entry, became entrystate.State, delayed []turn.Turn) error {
	if err := turn.ForgetTx(ctx, tx, th.House, th.ID, message.Seq); err != nil {
		return err
	}
	for _, t := range delayed {
		if err := r.withdrawTx(ctx, tx, th, t, message, became); err != nil {
			return err
		}
	}
	return r.untitleTx(ctx, tx, th, message, became)
}

// withdrawTx takes the deleted message back from a delayed turn. If the turn was certain to begin because of this message,
// the remaining messages decide whether it still is.
func (r *revising) withdrawTx(ctx context.Context, tx pgx.Tx, th thread.Thread, t turn.Turn, message entry.Entry, became entrystate.State) error {
	var rest []turn.Question
	stays := false
	for i, id := range t.Asked {
		if seq := t.AskedSeqs[i]; seq != message.Seq && !slices.Contains(became.Edits, seq) {
			rest = append(rest, turn.Question{Entry: id, Seq: seq})
			stays = stays || id == t.Entry
		}
	}
	if !stays && len(rest) > 0 {
		t.Entry = rest[len(rest)-1].Entry
		if t.Reason != turn.Ambient && r.roster != nil {
			again, err := r.reasonTx(ctx, tx, th, t.Bot, rest)
			if err != nil {
				return err
			}
			t.Entry, t.Reason, t.Policy = cmp.Or(again.Entry, t.Entry), cmp.Or(again.Reason, turn.Ambient), again.Policy
		}
	}
	return turn.WithdrawTx(ctx, tx, r.log, th.Stream(), t, rest, entry.ReasonDeleted)
}

// reasonTx returns the best reason that a bot has to answer some messages, and the last message that gives it. It is the zero
// Request if the policies have changed, so that the bot has none.
func (r *revising) reasonTx(ctx context.Context, tx pgx.Tx, th thread.Thread, agent string, asked []turn.Question) (best turn.Request, err error) {
	at := slices.IndexFunc(r.roster.Bots, func(b bot.Bot) bool { return b.ID == agent })
	if at < 0 {
		return best, nil
	}
	asked = asked[max(len(asked)-stillAsking, 0):]
	seqs := make([]int64, len(asked))
	for i, q := range asked {
		seqs[i] = q.Seq
	}
	states, err := entrystate.AtTx(ctx, tx, th.Stream(), seqs...)
	if err != nil {
		return best, err
	}
	for _, q := range slices.Backward(asked) {
		there, found, err := r.threads.FindEntryTx(ctx, tx, th, q.Entry)
		if err != nil {
			return best, err
		}
		now, gone := states.Now(there.Entry)
		t := r.triggerOf(now)
		if !found || gone || t == nil {
			continue
		}
		for _, d := range policy.Select(t.Trigger, r.roster.Bots[at:at+1], nil) {
			if d.Action != policy.Skip && (best.Reason == "" || best.Reason == turn.Ambient && d.Reason != entry.ReasonAmbient) {
				best = turn.Request{Entry: q.Entry, Reason: string(d.Reason), Policy: d.Policy}
			}
		}
	}
	return best, nil
}

// untitleTx makes the thread forget a name that it took from the deleted message.
func (r *revising) untitleTx(ctx context.Context, tx pgx.Tx, th thread.Thread, message entry.Entry, became entrystate.State) error {
	said, _ := entry.As[entry.Chat](message)
	var files []string // a direct message is named after the files of a message without a text
	for _, a := range said.Attachments {
		files = append(files, "[file: "+cmp.Or(a.Name, a.ArtifactID)+"]")
	}
	wordings := []string{said.Text, strings.Join(files, " ")}
	texts, err := queries.EditedTexts(ctx, tx, th.House, th.StreamID, became.Edits)
	if err != nil {
		return err
	}
	return r.threads.UntitleTx(ctx, tx, th, message.Seq, append(wordings, texts...))
}
