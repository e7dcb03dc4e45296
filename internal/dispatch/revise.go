package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/policy"
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
	// stillAsking limits the messages that are read to find another reason for a delayed turn.
	stillAsking = 100
)

// errUndecided reports that the message awaits the decision about which bots it asks.
var errUndecided = errors.New("the message is not decided yet")

// Revise edits or deletes the speaker's last message in a thread. It returns the message as it was said, and its new state.
//
// Revise first waits until it is decided which bots the message asks. A bot whose turn has not begun reads the new text. A bot
// that is answering receives the edit like any other message that arrives meanwhile. A bot that has answered is not asked
// again: the edit only changes the text of the message. An edit asks a bot that it mentions, that the text did not mention
// before, and that was never asked about the message.
//
// A deleted message asks nobody. It is taken back from delayed turns, and one that nothing else asks for does not begin; its
// thread says why. A message cannot be deleted while a turn that has begun answers it. Deleting a message deletes the
// summaries that may include it, and the name that the thread took from it.
//
// People whom only the new text mentions are notified, and the notices of people whom no text mentions any more are removed.
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
	// roster has everybody whom a message may mention; nil if a Selector decides which bots messages ask.
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
	answering, delayed, err := r.askedTx(ctx, tx, th, message, became)
	if err != nil {
		return message, became, err
	}
	asks, err := r.asksTx(ctx, tx, message, chat, became)
	if err != nil {
		return message, became, err
	}
	made, err := r.appendTx(ctx, tx, th, message)
	if err != nil {
		return message, became, err
	}
	text := &r.Text
	if r.Delete {
		text = nil
		err = r.takeBackTx(ctx, tx, th, message, became, delayed)
	}
	if err == nil {
		err = entrystate.ChangeTx(ctx, tx, th.Stream(), th.ID, message, text, made.Seq)
	}
	if err == nil {
		err = r.mentionsTx(ctx, tx, message, chat, became, made.Seq)
	}
	for _, t := range answering {
		if err == nil {
			err = turn.SteerTx(ctx, tx, r.log, th.Stream(), t, turn.Question{Entry: made.ID, Seq: made.Seq})
		}
	}
	if err == nil {
		err = r.askTx(ctx, tx, th, asks, made)
	}
	if err != nil {
		return message, became, err
	}
	became, _, err = entrystate.FindTx(ctx, tx, th.House, th.ID, message.ID)
	return message, became, err
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

// takeBackTx removes a message that is deleted from what bots know and are to answer, and from the thread's title.
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

// withdrawTx takes the deleted message back from a delayed turn. If the message was what made the turn certain to begin, the
// messages that remain decide whether it still is.
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

// triggerOf returns the trigger of a message, or nil if it asks nobody. It does not find out to whom the message replies.
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

// mentionsTx notifies the people whom only the new text mentions, and removes the notices of those whom it no longer
// mentions. at is the position of the entry that records the revision.
func (r *revising) mentionsTx(ctx context.Context, tx pgx.Tx, message entry.Entry, was entry.Chat, became entrystate.State, at int64) error {
	if r.roster == nil || r.config.Mentions == nil {
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
