package dispatch

import (
	"context"
	"errors"
	"log/slog"
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
	var th thread.Thread
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		found, waiting = nil, nil
		if th, err = d.threads.GetTx(ctx, tx, threadID); err != nil {
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
		for _, t := range active {
			if id != "" && t.ID != id {
				continue
			}
			if t, ok, err := turn.StopTx(ctx, tx, t.ID, scope.Agent); err != nil {
				return err
			} else if ok {
				found = append(found, t)
			}
			job, err := d.turnJobTx(ctx, tx, t.ID)
			switch {
			case err != nil:
				return err
			case job != nil && job.State == rivertype.JobStateRunning:
				if _, err := d.queue.JobCancelTx(ctx, tx, job.ID); err != nil {
					return err
				}
			default:
				waiting = append(waiting, t)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Nobody works on these, so that they would end only when their turn comes.
	for _, t := range waiting {
		err = errors.Join(err, d.bots.Run(ctx, scope.House, t.ID, th.Stream()))
	}
	return found, err
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
