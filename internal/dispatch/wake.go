package dispatch

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

// A bot that delegates does not wait: its turn ends. When the last task that it delegated from a thread has ended, it gets
// another turn there and reads the results.

// wakeArgs are the arguments of the job that begins that turn. It is a job because a turn takes locks, and the end of a run
// must not wait for them.
type wakeArgs struct {
	House  string `json:"house"`
	Thread string `json:"thread"`
	Bot    string `json:"bot"`
	Entry  string `json:"entry"`
	Root   string `json:"root"`
}

// Kind is the job's kind.
func (wakeArgs) Kind() string { return "wake_bot" }

// wakeTx queues the turn of a waiting bot, in the transaction that ends the last task it waited for.
func (d *Dispatcher) wakeTx(ctx context.Context, tx pgx.Tx, w run.Wake) error {
	_, err := d.Jobs.InsertTx(ctx, tx, wakeArgs(w), jobs.Options{})
	return err
}

// wake begins the turn, or explains in the thread why it does not. The job ends in the same transaction, so that there is
// exactly one turn.
func (d *Dispatcher) wake(ctx context.Context, job *jobs.Job[wakeArgs]) error {
	a := job.Args
	return db.Persist(ctx, func() error {
		result, err := d.log.Get(ctx, stream.Ref{House: a.House, Name: thread.StreamName(a.Thread)}, a.Entry)
		if fault.CodeOf(err) == fault.NotFound {
			return nil // the thread was closed or deleted
		} else if err != nil {
			return err
		}
		err = d.db.In(ctx, db.Scope{House: a.House}, func(tx pgx.Tx) error { return d.askWaitingTx(ctx, tx, job, result.Seq) })
		if fault.CodeOf(err) == fault.NotFound {
			return nil // the thread, or the bot, was deleted
		}
		return err
	})
}

// askWaitingTx ends the job, and asks the bot that waited for a task to read its result at a position.
func (d *Dispatcher) askWaitingTx(ctx context.Context, tx pgx.Tx, job *jobs.Job[wakeArgs], seq int64) error {
	a := job.Args
	th, err := d.threads.GetTx(ctx, tx, a.Thread)
	if err != nil {
		return err
	}
	if err := job.EndTx(ctx, tx); err != nil {
		return err
	}
	if a.Root != "" {
		root, err := turn.RootTx(ctx, tx, a.House, a.Root, d.config.Bots.Roots)
		if err != nil {
			return err
		}
		if why := root.Begin(); why != "" {
			_, err := d.log.AppendTx(ctx, tx, th.Stream(), entry.NewDraft("", "", entry.Skipped{AgentID: a.Bot, Reason: string(entry.ReasonBreadth), Explanation: why}))
			return err
		}
	}
	_, err = d.requestTurnTx(ctx, tx, th.Stream(), turn.Request{
		House: a.House, Thread: a.Thread, Bot: a.Bot, Entry: a.Entry, Seq: seq, Reason: string(entry.ReasonChild), Chain: 1, Root: a.Root,
	})
	return err
}
