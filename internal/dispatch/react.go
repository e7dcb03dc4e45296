package dispatch

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// React adds or removes a reaction of the scope's agent to a chat or a command. It returns the entry and its new state.
// Repeating a call changes nothing. A reaction starts no bot.
//
// Errors: a [fault.NotFound] if there is no such entry; a [fault.Invalid] for an entry of another kind or a text that is not
// a single emoji; a [fault.Precondition] if the message was deleted or the thread is closed; and those of
// [entrystate.ReactTx].
func (d *Dispatcher) React(ctx context.Context, scope db.Scope, threadID, id, emoji string, remove bool) (to entry.Entry, now entrystate.State, err error) {
	ref := stream.Ref{House: scope.House, Name: thread.StreamName(threadID)}
	if to, err = d.log.Get(ctx, ref, id); err != nil {
		return to, now, err
	}
	if to.Type != (entry.Chat{}).Type() && to.Type != (entry.Command{}).Type() {
		return to, now, fault.New(fault.Invalid, "entry_id: it is neither a message nor a command", "react to a message or a command")
	}
	reacted := entry.ChatReacted{EntryID: to.ID, Seq: to.Seq, Emoji: emoji, Removed: remove}
	if stored, ok := entry.Emoji(emoji); ok {
		reacted.Emoji = stored
	}
	if err := reacted.Validate(); err != nil {
		return to, now, err
	}
	r := reacting{d, scope, threadID, to, reacted}
	err = d.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		now, err = r.writeTx(ctx, tx)
		return err
	})
	return to, now, err
}

// reacting is a reaction to an entry.
type reacting struct {
	*Dispatcher
	scope   db.Scope
	thread  string
	to      entry.Entry
	reacted entry.ChatReacted
}

// writeTx writes the reaction, and returns the new state of its entry.
func (r reacting) writeTx(ctx context.Context, tx pgx.Tx) (now entrystate.State, err error) {
	ref := stream.Ref{House: r.scope.House, Name: thread.StreamName(r.thread)}
	th, err := r.threads.LockTx(ctx, tx, r.thread)
	if err != nil {
		return now, err
	}
	states, err := entrystate.AtTx(ctx, tx, ref, r.to.Seq)
	switch now = states[r.to.Seq]; {
	case err != nil:
		return now, err
	case now.Deleted && !r.reacted.Removed:
		return now, fault.New(fault.Precondition, "this message was deleted", "react to another one")
	case th.Status == thread.Closed:
		return now, fault.New(fault.Precondition, "the thread is closed", "reopen it first").WithReason(fault.ThreadClosed)
	}
	changed, err := entrystate.ReactTx(ctx, tx, ref, th.ID, r.to.Seq, r.scope.Agent, r.reacted.Emoji, r.reacted.Removed)
	if err != nil || !changed {
		return now, err
	}
	if _, err := r.log.AppendTx(ctx, tx, ref, entry.NewDraft("", r.scope.Agent, r.reacted)); err != nil {
		return now, err
	}
	states, err = entrystate.AtTx(ctx, tx, ref, r.to.Seq)
	return states[r.to.Seq], err
}
