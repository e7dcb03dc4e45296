// Package dispatch turns entries into work: someone says something, and it happens.
//
// What is asked for is written to the log and queued in one transaction (river, a queue in the same
// Postgres); a worker of some server takes it up, works, and writes how it ended. A server that dies
// while it works holds nothing up: another one, or its own next start, sees that it is gone and says
// so in the log (sweep.go). Nothing is ever run twice: what may have had an effect is reported as
// broken off, not repeated.
package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

const (
	// workers is how many jobs one server works on at once. A job mostly waits for a box.
	workers = 64
	// longest is more than any command may take: before it, the queue must not think a job stuck.
	longest = 25 * time.Hour
	// tellWithin is how long a server that stops tries to write how its commands ended.
	tellWithin = 20 * time.Second
	// sweepEvery is how often the servers look for work whose server is gone.
	sweepEvery = 15 * time.Second
)

// Config says what a [Dispatcher] works with. All fields but Chores are required.
type Config struct {
	DB      *db.DB
	Log     *stream.Log
	Threads *thread.Threads
	Boxes   *sandbox.Resolver
	Logger  *slog.Logger
	// Chores are done now and then. Defaults to none.
	Chores []Chore
}

// Dispatcher queues work and works. It is safe for concurrent use.
type Dispatcher struct {
	db      *db.DB
	log     *stream.Log
	threads *thread.Threads
	boxes   *sandbox.Resolver
	logger  *slog.Logger
	chores  []Chore
	queue   *river.Client[pgx.Tx]
	life    *life
	// telling ends when a result can no longer be written, with halt.
	telling context.Context
	halt    context.CancelFunc
}

// Start takes up work, and first of all reports what a dead server left. It goes on until
// [Dispatcher.Stop].
func Start(ctx context.Context, c Config) (*Dispatcher, error) {
	d := &Dispatcher{db: c.DB, log: c.Log, threads: c.Threads, boxes: c.Boxes, logger: c.Logger, chores: c.Chores}
	// The queue works until it is stopped, not until the start's context ends.
	lasting := context.WithoutCancel(ctx)
	d.telling, d.halt = context.WithCancel(lasting)
	var err error
	if d.life, err = begin(ctx, c.DB.Pool(), c.Logger); err != nil {
		return nil, err
	}
	if d.queue, err = d.newQueue(); err != nil {
		d.life.end()
		return nil, err
	}
	if err = d.queue.Start(lasting); err == nil {
		_, err = d.queue.Insert(ctx, sweepArgs{}, nil)
	}
	if err != nil {
		return nil, errors.Join(fault.New(fault.Unavailable, "the job queue did not start", "check the database").Because(err), d.Stop(lasting))
	}
	return d, nil
}

// Stop ends the work under way, each piece with an entry that says so, and waits for it until ctx ends.
func (d *Dispatcher) Stop(ctx context.Context) error {
	defer d.life.end()
	defer d.halt()
	defer time.AfterFunc(tellWithin, d.halt).Stop()
	return d.queue.StopAndCancel(ctx)
}

func (d *Dispatcher) newQueue() (*river.Client[pgx.Tx], error) {
	crew := river.NewWorkers()
	river.AddWorker(crew, &commandWorker{Dispatcher: d})
	river.AddWorker(crew, &reapWorker{Dispatcher: d})
	river.AddWorker(crew, &sweepWorker{Dispatcher: d})
	river.AddWorker(crew, &choreWorker{Dispatcher: d})
	periodic := []*river.PeriodicJob{
		river.NewPeriodicJob(river.PeriodicInterval(sweepEvery), func() (river.JobArgs, *river.InsertOpts) {
			return sweepArgs{}, nil
		}, nil),
	}
	for _, c := range d.chores {
		periodic = append(periodic, c.periodic())
	}
	return river.NewClient(riverpgxv5.New(d.db.Pool()), &river.Config{
		ID:                   d.life.name(),
		Schema:               db.JobSchema,
		Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:              crew,
		JobTimeout:           -1,
		RescueStuckJobsAfter: longest,
		Logger:               slog.New(quiet{d.logger.Handler()}),
		PeriodicJobs:         periodic,
	})
}

// quiet lets only the queue's warnings and errors through: it tells of every start and stop.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

// DeleteThread removes a thread with its log and its children, and has the sandboxes reaped that no
// other thread is on. Deleting one that is gone succeeds.
func (d *Dispatcher) DeleteThread(ctx context.Context, scope db.Scope, id string) error {
	return d.db.In(ctx, scope, func(tx pgx.Tx) error {
		boxes, err := d.threads.DeleteTx(ctx, tx, scope, id)
		if err != nil {
			return err
		}
		for _, box := range boxes {
			if _, err := d.queue.InsertTx(ctx, tx, reapArgs{House: scope.House, Sandbox: box}, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// reapArgs asks to destroy a sandbox if no thread is on it.
type reapArgs struct {
	House   string `json:"house"`
	Sandbox string `json:"sandbox"`
}

// Kind names the job.
func (reapArgs) Kind() string { return "reap_sandbox" }

type reapWorker struct {
	river.WorkerDefaults[reapArgs]
	*Dispatcher
}

// Work reaps; the queue tries again, ever more slowly, when the provider does not answer.
func (w *reapWorker) Work(ctx context.Context, job *river.Job[reapArgs]) error {
	return w.boxes.Reap(ctx, db.Scope{House: job.Args.House}, job.Args.Sandbox)
}
