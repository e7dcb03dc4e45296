// Package dispatch turns entries into work.
//
// A request for work is written to the log and queued in one transaction (with river, a job queue in the same
// Postgres). A worker on some server runs the job and writes its result. If a server dies, another one, or its own next
// start, notices and continues its jobs (sweep.go, kind.go). A server that was only cut off leaves those jobs alone when
// it is back (held.go). Nothing is ever run twice: a command that is still running or has ended meanwhile is followed
// (attend.go), and if a command was ended with its server, the log says so.
//
// If a sandbox is bound to a machine, that machine's servers run its commands.
//
// Commands are started fairly (fair.go). Houses take turns, and so do the threads of a house, each within its limits; a
// part of every server's workers is reserved for houses with nothing running. The queue's rows are the only record of
// what runs and what waits. A server with a free worker counts them and takes the next job under one lock, so the
// limits hold across all servers, and a job that ends in any way frees its slot.
//
// Three alternatives were considered. One river queue per house costs each server a polling loop per house, and shares
// nothing between threads. Snoozing jobs over a limit delays them by the snooze and wakes them in no fair order. A
// table of our own, from which jobs are queued when they may run, must know how much room the servers have and
// duplicates the record of what runs. So only the choice of the next jobs is ours. The library has an extension point
// for that, without a promise to keep it; errNotFair and the tests detect a change.
//
// Sweeps, periodic tasks and the deletion of sandboxes have their own queues and workers.
//
// Chats and commands are written by one operation ([Dispatcher.Say], say.go). Every entry of a thread, however it came
// into the log, gets exactly one decision: which work it asks for (decide.go). A cursor per thread records how far that
// has come. The alternative, a row per entry that the append inserts and the decision deletes, makes every append pay
// for two writes, and needs as many decisions as entries in a burst. A cursor costs appends nothing, and one update
// decides all entries since the last one. Its price is that no index names the threads that a killed server left
// undecided: finding them means checking all cursors, which takes about 5 µs per thread.
//
// Decided entries become searchable behind a second cursor (index.go), so that no decision waits for that.
package dispatch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
)

const (
	// maxJobTime is longer than any command may run, so that the queue does not take a running job for stuck.
	maxJobTime = 25 * time.Hour
	// resultTimeout is how long a stopping server tries to write the results of its commands. Without a limit, an
	// unreachable database would keep the server from stopping.
	resultTimeout = 20 * time.Second
	// reportWaitAfter is how long a command may wait for a server before an entry says so. A shorter wait
	// gets none, so that the log does not fill with them.
	reportWaitAfter = 5 * time.Second
	// maintenanceTimeout limits a sweep, a periodic task or a deletion, so that one that hangs does not block its
	// worker forever.
	maintenanceTimeout = 5 * time.Minute
	// sweepEvery is the time between two searches for jobs of dead servers.
	sweepEvery = 15 * time.Second
	// heartbeatEvery is the time between two reports that this server's machine is there. A machine without a report
	// for machineAwayAfter counts as away.
	heartbeatEvery, machineAwayAfter = 3 * time.Second, 10 * time.Second
)

// Config configures [Start]. All fields up to Logger are required.
type Config struct {
	DB      *db.DB
	Log     *stream.Log
	Threads *thread.Threads
	Boxes   *sandbox.Resolver
	Logger  *slog.Logger
	// PeriodicTasks are run regularly. Defaults to none.
	PeriodicTasks []PeriodicTask
	// Limits restrict the commands of each house and thread. Defaults to those of the zero [Limits].
	Limits Limits
	// Artifacts stores output that a command's result does not hold. Defaults to nil: that output is lost.
	Artifacts *artifact.Artifacts
	// Secrets are those that commands receive, as their environments bind them. Required if one does.
	Secrets *secret.Secrets
	// SpoolDir holds such output while the command runs. Defaults to the directory for temporary files.
	SpoolDir string
	// SpoolSize limits the bytes of all such output on this server, so that commands cannot fill its disk. Long output
	// counts twice, because the sandbox keeps it for the next server too. Beyond the limit, only the first part of an
	// output is kept. Defaults to [DefaultSpoolSize].
	SpoolSize int64
	// Bots is what the turns of bots need. DB, Log, Logger, Tools, Queue, Setting, Park and Files are set by the dispatcher. It may
	// be zero if no turns are requested.
	Bots turn.Config
	// Rosters returns the bots of houses, whose policies decide which chats begin turns. Defaults to nil: none does.
	Rosters Rosters
	// Fetch says what bots may fetch from the internet.
	Fetch Fetch
	// Select returns the work that new entries ask for. Defaults to the turns of bots, if there are Rosters.
	Select Selector

	// EndCommands makes [Dispatcher.Stop] end running commands. By default, those that can outlive this server are left
	// to the next one.
	EndCommands bool

	// sweepEvery defaults to the constant of the same name, and lockGrace to serverLockGrace. Tests change them, because
	// they cannot wait that long, and change the queue's settings with tune.
	sweepEvery, lockGrace time.Duration
	// foreground defaults to the constant of the same name.
	foreground time.Duration
	tune       func(*river.Config)
}

// Dispatcher queues and runs jobs. It is safe for concurrent use.
type Dispatcher struct {
	db       *db.DB
	log      *stream.Log
	threads  *thread.Threads
	boxes    *sandbox.Resolver
	logger   *slog.Logger
	config   Config
	limits   Limits
	spools   *spoolRoom
	shares   *outputShares
	queue    *river.Client[pgx.Tx]
	liveness *liveness
	decider  *decider
	// bots runs the turns of bots.
	bots *turn.Runner
	// working are the workers of commands, and turning those of turns.
	working, turning workers
	// files are the files that bots change at this moment.
	files   pathLocks
	fetcher *fetcher
	// attached are this server's commands that a program reads or writes.
	attached attachments
	// relay connects calls for attached commands with the servers that work on these.
	relay         relay
	stopHeartbeat func()
	endNotices    func()
	// resultCtx ends when results can no longer be written. It is not the context of a job, because the result of a
	// command is also written when the job is cancelled or the queue stops. cancelResults ends it.
	resultCtx     context.Context
	cancelResults context.CancelFunc
}

// Start starts to run jobs, first those of dead servers, until [Dispatcher.Stop].
func Start(ctx context.Context, c Config) (*Dispatcher, error) {
	if c.SpoolDir == "" {
		c.SpoolDir = os.TempDir()
	}
	d := &Dispatcher{db: c.DB, log: c.Log, threads: c.Threads, boxes: c.Boxes, logger: c.Logger, config: c, limits: c.Limits.withDefaults()}
	d.config.sweepEvery, d.config.lockGrace = cmp.Or(c.sweepEvery, sweepEvery), cmp.Or(c.lockGrace, serverLockGrace)
	d.fetcher = newFetcher(c.Fetch)
	d.config.foreground = cmp.Or(c.foreground, foreground)
	d.spools, d.shares = newSpoolRoom(cmp.Or(c.SpoolSize, DefaultSpoolSize)), newOutputShares()
	// The queue runs until it is stopped. With the context of the start, it would stop when the start has ended.
	lasting := context.WithoutCancel(ctx)
	d.resultCtx, d.cancelResults = context.WithCancel(lasting)
	var err error
	if d.liveness, err = startLiveness(ctx, c.DB.Pool(), c.Logger, d.leaveLost); err != nil {
		return nil, err
	}
	if d.endNotices, err = d.startNotices(ctx); err != nil {
		d.liveness.end()
		return nil, err
	}
	bots := c.Bots
	bots.DB, bots.Log, bots.Logger, bots.Tools, bots.Queue, bots.Setting, bots.Park = d.db, d.log, d.logger, d.tools(), d.queueTurn, d.settingOf, d.parkTurnTx
	bots.Pace = d.shares.response
	if c.Artifacts != nil {
		bots.Files = &files{artifacts: c.Artifacts}
	}
	d.bots = turn.NewRunner(bots)
	if d.config.Select == nil && c.Rosters != nil {
		d.config.Select = newChooser(c.DB, c.Rosters, d.limits, c.Bots.Roots).choose
	}
	if d.queue, err = d.newQueue(); err == nil {
		err = d.boxes.TouchMachines(ctx)
	}
	if err == nil {
		d.decider, err = startDeciding(ctx, d)
	}
	if err != nil {
		d.endNotices()
		d.liveness.end()
		return nil, err
	}
	d.stopHeartbeat = d.startHeartbeat(lasting)
	if err = d.queue.Start(lasting); err == nil {
		// Sweep again, because the database may need a moment to notice that a killed server is gone.
		_, err = d.queue.InsertMany(ctx, []river.InsertManyParams{{Args: sweepArgs{}}, {Args: sweepArgs{}, InsertOpts: &river.InsertOpts{ScheduledAt: time.Now().Add(d.config.lockGrace)}}})
	}
	if err != nil {
		return nil, errors.Join(fault.New(fault.Unavailable, "the job queue did not start", "check the database").Because(err), d.Stop(lasting))
	}
	return d, nil
}

// startHeartbeat regularly reports that this server's machine is there, until end is called.
func (d *Dispatcher) startHeartbeat(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var loop sync.WaitGroup
	loop.Go(func() {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := d.boxes.TouchMachines(ctx); err != nil && ctx.Err() == nil {
				d.logger.Warn("cannot report to the other servers that this machine is there; trying again", "error", err)
			}
		}
	})
	return func() { cancel(); loop.Wait() }
}

// Drain starts no more jobs, and waits until this server's jobs have ended or ctx ends, which is no error. Jobs queued
// meanwhile are left to other servers and the next start. Call [Dispatcher.Stop] after it.
func (d *Dispatcher) Drain(ctx context.Context) error {
	if err := d.queue.Stop(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// Running returns how many commands this server works on.
func (d *Dispatcher) Running() int {
	return len(d.working.jobs())
}

// JobCount is how many jobs of a kind are in a state, on all servers together.
type JobCount struct {
	Kind, State string
	N           int64
}

// CountJobs counts the jobs that wait or run, and those that failed for good and are still recorded. Commands that
// wait and that run are counted also when there are none, so that their metrics are 0 instead of missing.
func (d *Dispatcher) CountJobs(ctx context.Context) ([]JobCount, error) {
	rows, err := d.db.Pool().Query(ctx, `
		select kind, case when state in ('available', 'scheduled', 'pending') then 'queued' when state = 'discarded' then 'failed' else state::text end, count(*)
		from `+db.JobSchema+`.river_job where state in ('available', 'scheduled', 'pending', 'retryable', 'running', 'discarded') group by 1, 2 order by 1, 2`)
	if err != nil {
		return nil, db.Explain(err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[JobCount])
	if err != nil {
		return nil, db.Explain(err)
	}
	for _, state := range []string{"queued", "running"} {
		if kind := (commandArgs{}).Kind(); !slices.ContainsFunc(counts, func(c JobCount) bool { return c.Kind == kind && c.State == state }) {
			counts = append(counts, JobCount{Kind: kind, State: state})
		}
	}
	return counts, nil
}

// Stop stops working and waits until ctx ends. Commands that can outlive this server continue, and the next server
// follows them; with [Config.EndCommands] they are ended. The result of a command that ends is written to its thread's
// log. Entries that come in later are still decided until the log closes.
func (d *Dispatcher) Stop(ctx context.Context) error {
	defer d.relay.answering.Wait() // after the end of the notices, which bring further calls
	defer d.endNotices()
	defer d.liveness.end()
	defer d.stopHeartbeat()
	defer d.cancelResults()
	defer time.AfterFunc(resultTimeout, d.cancelResults).Stop()
	return d.queue.StopAndCancel(ctx)
}

func (d *Dispatcher) newQueue() (*river.Client[pgx.Tx], error) {
	crew := river.NewWorkers()
	for _, k := range kinds {
		k.add(crew, d)
	}
	periodic := []*river.PeriodicJob{
		river.NewPeriodicJob(river.PeriodicInterval(d.config.sweepEvery), func() (river.JobArgs, *river.InsertOpts) {
			return sweepArgs{}, nil
		}, nil),
	}
	for _, c := range d.config.PeriodicTasks {
		periodic = append(periodic, c.periodic())
	}
	driver := riverpgxv5.New(d.db.Pool())
	pilot := &fairPilot{server: d.liveness.name(), db: d.db, driver: driver, machines: d.boxes.MachineIDs, machineGone: d.boxes.MachineGone(), shares: map[string]queue{}}
	workers := map[string]river.QueueConfig{}
	for _, q := range queues(d.limits) {
		workers[q.name] = river.QueueConfig{MaxWorkers: q.workers, FetchPollInterval: q.poll}
		if q.house > 0 {
			pilot.shares[q.name] = q
		}
	}
	fair := &fairDriver{driver, pilot}
	settings := &river.Config{
		ID:                   d.liveness.name(),
		Schema:               db.JobSchema,
		Queues:               workers,
		Workers:              crew,
		FetchCooldown:        fetchPause,
		JobTimeout:           -1,
		RescueStuckJobsAfter: maxJobTime,
		Logger:               slog.New(quiet{d.logger.Handler()}),
		PeriodicJobs:         periodic,
		// Reindexing would fail, because the server's role does not own the indexes.
		ReindexerIndexNames: []string{},
	}
	if d.config.tune != nil {
		d.config.tune(settings)
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

// DeleteThread deletes a thread with its log and its children, and has the sandboxes deleted that no other thread uses.
// Deleting a thread that does not exist succeeds.
func (d *Dispatcher) DeleteThread(ctx context.Context, scope db.Scope, id string) error {
	return d.db.In(ctx, scope, func(tx pgx.Tx) error {
		boxes, err := d.threads.DeleteTx(ctx, tx, id)
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

// DestroySandbox is [sandbox.Reaper.Destroy]. A sandbox on another machine is destroyed by that machine's servers.
// Commands and turns that wait for that machine may then run on any, because the sandbox that bound them to it is dead.
func (d *Dispatcher) DestroySandbox(ctx context.Context, scope db.Scope, id string) (sandbox.Sandbox, error) {
	box, err := d.boxes.Destroy(ctx, scope, id)
	away, elsewhere := errors.AsType[*sandbox.OtherMachineError](err)
	if err != nil && !elsewhere || box.Machine == "" {
		return box, err
	}
	return box, d.db.In(ctx, scope, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			update `+db.JobSchema+`.river_job set metadata = metadata - 'machine'
			where queue = any($1) and state = 'available' and args->>'house' = $2 and metadata->>'machine' = $3
			  and (args->>'thread' in (select id from threads where sandbox_id = $4) or metadata->'begun'->>'sandbox' = $4)`,
			[]string{commands, turns}, scope.House, box.Machine, id)
		if err == nil {
			err = errors.Join(wakeTx(ctx, tx, commands), wakeTx(ctx, tx, turns))
		}
		if err == nil && elsewhere {
			_, err = d.queue.InsertTx(ctx, tx, reapArgs{House: scope.House, Sandbox: id}, &river.InsertOpts{Metadata: note{Machine: away.Machine}.json()})
		}
		return err
	})
}

// reapArgs are the arguments of a job that destroys a sandbox if no thread is on it.
type reapArgs struct {
	House   string `json:"house"`
	Sandbox string `json:"sandbox"`
}

// Kind is the job's kind.
func (reapArgs) Kind() string { return "reap_sandbox" }

// InsertOpts uses a separate queue, because providers may be slow and other jobs must not wait for them.
func (reapArgs) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: reaps} }

type reapWorker struct {
	river.WorkerDefaults[reapArgs]
	*Dispatcher
}

// Timeout limits the wait for a provider that does not answer, because it occupies a worker.
func (w *reapWorker) Timeout(*river.Job[reapArgs]) time.Duration { return maintenanceTimeout }

// Work destroys the sandbox. If the provider does not answer, the queue retries with growing pauses.
func (w *reapWorker) Work(ctx context.Context, job *river.Job[reapArgs]) error {
	err := w.boxes.Reap(ctx, db.Scope{House: job.Args.House}, job.Args.Sandbox)
	if away, ok := errors.AsType[*sandbox.OtherMachineError](err); ok {
		return w.handOver(ctx, job.ID, away.Machine)
	}
	return err
}
