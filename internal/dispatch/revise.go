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
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
	"github.com/arbe-dev/arbe/internal/wait"
)

const (
	// decidedWithin limits how long a revision waits until it is decided which bots the message asks. decidedPause is the
	// pause between two attempts.
	decidedWithin, decidedPause = 3 * time.Second, 20 * time.Millisecond
)

// errUndecided reports that the message awaits the decision about which bots it asks.
var errUndecided = errors.New("the server has not decided yet about the message")

// Revise edits or deletes the speaker's last message in a thread. It returns the message as it was said, and its new state.
//
// Revise first waits for the decision about which bots the message asks. A bot whose turn has not begun reads the new text.
// A bot that is answering receives the edit like any other message that arrives meanwhile. A bot that has answered is not
// asked again: the edit only changes the text of the message. An edit asks a bot that it mentions, that the text did not
// mention before, and that was never asked about the message.
//
// A deleted message asks nobody. Revise removes it from delayed turns; a turn that nothing else asks for does not begin, and
// the thread says why. A message cannot be deleted while a turn that has begun answers it. Deleting a message deletes the
// summaries that may include it, and the name that the thread took from it.
//
// Revise notifies people whom only the new text mentions, and removes the notices of people whom no text mentions any more.
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
	if d.chooser != nil {
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
		if !errors.Is(err, errUndecided) && !isDeadlock(err) {
			return message, became, err
		}
		if time.Now().After(until) || !wait.For(ctx, decidedPause) {
			return message, became, notRevised(err)
		}
	}
}

// isDeadlock reports a deadlock with a turn that ends. The next attempt follows it.
func isDeadlock(err error) bool { return db.State(err) == pgerrcode.DeadlockDetected }

// notRevised explains why a revision was given up after several attempts.
func notRevised(err error) error {
	if isDeadlock(err) {
		return fault.New(fault.Unavailable, "a bot is ending its work on this message", "try again").Because(err)
	}
	return fault.New(fault.Unavailable, "this is a moment old, and the server has not decided yet which bots it asks", "try again").Because(err)
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
	p := revisionPlan{thread: th, message: message, chat: chat, became: became}
	if p.answering, p.delayed, err = r.askedTx(ctx, tx, th, message, became); err != nil {
		return message, became, err
	}
	if p.asks, err = r.asksTx(ctx, tx, message, chat, became); err != nil {
		return message, became, err
	}
	became, err = r.writeTx(ctx, tx, p)
	return message, became, err
}

// revisionPlan is what a revision changes.
type revisionPlan struct {
	thread             thread.Thread
	message            entry.Entry
	chat               entry.Chat       // as it was
	became             entrystate.State // before the revision
	answering, delayed []turn.Turn      // the turns that the message asked for
	asks               Outcome          // of the new text
}

// writeTx writes a revision, and returns the new state of the message.
func (r *revising) writeTx(ctx context.Context, tx pgx.Tx, p revisionPlan) (became entrystate.State, err error) {
	made, err := r.appendTx(ctx, tx, p.thread, p.message)
	if err != nil {
		return p.became, err
	}
	text := &r.Text
	if r.Delete {
		text = nil
		err = r.takeBackTx(ctx, tx, p.thread, p.message, p.became, p.delayed)
	}
	if err == nil {
		err = entrystate.ChangeTx(ctx, tx, p.thread.Stream(), p.thread.ID, p.message, text, made.Seq)
	}
	if err == nil {
		err = r.mentionsTx(ctx, tx, p.message, p.chat, p.became, made.Seq)
	}
	for _, t := range p.answering {
		if err == nil {
			err = turn.SteerTx(ctx, tx, r.log, p.thread.Stream(), t, turn.Question{Entry: made.ID, Seq: made.Seq})
		}
	}
	if err == nil {
		err = r.askTx(ctx, tx, p.thread, p.asks, made)
	}
	if err != nil {
		return p.became, err
	}
	became, _, err = entrystate.FindTx(ctx, tx, p.thread.House, p.thread.ID, p.message.ID)
	return became, err
}

// appendTx appends the entry of the revision.
func (r *revising) appendTx(ctx context.Context, tx pgx.Tx, th thread.Thread, message entry.Entry) (entry.Entry, error) {
	draft := r.draft(r.by.Agent, message.ID, message.Seq)
	made, err := r.log.AppendTx(ctx, tx, th.Stream(), draft)
	if err != nil {
		return entry.Entry{}, err
	}
	return made[0], entry.Repeated(draft, made[0])
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
		return last, fault.New(fault.NotFound, "you have said nothing in this thread recently", "say something first")
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
		return last, fault.New(fault.Forbidden, "somebody else said this", "change only your own messages")
	}
	return last, fault.New(fault.Precondition, "you have written later messages in this thread", "only your last message can be changed; say the correction in a new one")
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

// askedTx returns the turns that the message asks for. Those that are answering it receive an edit, and prevent a deletion. A
// deletion also needs the delayed ones. It locks them, so that none of them begins meanwhile.
func (r *revising) askedTx(ctx context.Context, tx pgx.Tx, th thread.Thread, message entry.Entry, became entrystate.State) (answering, delayed []turn.Turn, err error) {
	active, err := turn.ActiveTx(ctx, tx, th.House, th.ID)
	if err != nil {
		return nil, nil, err
	}
	about := func(seq int64) bool { return seq == message.Seq || slices.Contains(became.Edits, seq) }
	for _, t := range active {
		if !slices.ContainsFunc(t.AskedSeqs, about) {
			continue
		}
		if r.Delete && t.Status == turn.Delayed {
			if t, err = turn.LockTx(ctx, tx, t.ID); err != nil {
				return nil, nil, err
			}
		}
		switch {
		case !t.Status.Active():
		case t.Status == turn.Delayed:
			delayed = append(delayed, t)
		default:
			answering = append(answering, t)
		}
	}
	if r.Delete && len(answering) > 0 {
		return nil, nil, fault.New(fault.Precondition, "a bot is answering this message", "stop the bot first, then delete the message").WithReason(fault.MessageTaken)
	}
	return answering, delayed, nil
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
