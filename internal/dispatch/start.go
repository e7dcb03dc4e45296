package dispatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/away"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fair"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/retention"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/turn"
)

// This file assembles the dispatcher from the parts in the other files.

// Start starts deciding and running jobs, beginning with those of dead servers, until [Dispatcher.Stop].
func Start(ctx context.Context, c Config) (*Dispatcher, error) {
	c.foreground = cmp.Or(c.foreground, foreground)
	d := &Dispatcher{
		db: c.DB, log: c.Log, threads: c.Threads, boxes: c.Boxes, logger: c.Logger, config: c, limits: c.Limits.withDefaults(), output: fair.NewOutput(), saidIn: newSaidIn(c.Jobs.Tracer), logs: newLogSizes(c.DB, c.Logger, cmp.Or(c.LogQuota, DefaultLogQuota), cmp.Or(c.MemberLogQuota, DefaultMemberLogQuota)),
		stopHeartbeat: func() {},
	}
	var err error
	if d.Jobs, err = jobs.Open(ctx, d.newQueue()); err != nil {
		return nil, err
	}
	d.Commands = d.newCommands()
	away.New(away.Config{DB: c.DB, Jobs: d.Jobs, Boxes: c.Boxes, Logger: c.Logger, Servers: d.servers})
	d.Runs = d.newRuns()
	d.Retention = retention.New(retention.Config{DB: c.DB, DeleteThreadTx: d.DeleteThreadTx, Logger: c.Logger})
	d.addKinds()
	d.tools = d.newTools()
	d.bots = d.newRunner()
	if d.config.Select == nil && c.Rosters != nil {
		d.chooser = d.newChooser()
		d.config.Select = d.chooser.choose
	}
	if err = d.begin(ctx); err != nil {
		return nil, errors.Join(err, d.Stop(context.WithoutCancel(ctx)))
	}
	return d, nil
}

// newQueue returns the settings of the job queue.
func (d *Dispatcher) newQueue() jobs.Config {
	c := d.config
	queue := c.Jobs
	queue.DB, queue.Logger, queue.Machines, queue.MachineGone = c.DB, c.Logger, c.Boxes.MachineIDs, c.Boxes.MachineGone()
	queue.Queues = []jobs.Queue{command.Queue(d.limits.Commands), turnQueue(d.limits.Turns), run.Queue(d.limits.Runs), reapQueue}
	queue.Tasks = append(slices.Clone(queue.Tasks), jobs.Task{Name: "reconcile_runs", Every: run.SweepEvery, Do: func(ctx context.Context) error { return d.Runs.Sweep(ctx) }},
		jobs.Task{Name: "retention", Every: time.Hour, Do: func(ctx context.Context) error { return d.Retention.Sweep(ctx) }})
	return queue
}

// newCommands returns the part that runs commands.
func (d *Dispatcher) newCommands() *command.Commands {
	c := d.config
	return command.New(command.Config{
		DB: c.DB, Log: c.Log, Threads: c.Threads, Boxes: c.Boxes, Logger: c.Logger, Jobs: d.Jobs, Limits: d.limits.Commands, Output: d.output,
		Artifacts: c.Artifacts, Secrets: c.Secrets, SpoolDir: c.SpoolDir, SpoolSize: c.SpoolSize, End: c.EndCommands, Observe: c.ObserveCommand,
		Provide: func(ctx context.Context, scope db.Scope, in sandbox.Handle, what entry.Command) error {
			return d.Runs.Provide(ctx, scope, in, what)
		},
	})
}

func (d *Dispatcher) begin(ctx context.Context) (err error) {
	if err = d.boxes.TouchMachines(ctx); err != nil {
		return err
	}
	stopTouching, stopTending := d.boxes.KeepTouched(ctx, d.logger), d.boxes.Tend(ctx)
	measuring, stopMeasuring := context.WithCancel(context.WithoutCancel(ctx))
	var measured sync.WaitGroup
	measured.Go(func() { d.logs.run(measuring) })
	d.stopHeartbeat = func() { stopMeasuring(); measured.Wait(); stopTending(); stopTouching() }
	deciding := &decider{db: d.db, log: d.log, jobs: d.Jobs, logger: d.logger, saidIn: d.saidIn, logs: d.logs, choose: d.config.Select, requestTurn: d.requestTurnTx}
	if err := deciding.start(ctx); err != nil {
		return err
	}
	d.Jobs.OnSweep(deciding.recoverDead)
	d.Jobs.OnSweep(d.reviveTurns)
	return d.Jobs.Start(ctx)
}

// addKinds adds this package's kinds of jobs. A new kind needs a file with its arguments and its work, and a line here.
func (d *Dispatcher) addKinds() {
	jobs.Add(d.Jobs, jobs.Kind[turnArgs]{Queue: turns, Attempts: 1, Unique: true, Adopted: true, LeavesLost: true, Work: d.runTurn})
	jobs.Add(d.Jobs, jobs.Kind[wakeArgs]{Queue: turns, Work: d.wake})
	jobs.Add(d.Jobs, jobs.Kind[reapArgs]{Queue: reaps, Timeout: reapTimeout, Work: d.reap})
	jobs.Add(d.Jobs, jobs.Kind[deleteHouseArgs]{Queue: reaps, Timeout: reapTimeout, Unique: true, Work: d.deleteHouse})
}

// newRuns returns the part that runs coding agents.
func (d *Dispatcher) newRuns() *run.Runs {
	c := d.config.Runs
	c.DB, c.Log, c.Threads, c.Boxes, c.Logger, c.Jobs = d.db, d.log, d.threads, d.boxes, d.logger, d.Jobs
	c.Secrets, c.Artifacts, c.Wake, c.RootMost = d.config.Secrets, d.config.Artifacts, d.wakeTx, d.config.Bots.Roots.WithDefaults().Threads
	c.Command = d.Commands.Run
	return run.New(c)
}

// newRunner returns the part that runs the turns of bots.
func (d *Dispatcher) newRunner() *turn.Runner {
	c := d.config.Bots
	c.DB, c.Log, c.Logger, c.Tools, c.Queue, c.Setting, c.Park = d.db, d.log, d.logger, d.Tools, d.queueTurn, d.settingOf, d.parkTurnTx
	c.Pace = d.output.BeginResponse
	if d.config.Artifacts != nil {
		c.Files = &files{artifacts: d.config.Artifacts}
	}
	return turn.NewRunner(c)
}
