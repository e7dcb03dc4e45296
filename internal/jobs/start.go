package jobs

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

// This file assembles the queue from the other files' parts.

// Open shows the other servers that this one is running, and returns a queue to which kinds are added with [Add]. The
// caller calls [Jobs.Start] or [Jobs.Stop].
func Open(ctx context.Context, c Config) (*Jobs, error) {
	c.SweepEvery, c.LockGrace = cmp.Or(c.SweepEvery, sweepEvery), cmp.Or(c.LockGrace, serverLockGrace)
	j := &Jobs{config: c, db: c.DB, logger: c.Logger, workers: river.NewWorkers(), kinds: map[string]*registered{}}
	j.results, j.cancelResults = context.WithCancel(context.WithoutCancel(ctx))
	j.notices.handlers = map[string]func(context.Context, Server, []byte) error{}
	Add(j, Kind[sweepArgs]{Queue: maintenance, Attempts: 1, Timeout: maintenanceTimeout, Work: j.sweep})
	Add(j, Kind[taskArgs]{Queue: maintenance, Attempts: 3, Timeout: maintenanceTimeout, Work: j.runTask})
	var err error
	if j.liveness, err = startLiveness(ctx, c.DB.Pool(), c.Logger, j.leaveLost); err != nil {
		return nil, err
	}
	if j.river, err = j.newClient(); err != nil {
		j.liveness.end()
		return nil, err
	}
	return j, nil
}

// Start starts to run jobs, first those of dead servers, until [Jobs.Stop]. If it fails, the caller calls Stop, too.
func (j *Jobs) Start(ctx context.Context) error {
	j.started.Store(true)
	if err := j.startNotices(ctx); err != nil {
		return err
	}
	// The queue runs until it is stopped. With the caller's context, it would stop as soon as that ends.
	err := j.river.Start(context.WithoutCancel(ctx))
	if err == nil {
		// Sweep again, because the database may need a moment to notice that a killed server is gone.
		_, err = j.river.InsertMany(ctx, []river.InsertManyParams{
			{Args: sweepArgs{}, InsertOpts: j.kinds[sweepArgs{}.Kind()].options()},
			{Args: sweepArgs{}, InsertOpts: scheduled(j.kinds[sweepArgs{}.Kind()].options(), time.Now().Add(j.config.LockGrace))},
		})
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the job queue did not start", "check the database").Because(err)
	}
	return nil
}

// Drain stops taking jobs, and waits until those that this server is running have ended. It returns nil if ctx ends first.
// Jobs queued meanwhile are left to other servers and the next start. Call [Jobs.Stop] after it.
func (j *Jobs) Drain(ctx context.Context) error {
	if err := j.river.Stop(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// Stop ends the contexts of this server's jobs and waits until their workers have returned, or ctx ends.
func (j *Jobs) Stop(ctx context.Context) error {
	defer j.notices.end()
	defer j.liveness.end()
	defer j.cancelResults()
	defer time.AfterFunc(resultTimeout, j.cancelResults).Stop()
	return j.river.StopAndCancel(ctx)
}

func (j *Jobs) newClient() (*river.Client[pgx.Tx], error) {
	driver := riverpgxv5.New(j.db.Pool())
	pilot := &fairPilot{server: j.Server(), db: j.db, driver: driver, machines: j.config.Machines, machineGone: j.config.MachineGone, shares: map[string]Queue{}, kinds: j.kinds}
	queues := j.queues(pilot)
	fair := &fairDriver{driver, pilot}
	settings := &river.Config{
		ID:                   j.Server().String(),
		Schema:               db.JobSchema,
		Queues:               queues,
		Workers:              j.workers,
		FetchCooldown:        fetchPause,
		JobTimeout:           -1,
		RescueStuckJobsAfter: maxJobTime,
		Logger:               slog.New(quiet{j.logger.Handler()}),
		PeriodicJobs:         j.periodicJobs(),
		// Reindexing would fail, because the server's role does not own the indexes.
		ReindexerIndexNames: []string{},
	}
	if j.config.Tune != nil {
		j.config.Tune(settings)
	}
	client, err := river.NewClient(fair, settings)
	if err == nil && !fair.chooses(client) {
		return nil, errNotFair
	}
	return client, err
}

// periodicJobs returns the sweep and the tasks.
func (j *Jobs) periodicJobs() []*river.PeriodicJob {
	periodic := []*river.PeriodicJob{river.NewPeriodicJob(river.PeriodicInterval(j.config.SweepEvery), func() (river.JobArgs, *river.InsertOpts) {
		return sweepArgs{}, j.kinds[sweepArgs{}.Kind()].options()
	}, nil)}
	for _, t := range j.config.Tasks {
		periodic = append(periodic, j.periodic(t))
	}
	return periodic
}

// queues returns the queues, and gives the fair pilot those in which houses have a share.
func (j *Jobs) queues(pilot *fairPilot) map[string]river.QueueConfig {
	queues := map[string]river.QueueConfig{}
	for _, q := range append(j.config.Queues, maintenanceQueue) {
		queues[q.Name] = river.QueueConfig{MaxWorkers: q.Workers, FetchPollInterval: q.Poll}
		if q.Limits.HouseRunning > 0 {
			pilot.shares[q.Name] = q
		}
	}
	return queues
}

// quiet passes on only the queue's warnings and errors, because the queue logs every start and stop. A job that is
// cancelled because the queue stops is not an error.
type quiet struct{ slog.Handler }

func (q quiet) Handle(ctx context.Context, record slog.Record) error {
	stopping := false
	record.Attrs(func(a slog.Attr) bool {
		stopping = a.Key == "error" && a.Value.String() == context.Canceled.Error()
		return !stopping
	})
	if stopping {
		return nil
	}
	return q.Handler.Handle(ctx, record)
}

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
