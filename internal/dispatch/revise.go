package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
	"github.com/arbe-dev/arbe/internal/wait"
)

// Revision is a change of a message by its author.
type Revision struct {
	// ID makes a retry harmless. It becomes the id of the entry that records the change. If it is empty, an id is generated.
	ID string
	// Message is the id of the message. Defaults to the author's last one.
	Message string
	// Text is the new text. Delete deletes the message instead.
	Text   string
	Delete bool
}

// draft returns the entry that records the revision of a message.
func (r Revision) draft(author, message string, seq int64) entry.Draft {
	if r.Delete {
		return entry.NewDraft(r.ID, author, entry.ChatDeleted{EntryID: message, Seq: seq})
	}
	edited := entry.ChatEdited{EntryID: message, Seq: seq, Text: r.Text}
	return entry.Draft{ID: r.ID, Author: author, Type: edited.Type(), Payload: unescapedJSON(edited)}
}

const (
	// decidedWithin limits how long a revision waits until it is decided which bots the message asks. decidedPause is the
	// pause between two attempts.
	decidedWithin, decidedPause = 3 * time.Second, 20 * time.Millisecond
	// stillMentioned limits the messages that are read to find other mentions of a person.
	stillMentioned = 1000
)

// errUndecided reports that the message awaits the decision about which bots it asks.
var errUndecided = errors.New("the message is not decided yet")

// Revise edits or deletes the speaker's last message in a thread. It returns the message as it was said, and its new state.
//
// An edit asks no other bot: Revise first waits until it is decided which bots the message asks. A bot that is about to
// answer reads the new text. A bot that is already answering receives the edit like any other message that arrives meanwhile.
// A message cannot be deleted while a bot answers it. People whom only the new text mentions are notified, and the notices of
// people whom no text mentions any more are removed. Deleting a message deletes the summaries that may include it.
//
// Errors: a [fault.NotFound] if there is no such message; a [fault.Forbidden] if somebody else said it; a
// [fault.Precondition] if it is not the last one, was deleted, belongs to a coding agent's thread or to a closed one, or is
// being answered; a [fault.Exhausted] after too many edits; and those of [entry.Check] and [entry.Repeated].
func (d *Dispatcher) Revise(ctx context.Context, by Speaker, threadID string, r Revision) (message entry.Entry, became entrystate.State, err error) {
	if err := entry.CheckID(r.ID, entry.Anyone); err != nil {
		return message, became, err
	}
	if err := entry.Check(r.draft(by.Agent, "e", 1), entry.Server); err != nil {
		return message, became, err
	}
	n, _, err := d.placeOf(ctx, by.Scope, threadID)
	if err != nil {
		return message, became, err
	}
	try := &revising{Dispatcher: d, Revision: r, by: by, news: n}
	if d.config.Mentions != nil && d.chooser != nil {
		roster, err := d.chooser.roster(ctx, n.House, n.Roster)
		if err != nil {
			return message, became, err
		}
		try.roster = &roster
	}
	for until := time.Now().Add(decidedWithin); ; {
		err = d.db.In(ctx, by.Scope, func(tx pgx.Tx) (err error) {
			message, became, err = try.run(ctx, tx)
			return err
		})
		deadlocked := db.State(err) == pgerrcode.DeadlockDetected // with a turn that ends; the next attempt follows it
		if !errors.Is(err, errUndecided) && !deadlocked {
			return message, became, err
		}
		if time.Now().After(until) || !wait.For(ctx, decidedPause) {
			if deadlocked {
				return message, became, fault.New(fault.Unavailable, "a bot is ending its work on this message", "try again").Because(err)
			}
			return message, became, fault.New(fault.Unavailable, "this was said a moment ago, and which bots it asks is not decided yet", "try again").Because(err)
		}
	}
}

// revising revises a message, in one transaction.
type revising struct {
	*Dispatcher
	Revision
	by   Speaker
	news *News
	// roster has everybody whom a message may mention; nil if mentions notify nobody.
	roster *known
}

func (r *revising) run(ctx context.Context, tx pgx.Tx) (message entry.Entry, became entrystate.State, err error) {
	th, err := r.threads.LockTx(ctx, tx, r.news.Thread)
	if err != nil {
		return message, became, err
	}
	if message, became, err = r.repeatedTx(ctx, tx, th); message.ID != "" || err != nil {
		return message, became, err
	}
	if message, err = r.messageTx(ctx, tx, th); err != nil {
		return message, became, err
	}
	if became, _, err = entrystate.FindTx(ctx, tx, th.House, th.ID, message.ID); err != nil {
		return message, became, err
	}
	chat, err := r.checkTx(ctx, tx, th, message, became)
	if err != nil {
		return message, became, err
	}
	if r.Delete == became.Deleted && (r.Delete || chat.Text == r.Text) {
		return message, became, nil
	}
	answering, err := r.answeringTx(ctx, tx, th, message, became)
	if err != nil {
		return message, became, err
	}
	draft := r.draft(r.by.Agent, message.ID, message.Seq)
	made, err := r.log.AppendTx(ctx, tx, th.Stream(), draft)
	if err == nil {
		err = entry.Repeated(draft, made[0])
	}
	if err != nil {
		return message, became, err
	}
	text := &r.Text
	if r.Delete {
		text = nil
		err = turn.ForgetTx(ctx, tx, th.House, th.ID, message.Seq)
	}
	if err == nil {
		err = entrystate.ChangeTx(ctx, tx, th.Stream(), th.ID, message, text, made[0].Seq)
	}
	if err == nil {
		err = r.mentionsTx(ctx, tx, message, chat, became, made[0].Seq)
	}
	for _, t := range answering {
		if err == nil {
			err = turn.SteerTx(ctx, tx, r.log, th.Stream(), t, turn.Question{Entry: made[0].ID, Seq: made[0].Seq})
		}
	}
	if err != nil {
		return message, became, err
	}
	became, _, err = entrystate.FindTx(ctx, tx, th.House, th.ID, message.ID)
	return message, became, err
}

// repeatedTx returns the message of a revision that was already made. It returns no message for a new revision.
func (r *revising) repeatedTx(ctx context.Context, tx pgx.Tx, th thread.Thread) (message entry.Entry, became entrystate.State, err error) {
	if r.ID == "" {
		return message, became, nil
	}
	there, found, err := r.threads.FindEntryTx(ctx, tx, th, r.ID)
	if err != nil || !found {
		return message, became, err
	}
	id, seq := r.Message, int64(0)
	if edited, ok := entry.As[entry.ChatEdited](there.Entry); ok {
		id, seq = cmp.Or(id, edited.EntryID), edited.Seq
	} else if deleted, ok := entry.As[entry.ChatDeleted](there.Entry); ok {
		id, seq = cmp.Or(id, deleted.EntryID), deleted.Seq
	}
	if err := entry.Repeated(r.draft(r.by.Agent, id, seq), there.Entry); err != nil {
		return message, became, err
	}
	of, _, err := r.threads.FindEntryTx(ctx, tx, th, id)
	if err != nil {
		return message, became, err
	}
	became, _, err = entrystate.FindTx(ctx, tx, th.House, th.ID, id)
	return of.Entry, became, err
}

// messageTx returns the message to revise, which must be the speaker's last one.
func (r *revising) messageTx(ctx context.Context, tx pgx.Tx, th thread.Thread) (entry.Entry, error) {
	last, ok, err := entrystate.LastTx(ctx, tx, th.Stream(), th.Tail, r.by.Agent)
	switch {
	case err != nil:
		return last, err
	case ok && (r.Message == "" || r.Message == last.ID):
		return last, nil
	case r.Message == "":
		return last, fault.New(fault.NotFound, "you have not said anything in this thread lately", "say something first")
	}
	there, found, err := r.threads.FindEntryTx(ctx, tx, th, r.Message)
	switch {
	case err != nil:
		return last, err
	case !found:
		return last, fault.Newf(fault.NotFound, "use the id of a message that was said in this thread", "no entry %.60q was written in this thread", r.Message)
	case there.Type != entry.Chat{}.Type():
		return last, fault.New(fault.Invalid, "entry_id: it is not a message", "use the id of a message")
	case there.Author != r.by.Agent:
		return last, fault.New(fault.Forbidden, "somebody else said this", "change only what you said yourself")
	}
	return last, fault.New(fault.Precondition, "you have said more in this thread since", "only your last message can be changed; say the correction in a new one")
}

// checkTx refuses messages that may not be revised, and returns the message in its present form.
func (r *revising) checkTx(ctx context.Context, tx pgx.Tx, th thread.Thread, message entry.Entry, became entrystate.State) (c entry.Chat, err error) {
	c, ok := entry.As[entry.Chat](message)
	if became.ID != "" {
		c.Text = became.Text
	}
	switch {
	case th.Status == thread.Closed:
		return c, fault.New(fault.Precondition, "the thread is closed", "reopen it first").WithReason(fault.ThreadClosed)
	case th.Agent != "":
		return c, fault.New(fault.Precondition, "a coding agent reads this thread, and may have read the message", "change a waiting message with: arbe thread queue edit; otherwise say the correction in a new message")
	case !ok || c.Turn != nil || c.Run != nil:
		return c, fault.New(fault.Forbidden, "the answer of a bot cannot be changed", "ask the bot again")
	case became.Deleted && !r.Delete:
		return c, fault.New(fault.Precondition, "this message was deleted", "say it again")
	case len(became.Edits) >= entrystate.MaxEdits && !r.Delete:
		return c, fault.Newf(fault.Exhausted, "say it again", "a message can be edited %d times", entrystate.MaxEdits).WithReason(fault.LimitReached)
	}
	decided, err := queries.Decided(ctx, tx, th.House, th.ID)
	if err == nil && decided < message.Seq {
		err = errUndecided
	}
	return c, err
}

// answeringTx returns the turns that are answering the message. They receive an edit, and prevent a deletion.
func (r *revising) answeringTx(ctx context.Context, tx pgx.Tx, th thread.Thread, message entry.Entry, became entrystate.State) (list []turn.Turn, err error) {
	active, err := turn.ActiveTx(ctx, tx, th.House, th.ID)
	if err != nil {
		return nil, err
	}
	about := func(seq int64) bool { return seq == message.Seq || slices.Contains(became.Edits, seq) }
	for _, t := range active {
		if t.Status != turn.Delayed && slices.ContainsFunc(t.AskedSeqs, about) {
			list = append(list, t)
		}
	}
	if r.Delete && len(list) > 0 {
		return nil, fault.New(fault.Precondition, "a bot is answering this message", "stop the bot first, then delete the message").WithReason(fault.MessageTaken)
	}
	return list, nil
}

// mentionsTx notifies the people whom only the new text mentions, and removes the notices of those whom it no longer
// mentions. at is the position of the entry that records the revision.
func (r *revising) mentionsTx(ctx context.Context, tx pgx.Tx, message entry.Entry, was entry.Chat, became entrystate.State, at int64) error {
	if r.roster == nil {
		return nil
	}
	people := func(c entry.Chat) []string {
		said := entry.Entry{Seq: message.Seq, ID: message.ID, Author: message.Author, Type: c.Type(), Payload: unescapedJSON(c)}
		if found := r.roster.mentionsIn(r.news, []entry.Entry{said}); len(found) > 0 {
			return found[0].people
		}
		return nil
	}
	before, now := people(was), []string(nil)
	if !r.Delete {
		is := was
		is.Text = r.Text
		now = people(is)
	}
	var added []string
	for _, p := range now {
		if !slices.Contains(before, p) {
			added = append(added, p)
		}
	}
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

// present returns entries for a bot: edited messages with their new texts, and deleted ones without a text. It leaves no
// entry out, because bots name entries by their positions.
func (d *Dispatcher) present(ctx context.Context, log stream.Ref, entries []entry.Entry) ([]entry.Entry, error) {
	states, err := entrystate.Of(ctx, d.db, log, entries)
	if err != nil {
		return nil, fmt.Errorf("read the state of messages: %w", err)
	}
	now := make([]entry.Entry, len(entries))
	for i, e := range entries {
		var gone bool
		if now[i], gone = states.Now(e); gone {
			now[i].Payload = unescapedJSON(entry.Chat{Text: "(its author deleted this message)"})
		}
	}
	return now, nil
}
