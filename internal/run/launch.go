package run

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/runner"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/wait"
)

const (
	// obeyTimeout is how long a runner may take to announce that it stops, after the log has asked it to.
	obeyTimeout = 1500 * time.Millisecond
	// stopPatience is how much longer the runner may then take to end its agent, save the tree and report.
	stopPatience = 10 * time.Second
	// stopTimeout is how much longer ending a runner may take, in case its sandbox does not answer.
	stopTimeout = 10 * time.Second
	// followFor is how long a server follows a run before it hands the job over, because no job may run for longer
	// than a day.
	followFor = 12 * time.Hour
	// askAgain is the pause after a driver or the database did not answer a server that follows a run.
	askAgain = 2 * time.Second
	// overdue is how much longer than its limit a run may take to save the tree and report.
	overdue = 5 * time.Minute
	// lastLines is the size of the kept end of a runner's output, in bytes.
	lastLines = 4 << 10
)

// errOverdue reports that a run went on beyond its limit. Its runner, which is not trusted, should have ended it.
var errOverdue = fault.New(fault.Exhausted, "the run took longer than the limit run_minutes of its bot, and its runner did not end it", "continue the thread, or have an owner raise the limit")

// errOver reports that the run of a job is over, or that a later one has begun.
var errOver = errors.New("the run is over")

// work launches the run of a job, unless another server already has, and follows it until it ends. If this server
// stops, another one takes the job. The run goes on.
func (r *Runs) work(ctx context.Context, job *jobs.Job[launchArgs]) error {
	ctx = logging.With(ctx, slog.String("house", job.Args.House), slog.String("thread", job.Args.Thread), slog.Int64("run", job.Args.Epoch))
	l := &launch{Runs: r, job: job}
	job.Note(&l.note)
	err := db.Persist(ctx, func() error { return l.find(ctx) })
	if err == nil && job.Cancelled() { // perhaps as its last server handed it over
		err = jobs.ErrCancelled
	}
	if err == nil && l.thread.Run.Epoch < job.Args.Epoch {
		err = l.begin(ctx)
	}
	if err == nil {
		err = l.follow(ctx)
	}
	return l.settle(ctx, err)
}

// find reads the thread of the job. It returns errOver if the run is over.
func (l *launch) find(ctx context.Context) error {
	a := l.job.Args
	return l.config.DB.In(ctx, db.Scope{House: a.House}, func(tx pgx.Tx) (err error) {
		if l.thread, err = l.config.Threads.GetTx(ctx, tx, a.Thread); fault.CodeOf(err) == fault.NotFound {
			return errOver
		} else if err != nil {
			return err
		}
		l.scope = db.Scope{House: a.House, Agent: l.thread.Agent}
		if run := l.thread.Run; run.Epoch > a.Epoch || run.Epoch == a.Epoch && l.thread.Status != thread.Running {
			return errOver
		}
		l.bot, err = l.config.Bots.GetTx(ctx, tx, a.House, l.thread.Agent)
		return err
	})
}

// begin prepares the sandbox, claims the run and launches its runner.
func (l *launch) begin(ctx context.Context) error {
	agent, ok := l.config.Agents[l.bot.Runtime]
	if !ok {
		return fault.Newf(fault.Precondition, "delegate to another bot", "this server does not know the coding agent %s", l.bot.Runtime).WithReason(fault.NoCodingAgent)
	}
	if err := l.rule(ctx, agent); err != nil {
		return err
	}
	if l.config.Model != nil { // before the slow steps, because the bot may have no model
		var err error
		b := l.bot
		b.Model = cmp.Or(l.thread.Model, b.Model)
		if l.model, err = l.config.Model(ctx, l.scope, b, agent.Dialects); err != nil {
			return err
		}
	}
	if l.note.Leaves != "" {
		if err := l.config.Boxes.Renew(ctx, l.scope, l.thread.ID, l.note.Leaves); err != nil {
			return err
		}
	}
	return l.config.Boxes.Use(ctx, l.scope, l.thread.ID, "", func(h sandbox.Handle) error { return l.launchIn(ctx, h, agent) })
}

// launchIn claims the run and launches its runner in a sandbox.
func (l *launch) launchIn(ctx context.Context, h sandbox.Handle, agent Agent) error {
	launcher, ok := h.Launcher()
	if !ok {
		return fault.New(fault.Precondition, "choose an environment with another driver", "the thread's sandbox cannot run coding agents, because nothing in it outlives a command")
	}
	if h.Door() == "" {
		return fault.New(fault.Precondition, "use a sandbox with a network; for drivers other than local, also set public_url to where the internet reaches this server",
			"programs in the thread's sandbox cannot reach this server, to which a coding agent reports")
	}
	placed, err := l.prepare(ctx, h, agent)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // the next server prepares it again
	}
	// The next server only follows a run that was claimed.
	ctx, stop := l.config.Jobs.Finishing(ctx)
	defer stop()
	if err := l.claim(ctx, h); err != nil {
		return err
	}
	return l.start(ctx, h, launcher, placed)
}

// rule finds the tools that need a person's approval.
func (l *launch) rule(ctx context.Context, agent Agent) (err error) {
	if l.rules, err = l.rulesOf(ctx, l.scope, l.bot); err != nil {
		return err
	}
	return cannotAsk(l.bot, agent, l.rules)
}

// claim begins the run. From now on it is ended in any case, even if this server dies.
func (l *launch) claim(ctx context.Context, h sandbox.Handle) error {
	l.note.Sandbox = h.ID
	machine := h.Machine // servers on other machines cannot follow it
	if err := l.job.SetNote(ctx, l.note, &machine); err != nil {
		return err
	}
	return db.Persist(ctx, func() error {
		return l.inThread(ctx, l.scope.House, l.thread.ID, func(tx pgx.Tx, th thread.Thread) (err error) {
			if th.Run.Epoch == l.job.Args.Epoch && th.Status == thread.Running {
				l.thread = th // an earlier attempt was committed, although its answer was lost
				return nil
			}
			if th.Run.Epoch >= l.job.Args.Epoch {
				return errOver
			}
			l.thread, err = l.config.Threads.BeginRunTx(ctx, tx, th, l.note.Policy)
			return err
		})
	})
}

// start launches the runner. Repeating it is harmless, because a launch has an id.
func (l *launch) start(ctx context.Context, h sandbox.Handle, launcher sandbox.Launcher, placed placed) error {
	if err := l.putSpec(ctx, h, placed); err != nil {
		return err
	}
	return l.launchRunner(ctx, h, launcher, l.id(), placed.runner)
}

// launchRunner launches a runner with the specification of the run.
func (l *launch) launchRunner(ctx context.Context, h sandbox.Handle, launcher sandbox.Launcher, id, program string) error {
	token, err := l.config.Token(ctx, l.scope.House, l.thread.ID, l.thread.Agent, l.job.Args.Epoch)
	if err != nil {
		return err
	}
	env, files, err := l.environment(ctx, h)
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"ARBE_THREAD_ID": l.thread.ID, "ARBE_STREAM_URL": h.Door() + "/api/stream", "ARBE_STREAM_TOKEN": token, "ARBE_AUTHOR_ID": l.thread.Agent, "ARBE_PI_MIRROR_NEXT_INDEX": "0",
	} {
		env[name] = value
	}
	return launcher.Launch(ctx, h.Ref, id, sandbox.Command{
		Argv: []string{program, l.spec()}, Dir: sandbox.Workspace, Env: env, Secrets: files, Merged: true,
	})
}

// id is the name of the run's launch in its sandbox, which threads may share. collectID is that of its second runner.
func (l *launch) id() string {
	return "run-" + strings.ToLower(l.thread.ID) + "-" + strconv.FormatInt(l.job.Args.Epoch, 10)
}

func (l *launch) collectID() string { return l.id() + "-collect" }

// follow waits until the runner has ended. It returns nil if the run has been ended by then, and otherwise a
// [*goneError] that describes the runner's end.
func (l *launch) follow(ctx context.Context) error {
	var h sandbox.Handle
	err := l.patiently(ctx, func() (err error) {
		h, err = l.config.Boxes.Handle(ctx, l.scope, l.note.Sandbox)
		return err
	})
	if fault.CodeOf(err) == fault.NotFound {
		return &goneError{"its sandbox is gone", ""}
	} else if err != nil {
		return err
	}
	launcher, ok := h.Launcher()
	if !ok {
		return &goneError{"the server can no longer follow its sandbox", ""}
	}
	left := time.Until(l.thread.Run.StartedAt.Add(l.most() + overdue))
	bounded, cancel := context.WithTimeout(ctx, min(followFor, max(left, 0)))
	defer cancel()
	var exit sandbox.Record
	err = l.patiently(bounded, func() (err error) {
		exit, err = l.output(bounded, h, launcher)
		return err
	})
	switch {
	case err != nil && fault.CodeOf(err) == fault.NotFound:
		return &goneError{"its sandbox does not know its runner", ""}
	case err != nil && bounded.Err() != nil && left < followFor && ctx.Err() == nil:
		return errOverdue
	case err != nil:
		return err
	}
	if exit.ExitCode == 0 || exit.BoxEnded {
		l.forget(ctx, launcher, h.Ref, l.id())
	} else if err := l.recover(ctx, h, launcher); err != nil {
		return err
	}
	return l.gone(exit)
}

// patiently calls f again while the sandbox's driver or the database does not answer, until ctx ends. The run goes on
// meanwhile. If it ends, the error is errOver.
func (l *launch) patiently(ctx context.Context, f func() error) error {
	for {
		err := f()
		if fault.CodeOf(err) != fault.Unavailable {
			return err
		}
		if !wait.For(ctx, askAgain) {
			return ctx.Err()
		}
		if over := l.find(ctx); errors.Is(over, errOver) {
			return over
		}
	}
}

// output reads the runner's output until it ends, and keeps the last of it.
func (l *launch) output(ctx context.Context, h sandbox.Handle, launcher sandbox.Launcher) (exit sandbox.Record, err error) {
	l.tail = nil
	err = launcher.Follow(ctx, h.Ref, l.id(), 0, func(r sandbox.Record) error {
		switch r.Kind {
		case sandbox.RecordStdout, sandbox.RecordStderr:
			l.tail = append(l.tail, r.Data...)
			l.tail = l.tail[max(0, len(l.tail)-lastLines):]
		case sandbox.RecordExit:
			exit = r
		}
		return nil
	})
	return exit, err
}

// gone describes the end of a runner without a report.
func (l *launch) gone(exit sandbox.Record) error {
	if exit.BoxEnded {
		return &goneError{"its sandbox ended while it ran", string(l.tail)}
	}
	return &goneError{"its runner ended without a report (exit " + strconv.Itoa(exit.ExitCode) + ")", string(l.tail)}
}

// leftovers kills the processes with $1 in their environment. A process may start another one meanwhile, so it looks again.
const leftovers = `for turn in 1 2 3 4 5; do
	found=
	for p in /proc/[0-9]*; do
		tr '\0' '\n' <$p/environ 2>/dev/null | grep -qxF "$1" && kill -9 ${p##*/} 2>/dev/null && found=yes
	done
	test -n "$found" || exit 0
done`

// recover collects the leftovers of a runner that ended without a report, and ends its processes.
func (l *launch) recover(ctx context.Context, h sandbox.Handle, launcher sandbox.Launcher) error {
	if err := db.Persist(ctx, func() error { return l.find(ctx) }); err == nil {
		l.collect(ctx, h, launcher)
	} else if !errors.Is(err, errOver) {
		return err
	}
	if err := ctx.Err(); err != nil { // another server goes on
		return err
	}
	l.clear(ctx, h, launcher)
	return nil
}

// clear kills the processes that a killed runner left. Its agent died with it, but agents start commands in separate
// sessions.
func (l *launch) clear(ctx context.Context, h sandbox.Handle, launcher sandbox.Launcher) {
	bounded, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	err := l.ends(bounded, h, launcher) // not all drivers find everything
	if err == nil {
		_, err = output(bounded, h, "/bin/sh", "-c", leftovers, "sh", runner.Mark(log(l.scope.House, l.thread.ID).Name, l.job.Args.Epoch))
	}
	if err != nil {
		l.config.Logger.WarnContext(ctx, "processes of a run whose runner was killed may go on", "error", fault.From(err).Detail())
	}
}

// forget deletes the record of a runner that has ended.
func (l *launch) forget(ctx context.Context, launcher sandbox.Launcher, ref, id string) {
	bounded, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := launcher.Forget(bounded, ref, id); err != nil {
		l.config.Logger.DebugContext(ctx, "the record of a run stays in its sandbox", "error", fault.From(err).Detail())
	}
}

// goneError reports that the runner of a run has ended, and how.
type goneError struct{ reason, lines string }

func (e *goneError) Error() string { return e.reason }

// settle ends the job, and the run if it has not ended. err is the result of the work on it.
func (l *launch) settle(ctx context.Context, err error) error {
	a := l.job.Args
	away, elsewhere := errors.AsType[*sandbox.OtherMachineError](err)
	gone, isGone := errors.AsType[*goneError](err)
	var e end
	switch {
	case err == nil, errors.Is(err, errOver):
		return nil
	case jobs.Cancelled(ctx), errors.Is(err, jobs.ErrCancelled):
		l.stop(ctx, true)
		e = cancelled()
	case jobs.Stopped(ctx), errors.Is(err, jobs.ErrTakenByOther):
		return l.job.HandOver(ctx, "")
	case elsewhere:
		return l.job.HandOver(ctx, away.Machine)
	case errors.Is(err, errOverdue):
		l.stop(ctx, false)
		e = failed(a.Epoch, entry.PhaseExecution, err)
	case errors.Is(err, context.DeadlineExceeded):
		return l.job.HandOver(ctx, "") // followFor has passed
	case isGone:
		e = lost(a.Epoch, gone.reason, l.shown(ctx, gone.lines))
	default:
		l.config.Logger.WarnContext(ctx, "a coding agent could not be launched", "error", fault.From(err).Detail())
		l.stop(ctx, false)
		e = failed(a.Epoch, entry.PhaseDispatch, err)
	}
	return l.end(ctx, e)
}

// end ends the job and its run, even a run that was never claimed. It retries for as long as the database is
// unreachable.
func (l *launch) end(ctx context.Context, e end) error {
	ctx, cancel := l.config.Jobs.Lasting(ctx)
	defer cancel()
	a := l.job.Args
	return db.Persist(ctx, func() error {
		err := l.inThread(ctx, a.House, a.Thread, func(tx pgx.Tx, th thread.Thread) (err error) {
			if err := l.job.EndTx(ctx, tx); err != nil {
				return err
			}
			if th.Run.Epoch == a.Epoch-1 && th.Status != thread.Running { // a run that never began counts as one that failed at once
				if th, err = l.config.Threads.BeginRunTx(ctx, tx, th, l.note.Policy); err != nil {
					return err
				}
			}
			if th.Run.Epoch != a.Epoch || th.Status != thread.Running {
				return nil
			}
			return l.endTx(ctx, tx, th, e)
		})
		if fault.CodeOf(err) == fault.NotFound {
			return nil // the thread was deleted
		}
		return err
	})
}

// stop ends the runner, if it was launched. asked means that the log asks it to stop. A runner that obeys may then end its
// agent, save the tree and report, which ends the run. It gets no signal before that, because a signal would also reach the
// agent and the programs that save the tree.
func (l *launch) stop(ctx context.Context, asked bool) {
	if l.note.Sandbox == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), obeyTimeout+stopPatience+stopTimeout)
	defer cancel()
	h, err := l.config.Boxes.Handle(ctx, l.scope, l.note.Sandbox)
	if err == nil {
		if launcher, ok := h.Launcher(); ok {
			ends := func(within time.Duration) bool {
				bounded, cancel := context.WithTimeout(ctx, within)
				defer cancel()
				return launcher.Follow(bounded, h.Ref, l.id(), 0, func(sandbox.Record) error { return nil }) == nil
			}
			if asked && !ends(obeyTimeout) && l.obeys(ctx) {
				ends(stopPatience)
			}
			err = l.ends(ctx, h, launcher)
		}
	}
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		l.config.Logger.WarnContext(ctx, "a runner could not be ended", "error", fault.From(err).Detail())
	}
}

// obeys reports whether the runner's last heartbeat announces that it stops, or its report has arrived.
func (l *launch) obeys(ctx context.Context) (obeys bool) {
	err := l.inThread(ctx, l.scope.House, l.thread.ID, func(_ pgx.Tx, th thread.Thread) error {
		obeys = th.Status != thread.Running || slices.Contains([]string{entry.Heartbeat{Phase: "stopping"}.Doing(), entry.Heartbeat{Phase: "saving"}.Doing()}, th.Run.Doing)
		return nil
	})
	return err == nil && obeys
}

// shown returns the end of a runner's output for the log, without the secrets that the run received.
func (l *launch) shown(ctx context.Context, lines string) string {
	from, err := l.redactorOf(ctx, l.scope, l.thread.ID)
	if err != nil {
		return ""
	}
	return from.String(plain([]byte(lines)))
}
