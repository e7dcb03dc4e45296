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

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
	"github.com/arbe-dev/arbe/internal/wait"
)

const (
	// turns is the queue of the turns of bots.
	turns = "turns"
	// turnWorkers limits the turns that a server runs at once. It is large, because a turn mostly waits for its model.
	turnWorkers = 512
	// turnAgain is the longest pause before continuing a turn that the database interrupted or that is not due.
	turnAgain = 2 * time.Second
	// turnLook is the pause between checks of a turn that is not due: a mention may make it due earlier.
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

// turnQueue returns the queue of turns.
func turnQueue(l jobs.Limits) jobs.Queue {
	return jobs.Queue{Name: turns, Workers: turnWorkers, Limits: l, Poll: time.Second}
}

// queueTurn queues a turn when tx commits.
func (d *Dispatcher) queueTurn(ctx context.Context, tx pgx.Tx, t turn.Turn) error {
	_, err := d.Jobs.InsertTx(ctx, tx, turnArgs{t.House, t.Thread, t.ID}, jobs.Options{Due: t.Due})
	return err
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

// rescheduleTx reschedules the job of a waiting turn for when the turn is due: at once if [turn.Turn].Due is zero.
func (d *Dispatcher) rescheduleTx(ctx context.Context, tx pgx.Tx, t turn.Turn) error {
	return d.Jobs.RescheduleTx(ctx, tx, turnArgs{}.Kind(), "turn", t.ID, t.Due)
}

// runTurn runs the turn of a job. If the server stops first, the job is left to another server or to the next start of this
// one.
//
// runTurn waits out database errors, and writes the end of the job itself. The queue would give up after some seconds. The
// job would then count as running on a live server, and nobody would continue it.
func (d *Dispatcher) runTurn(ctx context.Context, job *jobs.Job[turnArgs]) error {
	ctx = logging.With(ctx, slog.String("house", job.Args.House), slog.String("thread", job.Args.Thread), slog.String("turn", job.Args.Turn))
	err := d.attempts(ctx, job)
	for waits, ok := errors.AsType[*turn.WaitError](err); ok; waits, ok = errors.AsType[*turn.WaitError](err) {
		if d.postpone(ctx, job, waits.Until) {
			return jobs.Left
		}
		err = d.attempts(ctx, job) // someone stopped it just now
	}
	if err != nil && jobs.Cancelled(ctx) && !overtaken(err) {
		// Someone stopped the turn, but that could not be written.
		err = d.attempts(d.Jobs.Results(), job)
	}
	if errors.Is(err, turn.ErrAsking) {
		return nil // this job has ended, and the turn has another one
	}
	if err == nil {
		err = d.endTurn(ctx, job)
	}
	if away, ok := errors.AsType[*turn.ElsewhereError](err); ok {
		return job.HandOver(ctx, away.Machine)
	}
	if err != nil {
		return job.HandOver(ctx, "")
	}
	return nil
}

// overtaken reports whether an error means that someone else is working on a turn.
func overtaken(err error) bool {
	return errors.Is(err, jobs.ErrTakenByOther) || errors.Is(err, turn.ErrOvertaken)
}

// postpone releases the worker until the turn is due, and reports whether it did. A turn that someone is stopping is not
// postponed, because it must not wait. A turn that is stopped later has no worker, so the code that stops it also ends
// it ([Dispatcher.StopTurns]).
func (d *Dispatcher) postpone(ctx context.Context, job *jobs.Job[turnArgs], until time.Time) (postponed bool) {
	ctx, cancel := d.Jobs.Lasting(ctx)
	defer cancel()
	err := db.Persist(ctx, func() error {
		return d.db.In(ctx, db.Scope{House: job.Args.House}, func(tx pgx.Tx) error {
			postponed = false
			t, err := turn.LockTx(ctx, tx, job.Args.Turn) // lock the turn before the job, as StopTurns does
			if gone := fault.CodeOf(err) == fault.NotFound; gone || err == nil && (t.StoppedBy != "" || !t.Status.Active()) {
				return nil
			} else if err != nil {
				return err
			}
			postponed = true
			return job.PostponeTx(ctx, tx, until)
		})
	})
	// If that cannot be written, the job is queued again, and finds that the turn is waiting.
	return postponed || err != nil
}

// attempts runs the turn until it has ended or waits, until someone else works on it, or until ctx ends.
func (d *Dispatcher) attempts(ctx context.Context, job *jobs.Job[turnArgs]) error {
	for looked := false; ; {
		err := d.attempt(ctx, job, !looked)
		_, away := errors.AsType[*turn.ElsewhereError](err)
		_, waits := errors.AsType[*turn.WaitError](err)
		if err == nil || waits || away || ctx.Err() != nil || overtaken(err) || errors.Is(err, turn.ErrAsking) {
			return err
		}
		again := turnAgain
		var early *turn.NotDueError
		if looked = errors.As(err, &early); looked {
			// Someone has just spoken. The turn may become due earlier than it says, if its bot is mentioned.
			again = min(again, max(time.Until(early.Due), 0), turnLook)
		} else {
			d.logger.WarnContext(ctx, "a bot's turn was interrupted; trying again", "error", fault.From(err).Detail())
		}
		if !wait.For(ctx, again) {
			return ctx.Err()
		}
	}
}

// attempt runs the turn once. With check, it does so only if this server still holds the job. It turns a panic into an error.
// Otherwise the queue would discard the job, and the bot would be busy with this turn forever. A turn that panics every time
// ends when its attempts are used up.
func (d *Dispatcher) attempt(ctx context.Context, job *jobs.Job[turnArgs], check bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Newf(fault.Internal, "report it with this stack", "a turn panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if check {
		// Beginning the turn here would end the work of a server that has taken it over.
		held, err := job.Held(ctx)
		if err != nil {
			return err
		} else if !held {
			return jobs.ErrTakenByOther
		}
	}
	args := job.Args
	d.output.Ask(args.House)
	return d.bots.Run(ctx, args.House, args.Turn, stream.Ref{House: args.House, Name: thread.StreamName(args.Thread)})
}

// endTurn ends the job of a finished turn. It retries for as long as the database is unreachable.
func (d *Dispatcher) endTurn(ctx context.Context, job *jobs.Job[turnArgs]) error {
	ctx, cancel := d.Jobs.Lasting(ctx)
	defer cancel()
	return db.Persist(ctx, func() error {
		return d.db.In(ctx, db.Scope{House: job.Args.House}, func(tx pgx.Tx) error { return job.EndTx(ctx, tx) })
	})
}

// turnLostAfter is how long a turn may be without a job before it counts as lost. A turn and its job are committed together,
// so this happens only if the job ended before the turn.
const turnLostAfter = 10 * time.Second

// mostRevived limits the turns that one sweep queues again.
const mostRevived = 500

// reviveTurns queues active turns that have lost their job, because their worker panicked or could not write the end of the
// turn.
func (d *Dispatcher) reviveTurns(ctx context.Context) error {
	return d.db.In(ctx, db.Scope{}, func(tx pgx.Tx) error {
		active, err := turn.OverdueTx(ctx, tx, turnLostAfter)
		if err != nil {
			return err
		}
		wanted, by := make([]jobs.Wanted, len(active)), map[string]turn.Turn{}
		for i, t := range active {
			wanted[i], by[t.ID] = jobs.Wanted{Value: t.ID, Waits: !t.Due.IsZero()}, t
		}
		lost, err := d.Jobs.LostTx(ctx, tx, turnArgs{}.Kind(), "turn", wanted, turnLostAfter, mostRevived)
		for _, id := range lost {
			t := by[id]
			found, err := d.Jobs.ReviveTx(ctx, tx, turnArgs{}.Kind(), "turn", id)
			if err == nil && !found {
				t.Due = time.Time{}
				err = d.queueTurn(ctx, tx, t)
			}
			if err != nil {
				return err
			}
			d.logger.WarnContext(ctx, "a bot's turn had no job; queued it again", "house", t.House, "thread", t.Thread, "turn", t.ID)
		}
		return err
	})
}

// StopTurns stops the active turns of a thread: one, or all if id is empty. It returns those that were active. A running turn
// ends within a second and keeps what its bot has written. Its commands are cancelled. If the thread has no turn with this
// id, the error is [fault.NotFound]. A turn that has ended is left unchanged.
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

// stopCommands cancels the commands of stopped turns. A turn that is to stop begins no more commands.
func (d *Dispatcher) stopCommands(ctx context.Context, scope db.Scope, stopped []turn.Turn) (err error) {
	for _, t := range stopped {
		if failed := d.Commands.CancelOfCalls(ctx, scope, t.Thread, t.ID, command.Interrupt); fault.CodeOf(failed) != fault.NotFound {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// StopBotTx stops all turns of a bot of the scope's house, in the transaction that removes the bot. Call it before that
// transaction locks a log, because turns lock their row before their log. It returns the turns that were active, and a
// function to call after the commit, which ends those that nobody is working on.
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

// AtWork returns the number of turns of a bot of the scope's house that have begun, or wait only for a server.
func (d *Dispatcher) AtWork(ctx context.Context, scope db.Scope, bot string) (n int, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		active, err := turn.ActiveOfTx(ctx, tx, scope.House, bot)
		n = AtWork(active)
		return err
	})
	return n, err
}

// AtWork returns the number of active turns that have begun, or wait only for a server. A delayed turn may never begin.
func AtWork(active []turn.Turn) (n int) {
	for _, t := range active {
		if t.Status != turn.Delayed {
			n++
		}
	}
	return n
}

// stopTx records that the scope's agent stops some active turns, and cancels the jobs of those that are running. It returns
// those that had not ended in the meantime, and those that nobody is working on.
func (d *Dispatcher) stopTx(ctx context.Context, tx pgx.Tx, scope db.Scope, active []turn.Turn) (found, waiting []turn.Turn, err error) {
	for _, t := range active {
		if t, ok, err := turn.StopTx(ctx, tx, t.ID, scope.Agent); err != nil {
			return nil, nil, err
		} else if ok {
			found = append(found, t)
		}
		rows, err := d.Jobs.FindTx(ctx, tx, jobs.Filter{Kind: turnArgs{}.Kind(), Args: map[string]string{"turn": t.ID}, Most: 1})
		switch {
		case err != nil:
			return nil, nil, err
		case len(rows) > 0 && rows[0].Running():
			if _, err := d.Jobs.CancelTx(ctx, tx, rows[0].ID()); err != nil {
				return nil, nil, err
			}
		case len(rows) > 0 && t.Status != turn.Delayed:
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

// endWaiting ends turns that are to stop and that nobody is working on. Otherwise they would end only when the queue reaches
// them.
func (d *Dispatcher) endWaiting(ctx context.Context, waiting []turn.Turn) (err error) {
	for _, t := range waiting {
		failed := d.bots.Run(ctx, t.House, t.ID, stream.Ref{House: t.House, Name: thread.StreamName(t.Thread)})
		if !errors.Is(failed, turn.ErrOvertaken) && !errors.Is(failed, turn.ErrAsking) { // otherwise another worker ends it
			err = errors.Join(err, failed)
		}
	}
	return err
}

// UsedToday returns the usage of the scope's house's turns since midnight UTC.
func (d *Dispatcher) UsedToday(ctx context.Context, scope db.Scope) (used turn.Used, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		used, err = turn.UsedTodayTx(ctx, tx, scope.House, scope.Agent)
		return err
	})
	return used, err
}

// ThreadUsed returns the usage of a thread of the scope's house.
func (d *Dispatcher) ThreadUsed(ctx context.Context, scope db.Scope, threadID string) (used turn.ThreadUsed, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		used, err = turn.ThreadUsedTx(ctx, tx, scope.House, threadID)
		return err
	})
	return used, err
}

// RetryTurn begins a new turn for the questions of one that has ended, and returns its id. If the bot has an active turn in
// the thread, that turn receives the questions. Questions that were deleted are left out; if none remains, the error is a
// [fault.Precondition].
func (d *Dispatcher) RetryTurn(ctx context.Context, scope db.Scope, threadID, id string) (again string, err error) {
	err = d.db.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := d.threads.GetTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		t, asks, err := d.repeatableTx(ctx, tx, th, id)
		if err != nil {
			return err
		}
		root := turn.Retried + "/" + uuid.NewString()
		for _, q := range asks {
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

// repeatableTx returns a turn that has ended, and its questions that were not deleted.
func (d *Dispatcher) repeatableTx(ctx context.Context, tx pgx.Tx, th thread.Thread, id string) (t turn.Turn, asks []turn.Question, err error) {
	t, err = turn.GetTx(ctx, tx, id)
	switch {
	case err != nil:
		return t, nil, err
	case t.Thread != th.ID:
		return t, nil, fault.New(fault.NotFound, "this thread has no such turn", "see the thread's entries for the turns of its bots")
	case t.Status.Active():
		return t, nil, fault.New(fault.Precondition, "the turn has not ended", "stop it first")
	}
	gone, err := entrystate.GoneTx(ctx, tx, th.Stream(), t.AskedSeqs)
	if err != nil {
		return t, nil, err
	}
	asks = slices.DeleteFunc(t.Questions(), func(q turn.Question) bool { return slices.Contains(gone, q.Seq) })
	if len(asks) == 0 {
		return t, nil, fault.New(fault.Precondition, "the message that the bot was to answer was deleted", "say it again")
	}
	return t, asks, nil
}

// Budget limits the cost of the installation's models.
func (d *Dispatcher) Budget() turn.Budget { return d.config.Bots.Budget }
