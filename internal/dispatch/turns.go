package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
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
	turnWorkers = 512
	// turnAgain is the longest pause before a turn is continued that the database interrupted or that is not due.
	turnAgain = 2 * time.Second
	// turnLook is how often a turn that is not due is looked at again, because a mention makes it due.
	turnLook = 250 * time.Millisecond
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
		err = d.rescheduleTx(ctx, tx, t)
	}
	return t.ID, err
}

// rescheduleTx makes the job of a turn that waits due when the turn is: at once if [turn.Turn].Due is zero.
func (d *Dispatcher) rescheduleTx(ctx context.Context, tx pgx.Tx, t turn.Turn) error {
	_, err := tx.Exec(ctx, `
		update `+db.JobSchema+`.river_job set
		  state = case when $3::timestamptz is null then 'available' else 'scheduled' end::`+db.JobSchema+`.river_job_state,
		  scheduled_at = coalesce($3, now())
		where kind = $1 and args @> jsonb_build_object('turn', $2::text) and state in ('scheduled', 'available')`, turnArgs{}.Kind(), t.ID, db.Null(t.Due))
	if err != nil || !t.Due.IsZero() {
		return err
	}
	return wakeTx(ctx, tx, turns)
}

type turnWorker struct {
	river.WorkerDefaults[turnArgs]
	*Dispatcher
}

// Timeout disables the queue's time limit, because a turn has its own.
func (w *turnWorker) Timeout(*river.Job[turnArgs]) time.Duration { return -1 }

// Work runs the turn. If the server stops before the turn has ended, the job is left to another server or to the next
// start of this one.
//
// Errors of the database are waited out here, and the end of the job is written by this package. The queue gives up
// after some seconds; the job would then count as running on a server that is alive, and nobody would continue it.
func (w *turnWorker) Work(ctx context.Context, job *river.Job[turnArgs]) error {
	ctx = logging.With(ctx, slog.String("house", job.Args.House), slog.String("thread", job.Args.Thread), slog.String("turn", job.Args.Turn))
	ctx, end, alone := w.turning.begin(ctx, job.ID)
	if !alone {
		return river.JobSnooze(0) // does nothing to a job that has ended
	}
	defer end()
	err := w.run(ctx, job)
	for waits, ok := errors.AsType[*turn.WaitError](err); ok; waits, ok = errors.AsType[*turn.WaitError](err) {
		if w.release(ctx, job, waits.Until) {
			return river.JobSnooze(0) // does nothing to a job that does not run
		}
		err = w.run(ctx, job) // someone stopped it just now
	}
	if err != nil && cancelled(ctx) && !overtaken(err) {
		// Someone wants the turn to stop, and that could not be written.
		err = w.run(w.resultCtx, job)
	}
	if errors.Is(err, turn.ErrAsking) {
		return nil // this job has ended, and the turn has another one
	}
	if err == nil {
		err = w.end(ctx, job)
	}
	if away, ok := errors.AsType[*turn.ElsewhereError](err); ok {
		return w.handOver(ctx, job.ID, away.Machine)
	}
	if err != nil {
		return w.handOver(ctx, job.ID, "")
	}
	return nil
}

// overtaken reports whether an error is that someone else works on a turn.
func overtaken(err error) bool {
	return errors.Is(err, errTakenByOther) || errors.Is(err, turn.ErrOvertaken)
}

// release gives the worker back until the turn is due, and reports whether it did so: not if the turn is to stop, which then
// must not wait. A turn that is stopped later has no worker, and is ended by whoever stops it ([Dispatcher.StopTurns]).
func (w *turnWorker) release(ctx context.Context, job *river.Job[turnArgs], until time.Time) (released bool) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(w.resultCtx, cancel)()
	err := persist(ctx, func() error {
		return w.db.In(ctx, db.Scope{House: job.Args.House}, func(tx pgx.Tx) error {
			released = false
			t, err := turn.LockTx(ctx, tx, job.Args.Turn) // before the job, as whoever stops it does
			if gone := fault.CodeOf(err) == fault.NotFound; gone || err == nil && (t.StoppedBy != "" || !t.Status.Active()) {
				return nil
			} else if err != nil {
				return err
			}
			released = true
			_, err = tx.Exec(ctx, `
				update `+db.JobSchema+`.river_job set state = 'scheduled', scheduled_at = $2, attempt = greatest(attempt - 1, 0)
				where id = $1 and state = 'running' and `+holder+` = $3`, job.ID, until, w.liveness.name())
			return err
		})
	})
	// If that cannot be written, the job is queued again, and finds that the turn waits.
	return released || err != nil
}

// run runs the turn until it has ended or waits, someone else works on it, or ctx ends.
func (w *turnWorker) run(ctx context.Context, job *river.Job[turnArgs]) error {
	for looked := false; ; {
		err := w.attempt(ctx, job, !looked)
		_, away := errors.AsType[*turn.ElsewhereError](err)
		_, waits := errors.AsType[*turn.WaitError](err)
		if err == nil || waits || away || ctx.Err() != nil || overtaken(err) || errors.Is(err, turn.ErrAsking) {
			return err
		}
		again := turnAgain
		var early *turn.NotDueError
		if looked = errors.As(err, &early); looked {
			// Someone spoke just now. The turn may become due earlier than it says, if its bot is mentioned.
			again = min(again, max(time.Until(early.Due), 0), turnLook)
		} else {
			w.logger.WarnContext(ctx, "a bot's turn was interrupted; trying again", "error", fault.From(err).Detail())
		}
		if !pause(ctx, again) {
			return ctx.Err()
		}
	}
}

// attempt runs the turn once. With check, it does so only if this server still holds the job. A panic is an error here,
// because otherwise the queue would discard the job, and the bot would be busy with this turn for ever. A turn that
// panics each time ends by its number of attempts.
func (w *turnWorker) attempt(ctx context.Context, job *river.Job[turnArgs], check bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Newf(fault.Internal, "report it with this stack", "a turn panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if check {
		// To begin the turn here would end the work of a server that has taken it over.
		held, err := w.held(ctx, w.liveness.name(), job.ID)
		if err != nil {
			return err
		} else if len(held) == 0 {
			return errTakenByOther
		}
	}
	args := job.Args
	w.shares.asks(args.House)
	return w.bots.Run(ctx, args.House, args.Turn, stream.Ref{House: args.House, Name: thread.StreamName(args.Thread)})
}

// end ends the job of a turn that has ended. It retries however long the database is unreachable.
func (w *turnWorker) end(ctx context.Context, job *river.Job[turnArgs]) error {
	// The context keeps the job's values, because the library finds its client there, but not its end.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(w.resultCtx, cancel)()
	return persist(ctx, func() error {
		return w.db.In(ctx, db.Scope{House: job.Args.House}, func(tx pgx.Tx) error {
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
			if errors.Is(err, rivertype.ErrNotFound) {
				return nil
			}
			return err
		})
	})
}

// turnLostAfter is how long a turn may have no job that runs it before it counts as lost. A turn and its job are
// committed together, so only a job that ended before its turn leaves one.
const turnLostAfter = 10 * time.Second

// reviveTurns queues the active turns again that no job would run: that of a worker that panicked, or that could not
// write the end of its turn.
func (d *Dispatcher) reviveTurns(ctx context.Context) error {
	const running = "j.kind = $1 and j.args @> jsonb_build_object('turn', t.id)"
	return d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select t.id, t.house_id, t.thread_id, t.due_at from active_turns($2) t
			where not exists (select from `+db.JobSchema+`.river_job j where `+running+`
			  and (j.state in ('available', 'running') or j.state = 'scheduled' and (t.due_at is not null or j.scheduled_at < now() + $2)))
			limit 500`, turnArgs{}.Kind(), turnLostAfter)
		if err != nil {
			return err
		}
		type lost struct {
			ID, House, Thread string
			Due               *time.Time
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lost])
		for _, t := range list {
			var found bool
			err := tx.QueryRow(ctx, `
				with j as (
				  update `+db.JobSchema+`.river_job set state = 'available', scheduled_at = now(), attempt = 0, finalized_at = null,
				    metadata = metadata - 'cancel_attempted_at'
				  where kind = $1 and args @> jsonb_build_object('turn', $2::text) and state <> 'running' returning id
				) select exists (select from j)`, turnArgs{}.Kind(), t.ID).Scan(&found)
			if err == nil && !found {
				err = d.queueTurn(ctx, tx, turn.Turn{ID: t.ID, House: t.House, Thread: t.Thread})
			}
			if err != nil {
				return err
			}
			d.logger.WarnContext(ctx, "a bot's turn had no job; queued it again", "house", t.House, "thread", t.Thread, "turn", t.ID)
		}
		if err == nil && len(list) > 0 {
			err = wakeTx(ctx, tx, turns)
		}
		return err
	})
}

// StopTurns stops the active turns of a thread: one, or all if id is empty. It returns those that were active. A turn
// that is running ends within a second, keeping what its bot has written, and its commands are cancelled. An id that the thread does not have is a
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
	return found, errors.Join(d.endWaiting(ctx, waiting), d.stopCommands(ctx, scope, found))
}

// stopCommands cancels the commands of turns that were stopped. A turn that is to stop begins no further one.
func (d *Dispatcher) stopCommands(ctx context.Context, scope db.Scope, stopped []turn.Turn) (err error) {
	for _, t := range stopped {
		if failed := d.stopCommandsOf(ctx, scope, t.Thread, t.ID); fault.CodeOf(failed) != fault.NotFound {
			err = errors.Join(err, failed)
		}
	}
	return err
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
	return found, func(ctx context.Context) error {
		return errors.Join(d.endWaiting(ctx, waiting), d.stopCommands(ctx, db.Scope{House: scope.House, Agent: scope.Agent}, found))
	}, err
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
		case job != nil && t.Status != turn.Delayed:
			if err := d.rescheduleTx(ctx, tx, turn.Turn{ID: t.ID}); err != nil { // in case this server ends before it has ended the turn
				return nil, nil, err
			}
			fallthrough
		default:
			waiting = append(waiting, t)
		}
	}
	return found, waiting, nil
}

// endWaiting ends turns that are to stop and on which nobody works, because they would end only when their turn comes.
func (d *Dispatcher) endWaiting(ctx context.Context, waiting []turn.Turn) (err error) {
	for _, t := range waiting {
		failed := d.bots.Run(ctx, t.House, t.ID, stream.Ref{House: t.House, Name: thread.StreamName(t.Thread)})
		if !errors.Is(failed, turn.ErrOvertaken) && !errors.Is(failed, turn.ErrAsking) { // whoever works on it ends it
			err = errors.Join(err, failed)
		}
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
		Where("args @> jsonb_build_object('turn', @turn::text)", river.NamedArgs{"turn": id}).First(1))
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
		}
		root := turn.Retried + "/" + uuid.NewString()
		for _, q := range t.Questions() {
			again, err = d.requestTurnTx(ctx, tx, th.Stream(), turn.Request{
				House: scope.House, Thread: threadID, Bot: t.Bot, Entry: q.Entry, Seq: q.Seq, Reason: turn.Retried, Tools: t.Tools, Chain: t.Chain, Root: root, Think: q.Think,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return again, err
}
