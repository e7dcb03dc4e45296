package run

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

// This file handles the queue of messages that wait for an agent. Any member may change a message until the runner
// takes it. Both are entries, written one at a time under the lock of the thread's row, so each sees those before it.
// If two members change one message at once, the second gets an error. Nobody can change a message after the runner
// took it.

const (
	// shownQueue limits the messages of a queue that are shown, and shownQueued the size of each, in bytes.
	shownQueue, shownQueued = 100, 16 << 10
	// maxChanges limits the changes while messages wait, because each change reads them all.
	maxChanges = 500
)

// Waiting is the queue of a thread's agent.
type Waiting struct {
	// Messages are the first of them, in the order in which the agent will get them. Total counts all of them.
	Messages []Queued
	Total    int
	// Steers means that the agent can take messages while it works. Otherwise each is its next prompt.
	Steers bool
}

// Queued is a message that waits.
type Queued struct {
	entry.Queued
	// Clipped means that only the beginning of its text is shown.
	Clipped bool
}

// Waiting returns the queue of a thread's agent. It is empty if no agent drives the thread.
func (r *Runs) Waiting(ctx context.Context, scope db.Scope, threadID string) (list Waiting, err error) {
	err = r.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := r.config.Threads.GetTx(ctx, tx, threadID)
		if err != nil || th.Agent == "" {
			return err
		}
		if list.Steers, err = r.steersTx(ctx, tx, th); err != nil {
			return err
		}
		q, err := r.config.Threads.QueueTx(ctx, tx, th)
		if err != nil {
			return err
		}
		list.Total = len(q.Waiting())
		for _, w := range q.Waiting()[:min(list.Total, shownQueue)] {
			if w, err = r.config.Threads.QueuedTx(ctx, tx, th, w); err != nil {
				return err
			}
			shown := Queued{Queued: w, Clipped: len(w.Chat.Text) > shownQueued}
			shown.Chat.Text = entry.Clip(w.Chat.Text, shownQueued)
			list.Messages = append(list.Messages, shown)
		}
		return nil
	})
	return list, err
}

// QueueChange is a change of one message that waits.
type QueueChange struct {
	// ID makes a retry harmless. It becomes the id of an entry. If it is empty, one is generated.
	ID string
	// Message is the message. Version is the version that the caller has read; 0 for any.
	Message string
	Version int64
	// What is an [entry.QueueEdited], [entry.QueueMoved], [entry.QueueTimed] or [entry.QueueCancelled] for the message.
	What entry.Payload
}

// ChangeQueue changes a waiting message as the scope's agent. Cancelling the only message for which a run is about to
// begin stops that run.
//
// Errors: a [fault.NotFound] if there is no such message, a [fault.Precondition] if it no longer waits, a
// [fault.Aborted] if somebody else changed it, a [fault.Exhausted] for too many changes, and a [fault.Invalid].
func (r *Runs) ChangeQueue(ctx context.Context, scope db.Scope, threadID string, c QueueChange) error {
	draft := entry.NewDraft(c.ID, scope.Agent, c.What)
	if err := entry.CheckID(c.ID, entry.Anyone); err != nil {
		return err
	}
	if err := entry.Check(draft, entry.Server); err != nil {
		return err
	}
	return r.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := r.lockDrivenTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		if done, err := r.repeatedTx(ctx, tx, th, draft); done || err != nil {
			return err
		}
		q, err := r.changeableTx(ctx, tx, th, c)
		if err != nil {
			return err
		}
		made, err := r.config.Log.AppendTx(ctx, tx, th.Stream(), draft)
		if err != nil {
			return err
		}
		q.Learn(made[0])
		if _, cancels := c.What.(entry.QueueCancelled); cancels && len(q.Waiting()) == 0 && th.Status != thread.Running {
			_, err = r.cancelTx(ctx, tx, th, scope.Agent)
		}
		return err
	})
}

// changeableTx returns the thread's queue, or an error if the change is not possible now.
func (r *Runs) changeableTx(ctx context.Context, tx pgx.Tx, th thread.Thread, c QueueChange) (*entry.Queue, error) {
	q, err := r.config.Threads.QueueTx(ctx, tx, th)
	if err == nil {
		err = r.mayChangeTx(ctx, tx, th, q, c)
	}
	if p, times := c.What.(entry.QueueTimed); err == nil && times && !p.Queue {
		err = r.maySteerTx(ctx, tx, th)
	}
	return q, err
}

// repeatedTx reports whether an entry was already written.
func (r *Runs) repeatedTx(ctx context.Context, tx pgx.Tx, th thread.Thread, d entry.Draft) (bool, error) {
	if d.ID == "" {
		return false, nil
	}
	said, there, err := r.config.Threads.FindEntryTx(ctx, tx, th, d.ID)
	if err != nil || !there {
		return false, err
	}
	return true, entry.Repeated(d, said.Entry)
}

// mayChangeTx refuses a change of a message that no longer waits or that changed after the caller read it.
func (r *Runs) mayChangeTx(ctx context.Context, tx pgx.Tx, th thread.Thread, q *entry.Queue, c QueueChange) error {
	w, waits := q.Find(c.Message)
	if !waits {
		return r.notWaitingTx(ctx, tx, th, c.Message)
	}
	if c.Version != 0 && c.Version != w.Version {
		return fault.New(fault.Aborted, "somebody else changed this message after you read it", "read the queue again, and repeat your change if it is still right")
	}
	if p, moves := c.What.(entry.QueueMoved); moves && p.Before != "" {
		if _, waits := q.Find(p.Before); !waits {
			return r.notWaitingTx(ctx, tx, th, p.Before)
		}
	}
	if _, cancels := c.What.(entry.QueueCancelled); !cancels && q.Changes() >= maxChanges {
		return fault.Newf(fault.Exhausted, "cancel a message and say it again", "the waiting messages were changed %d times; no more changes are possible until the agent has taken them", maxChanges).WithReason(fault.LimitReached)
	}
	return nil
}

// steersTx reports whether the agent of a thread can take messages while it works.
func (r *Runs) steersTx(ctx context.Context, tx pgx.Tx, th thread.Thread) (bool, error) {
	b, err := r.config.Bots.GetTx(ctx, tx, th.House, th.Agent)
	if fault.CodeOf(err) == fault.NotFound {
		return false, nil // it left
	}
	return r.config.Agents[b.Runtime].Steers, err
}

// maySteerTx refuses to give a message to the current work of an agent that cannot take one then.
func (r *Runs) maySteerTx(ctx context.Context, tx pgx.Tx, th thread.Thread) error {
	steers, err := r.steersTx(ctx, tx, th)
	if err == nil && !steers {
		err = fault.New(fault.Precondition, "this agent takes no messages while it works", "let the message wait: it is the agent's next prompt")
	}
	return err
}

// MayQueue refuses the choice of [entry.Chat.Queue] in a thread that no coding agent drives.
func (r *Runs) MayQueue(ctx context.Context, scope db.Scope, threadID string) error {
	th, err := r.config.Threads.Get(ctx, scope, threadID)
	if err == nil && th.Agent == "" {
		err = fault.New(fault.Precondition, "queue: no coding agent drives this thread, so no message waits in it", "send it without queue").WithReason(fault.NoCodingAgent)
	}
	return err
}

// notWaitingTx says why a message does not wait.
func (r *Runs) notWaitingTx(ctx context.Context, tx pgx.Tx, th thread.Thread, id string) error {
	said, there, err := r.config.Threads.FindEntryTx(ctx, tx, th, id)
	switch {
	case err != nil:
		return err
	case !there || said.Type != (entry.Chat{}).Type() || said.Author == th.Agent:
		return fault.Newf(fault.NotFound, "list the waiting messages with: arbe thread queue list", "no message %.60q is waiting in this thread", id)
	case said.Cancelled:
		return fault.New(fault.Precondition, "this message was cancelled", "say it again if the agent should get it").WithReason(fault.MessageTaken)
	}
	return fault.New(fault.Precondition, "the agent already has this message", "say what it should do instead, or stop the run").WithReason(fault.MessageTaken)
}

// take records that a runner takes messages for its agent, and writes their files to the sandbox. It returns a
// [fault.Precondition] if one of them does not wait, or changed after the runner read it.
func (r *Runs) take(ctx context.Context, by Poster, d entry.Draft, taken entry.QueueTaken) error {
	if err := r.config.Boxes.PlaceFiles(ctx, db.Scope{House: by.House, Agent: by.Agent}, by.Thread); err != nil {
		r.config.Logger.WarnContext(ctx, "the files of messages are not in the sandbox of their agent", "thread", by.Thread, "error", fault.From(err).Detail())
	}
	return r.inThread(ctx, by.House, by.Thread, func(tx pgx.Tx, th thread.Thread) error {
		if th.Run.Epoch != by.Epoch || th.Status != thread.Running {
			return fault.New(fault.Forbidden, "this run is over", "stop the agent").WithReason(fault.RunEnded)
		}
		if done, err := r.repeatedTx(ctx, tx, th, d); done || err != nil {
			return err
		}
		q, err := r.config.Threads.LongQueueTx(ctx, tx, th)
		if err != nil {
			return err
		}
		for _, id := range taken.EntryIDs {
			if w, waits := q.Find(id); !waits || w.Version > taken.Read {
				return fault.Newf(fault.Precondition, "read the log, and take what waits then", "entry_ids: %.60q does not wait, or was changed", id)
			}
		}
		made, err := r.config.Log.AppendTx(ctx, tx, th.Stream(), d)
		if err != nil {
			return err
		}
		q.Learn(made[0])
		return r.config.Threads.TakeTx(ctx, tx, th, q.Through())
	})
}
