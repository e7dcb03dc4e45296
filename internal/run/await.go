package run

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/thread"
)

// A bot that delegates waits for each task until its run ends (end.go) or its time has passed. The transaction that
// ends the last wait wakes the bot, so it is woken once. A run that ends later is reported in the parent thread, but
// wakes no bot. The rows record each wait and its deadline, and the search for lost runs reads them. So a wait ends
// even if its server is gone.

// endWaits ends the waits whose time has passed. It continues after an error, because that may affect only one wait.
func (r *Runs) endWaits(ctx context.Context) (failed error) {
	for {
		list, err := r.config.Threads.Overdue(ctx, sweepPage)
		if err != nil {
			return errors.Join(failed, err)
		}
		ended := 0
		for _, th := range list {
			switch err := r.endWait(ctx, th.House, th.ID); {
			case err == nil, fault.CodeOf(err) == fault.NotFound:
				ended++
			default:
				failed = errors.Join(failed, err)
			}
		}
		if len(list) < sweepPage || ended == 0 || ctx.Err() != nil {
			return failed
		}
	}
}

// endWait ends the wait for a thread. It reports in the parent thread that the run takes too long, and wakes the bot if
// this was its last wait.
func (r *Runs) endWait(ctx context.Context, house, threadID string) error {
	return r.inThread(ctx, house, threadID, func(tx pgx.Tx, th thread.Thread) error {
		if first, err := r.config.Threads.EndWaitTx(ctx, tx, th.ID); err != nil || !first || th.ParentThread == "" {
			return err
		}
		b, err := r.config.Bots.GetTx(ctx, tx, house, th.Agent)
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			return err
		}
		if is, err := r.isBotTx(ctx, tx, th); err != nil || !is {
			return err
		}
		last, err := r.isLastTx(ctx, tx, th)
		if err != nil {
			return err
		}
		told := entry.ChildOverdue{ChildThreadID: th.ID, Runtime: b.Runtime, AgentID: th.AskedBy}
		if th.Status == thread.Running {
			told.Epoch, told.RunningMS, told.Doing = th.Run.Epoch, time.Since(th.Run.StartedAt).Milliseconds(), th.Run.Doing
		}
		if last {
			told.Wakes, told.Root = th.AskedBy, th.Root
		}
		said := entry.NewDraft(uuid.NewString(), "", told)
		if err := r.appendTx(ctx, tx, log(house, th.ParentThread), false, []entry.Draft{said}); err != nil || !last || r.config.Wake == nil {
			return err
		}
		return r.config.Wake(ctx, tx, Wake{House: house, Thread: th.ParentThread, Bot: th.AskedBy, Entry: said.ID, Root: th.Root})
	})
}

// isLastTx reports whether a bot delegated a thread and waits for no other thread under the same parent.
func (r *Runs) isLastTx(ctx context.Context, tx pgx.Tx, th thread.Thread) (bool, error) {
	if is, err := r.isBotTx(ctx, tx, th); err != nil || !is {
		return false, err
	}
	// If two waits end at once, the second one sees that the first has ended.
	if err := r.config.Threads.LockChildrenTx(ctx, tx, th.ParentThread); err != nil {
		return false, err
	}
	others, err := r.config.Threads.AwaitedBesideTx(ctx, tx, th)
	return others == 0, err
}

// isBotTx reports whether a bot of the house delegated a thread. It is false for a person, and for a bot that has
// left.
func (r *Runs) isBotTx(ctx context.Context, tx pgx.Tx, th thread.Thread) (bool, error) {
	if th.AskedBy == "" {
		return false, nil
	}
	_, err := r.config.Bots.GetTx(ctx, tx, th.House, th.AskedBy)
	if fault.CodeOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil, err
}
