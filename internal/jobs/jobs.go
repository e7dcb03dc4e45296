// Package jobs queues work in Postgres and runs it on the servers of an installation. It is the only package that knows
// river, the library of the queue, and river's tables.
//
// A job is queued in the transaction that records what asks for it. A worker on some server runs it. If a server dies,
// another one, or its own next start, notices and continues its jobs (sweep.go). A server that was only cut off leaves
// those jobs alone when it is back (held.go). What a job does, and what must not be done twice, is up to its kind.
//
// Jobs are taken fairly (fair.go): persons take turns, and so do the houses of a person and the threads of a house, each
// within its limits. A part of every server's workers is reserved for persons with nothing running. The queue's rows are
// the only record of what runs and what waits. A server with a free worker counts them and takes the next job under one
// lock, so the limits hold across all servers, and a job that ends in any way frees its slot.
//
// Fairness is ours, because river has none. Three alternatives were considered. One river queue per house costs each
// server a polling loop per house, and shares nothing between threads. Snoozing jobs over a limit delays them by the
// snooze and wakes them in no fair order. A table of our own, from which jobs are queued when they may run, must know how
// much room the servers have and duplicates the record of what runs. So only the choice of the next jobs is ours. River
// has an extension point for that, its pilot, without a promise to keep it. A server whose pilot river does not use does
// not start (errNotFair), and tests name the version of river for which our assumptions were checked.
//
// Sweeps and periodic tasks have a queue and workers of their own.
package jobs

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// maxJobTime is longer than any job may run, so that the queue does not take a running job for stuck.
	maxJobTime = 25 * time.Hour
	// resultTimeout is how long a stopping server tries to write the results of its jobs. Without a limit, an unreachable
	// database would keep the server from stopping.
	resultTimeout = 20 * time.Second
	// maintenanceTimeout limits a sweep or a periodic task, so that one that hangs does not block its worker forever.
	maintenanceTimeout = 5 * time.Minute
	// sweepEvery is the time between two searches for jobs of dead servers.
	sweepEvery = 15 * time.Second
	// fetchPause is the shortest time between two searches of a server in a queue. It is short, because it delays a job
	// that is queued right after another one.
	fetchPause = 10 * time.Millisecond
)

// Config configures [Open].
type Config struct {
	DB     *db.DB
	Logger *slog.Logger
	// Queues are the queues of the kinds.
	Queues []Queue
	// Tasks are run regularly. Defaults to none.
	Tasks []Task
	// Machines returns this server's own machines, whose jobs only it and others of these machines run. Any server may run
	// the jobs of a machine that was not seen for MachineGone. Required.
	Machines    func() []string
	MachineGone time.Duration

	// SweepEvery is the time between two searches for jobs of dead servers, and LockGrace how long a server may be without
	// its lock before it counts as dead. They default to 15 and 3 seconds.
	SweepEvery, LockGrace time.Duration
	// Tune changes the settings of the library. Defaults to nil: it does not.
	Tune func(*river.Config)
}

// Jobs queues and runs jobs. It is safe for concurrent use after [Jobs.Start].
type Jobs struct {
	config   Config
	db       *db.DB
	logger   *slog.Logger
	liveness *liveness
	notices  notices
	river    *river.Client[pgx.Tx]
	workers  *river.Workers
	kinds    map[string]*registered
	// started: no more kinds are added.
	started atomic.Bool
	// sweeps are what the sweeps of this server do besides looking for dead servers.
	sweeps []func(context.Context) error
	// results ends when results can no longer be written. It is not the context of a job, because the result of a job is
	// also written when the job is cancelled or the server stops. cancelResults ends it.
	results       context.Context
	cancelResults context.CancelFunc
}

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
	// The queue runs until it is stopped. With the context of the start, it would stop when the start has ended.
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

// Drain starts no more jobs, and waits until this server's jobs have ended or ctx ends, which is no error. Jobs queued
// meanwhile are left to other servers and the next start. Call [Jobs.Stop] after it.
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

// Results returns the context in which workers write the results of jobs: it ends when this server can no longer wait
// for that, and not when a job is cancelled or the server stops.
func (j *Jobs) Results() context.Context { return j.results }

// Lasting returns a context with the values of ctx that ends with [Jobs.Results].
func (j *Jobs) Lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(j.results, cancel)
	return lasting, func() { stop(); cancel() }
}

// Server returns this server.
func (j *Jobs) Server() Server { return j.liveness.server }

// LockGrace returns how long a server may be without its lock before it counts as dead.
func (j *Jobs) LockGrace() time.Duration { return j.config.LockGrace }

// OnSweep makes the sweeps of this server call f, too. It must be called before [Jobs.Start].
func (j *Jobs) OnSweep(f func(context.Context) error) { j.sweeps = append(j.sweeps, f) }

func (j *Jobs) newClient() (*river.Client[pgx.Tx], error) {
	periodic := []*river.PeriodicJob{river.NewPeriodicJob(river.PeriodicInterval(j.config.SweepEvery), func() (river.JobArgs, *river.InsertOpts) {
		return sweepArgs{}, j.kinds[sweepArgs{}.Kind()].options()
	}, nil)}
	for _, t := range j.config.Tasks {
		periodic = append(periodic, j.periodic(t))
	}
	driver := riverpgxv5.New(j.db.Pool())
	pilot := &fairPilot{server: j.Server(), db: j.db, driver: driver, machines: j.config.Machines, machineGone: j.config.MachineGone, shares: map[string]Queue{}}
	queues := map[string]river.QueueConfig{}
	for _, q := range append(j.config.Queues, maintenanceQueue) {
		queues[q.Name] = river.QueueConfig{MaxWorkers: q.Workers, FetchPollInterval: q.Poll}
		if q.Limits.HouseRunning > 0 {
			pilot.shares[q.Name] = q
		}
	}
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
		PeriodicJobs:         periodic,
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
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }
