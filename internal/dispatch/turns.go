package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

const (
	// turns is the queue of the turns of bots.
	turns = "turns"
	// turnWorkers is how many turns a server runs at once. It can be large, because a turn mostly waits for its model.
	// houseTurns and threadTurns are how many of a house and of a thread run at once, on all servers together.
	turnWorkers, houseTurns, threadTurns = 512, 256, 32
	// turnAgain is the pause before a turn is continued after an error that the database caused.
	turnAgain = 2 * time.Second
)

// turnArgs are the arguments of a job that runs a bot's turn.
type turnArgs struct {
	House  string `json:"house"`
	Thread string `json:"thread"`
	Turn   string `json:"turn"`
}

// Kind is the job's kind.
func (turnArgs) Kind() string { return "turn" }

// InsertOpts: a turn has one job.
func (turnArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: turns, MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

// queueTurn queues a turn when tx commits.
func (d *Dispatcher) queueTurn(ctx context.Context, tx pgx.Tx, t turn.Turn) error {
	_, err := d.queue.InsertTx(ctx, tx, turnArgs{t.House, t.Thread, t.ID}, &river.InsertOpts{ScheduledAt: t.Due})
	if err != nil || !t.Due.IsZero() {
		return err
	}
	return wakeTx(ctx, tx, turns)
}

// requestTurnTx is [turn.RequestTx], and queues the turn.
func (d *Dispatcher) requestTurnTx(ctx context.Context, tx pgx.Tx, to stream.Ref, r turn.Request) (string, error) {
	t, outcome, err := turn.RequestTx(ctx, tx, d.log, to, r)
	switch {
	case err != nil:
	case outcome == turn.Began:
		err = d.queueTurn(ctx, tx, t)
	case outcome == turn.Hurried, outcome == turn.Postponed:
		_, err = tx.Exec(ctx, `
			update `+db.JobSchema+`.river_job set
			  state = case when $3::timestamptz is null then 'available' else 'scheduled' end::`+db.JobSchema+`.river_job_state,
			  scheduled_at = coalesce($3, now())
			where kind = $1 and args->>'turn' = $2 and state in ('scheduled', 'available')`, turnArgs{}.Kind(), t.ID, db.Null(t.Due))
		if err == nil && outcome == turn.Hurried {
			err = wakeTx(ctx, tx, turns)
		}
	}
	return t.ID, err
}

type turnWorker struct {
	river.WorkerDefaults[turnArgs]
	*Dispatcher
}

// Timeout disables the queue's time limit, because a turn has its own.
func (w *turnWorker) Timeout(*river.Job[turnArgs]) time.Duration { return -1 }

// Work runs the turn. If the server stops before the turn has ended, the job is left to another server or to the next
// start of this one.
func (w *turnWorker) Work(ctx context.Context, job *river.Job[turnArgs]) error {
	ctx = logging.With(ctx, slog.String("house", job.Args.House), slog.String("thread", job.Args.Thread), slog.String("turn", job.Args.Turn))
	err := w.bots.Run(ctx, job.Args.House, job.Args.Turn, stream.Ref{House: job.Args.House, Name: thread.StreamName(job.Args.Thread)})
	switch {
	case err == nil:
		return nil
	case stopped(ctx):
		return w.handOver(ctx, job.ID, "")
	case cancelled(ctx):
		return nil // it had ended before it could be stopped
	}
	if early, ok := errors.AsType[*turn.NotDueError](err); ok {
		return river.JobSnooze(max(time.Until(early.Due), 0))
	}
	w.logger.WarnContext(ctx, "a bot's turn was interrupted; trying again", "error", fault.From(err).Detail())
	return river.JobSnooze(turnAgain)
}

// StopTurns stops the active turns of a thread: one, or all if id is empty. It returns those that were active. A turn
// that is running ends within a second, keeping what its bot has written. An id that the thread does not have is a
// [fault.NotFound]; a turn that has ended stays as it is.
func (d *Dispatcher) StopTurns(ctx context.Context, scope db.Scope, threadID, id string) (found []turn.Turn, err error) {
	var waiting []turn.Turn
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		if _, err := d.threads.GetTx(ctx, tx, threadID); err != nil {
			return err
		}
		active, err := turn.ActiveTx(ctx, tx, scope.House, threadID)
		if err != nil {
			return err
		}
		if id != "" {
			t, err := turn.GetTx(ctx, tx, id)
			if err == nil && t.Thread != threadID {
				err = fault.New(fault.NotFound, "this thread has no such turn", "see the thread's entries for the turns of its bots")
			}
			if err != nil {
				return err
			}
		}
		if id != "" {
			active = slices.DeleteFunc(active, func(t turn.Turn) bool { return t.ID != id })
		}
		found, waiting, err = d.stopTx(ctx, tx, scope, active)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, d.endWaiting(ctx, waiting)
}

// StopBotTx stops all turns of a bot of the scope's house, in the transaction that removes the bot from it. It must be
// called before that transaction locks a log, as turns lock their row before their log. It returns the turns that were
// active, and a function that the caller calls when the transaction has committed: it ends those on which nobody works.
func (d *Dispatcher) StopBotTx(ctx context.Context, tx pgx.Tx, scope db.Scope, bot string) (found []turn.Turn, end func(context.Context) error, err error) {
	active, err := turn.ActiveOfTx(ctx, tx, scope.House, bot)
	if err != nil {
		return nil, nil, err
	}
	found, waiting, err := d.stopTx(ctx, tx, scope, active)
	return found, func(ctx context.Context) error { return d.endWaiting(ctx, waiting) }, err
}

// AtWork returns how many turns of a bot of the scope's house have begun, or wait only for a server.
func (d *Dispatcher) AtWork(ctx context.Context, scope db.Scope, bot string) (n int, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		active, err := turn.ActiveOfTx(ctx, tx, scope.House, bot)
		n = AtWork(active)
		return err
	})
	return n, err
}

// AtWork returns how many of some active turns have begun, or wait only for a server. A delayed turn may never begin.
func AtWork(active []turn.Turn) (n int) {
	for _, t := range active {
		if t.Status != turn.Delayed {
			n++
		}
	}
	return n
}

// stopTx records that the scope's agent stops some active turns, and cancels the jobs of those that run. It returns
// those that had not ended meanwhile, and those on which nobody works.
func (d *Dispatcher) stopTx(ctx context.Context, tx pgx.Tx, scope db.Scope, active []turn.Turn) (found, waiting []turn.Turn, err error) {
	for _, t := range active {
		if t, ok, err := turn.StopTx(ctx, tx, t.ID, scope.Agent); err != nil {
			return nil, nil, err
		} else if ok {
			found = append(found, t)
		}
		job, err := d.turnJobTx(ctx, tx, t.ID)
		switch {
		case err != nil:
			return nil, nil, err
		case job != nil && job.State == rivertype.JobStateRunning:
			if _, err := d.queue.JobCancelTx(ctx, tx, job.ID); err != nil {
				return nil, nil, err
			}
		default:
			waiting = append(waiting, t)
		}
	}
	return found, waiting, nil
}

// endWaiting ends turns that are to stop and on which nobody works, because they would end only when their turn comes.
func (d *Dispatcher) endWaiting(ctx context.Context, waiting []turn.Turn) (err error) {
	for _, t := range waiting {
		err = errors.Join(err, d.bots.Run(ctx, t.House, t.ID, stream.Ref{House: t.House, Name: thread.StreamName(t.Thread)}))
	}
	return err
}

// UsedToday returns what the turns of the scope's house have used since midnight UTC.
func (d *Dispatcher) UsedToday(ctx context.Context, scope db.Scope) (used turn.Used, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		used, err = turn.UsedTodayTx(ctx, tx, scope.House)
		return err
	})
	return used, err
}

// turnJobTx returns the job of a turn that has not ended; nil if there is none.
func (d *Dispatcher) turnJobTx(ctx context.Context, tx pgx.Tx, id string) (*rivertype.JobRow, error) {
	jobs, err := d.queue.JobListTx(ctx, tx, river.NewJobListParams().Kinds(turnArgs{}.Kind()).
		States(rivertype.JobStateAvailable, rivertype.JobStateScheduled, rivertype.JobStateRunning).
		Where("args->>'turn' = @turn", river.NamedArgs{"turn": id}).First(1))
	if err != nil || len(jobs.Jobs) == 0 {
		return nil, err
	}
	return jobs.Jobs[0], nil
}

// RetryTurn begins a new turn for what an ended one should have answered, and returns its id. While the bot has an
// active turn in the thread, the question is passed to that one.
func (d *Dispatcher) RetryTurn(ctx context.Context, scope db.Scope, threadID, id string) (again string, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.threads.GetTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		t, err := turn.GetTx(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case t.Thread != threadID:
			return fault.New(fault.NotFound, "this thread has no such turn", "see the thread's entries for the turns of its bots")
		case t.Status.Active():
			return fault.New(fault.Precondition, "the turn has not ended", "stop it first")
		case len(t.AskedSeqs) == 0:
			return fault.New(fault.Internal, "the turn has no question", "ask again")
		}
		again, err = d.requestTurnTx(ctx, tx, th.Stream(), turn.Request{
			House: scope.House, Thread: threadID, Bot: t.Bot, Entry: t.Entry, Seq: t.AskedSeqs[0], Reason: "retry", Chain: t.Chain,
		})
		return err
	})
	return again, err
}
