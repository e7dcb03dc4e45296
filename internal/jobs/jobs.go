// Package jobs queues work in Postgres and runs it on the servers of an installation. It is the only package that knows
// river, the library of the queue, and river's tables.
//
// A job is queued in the transaction that records the request for it. A worker on some server runs it. If a server
// dies, another one, or its own next start, notices and continues its jobs (sweep.go). A server that was only cut off
// leaves those jobs alone when it is back (held.go). The kind of a job defines its work, and how repeating it is made
// harmless.
//
// Jobs are taken fairly (fair.go): persons take turns, and so do the houses of a person and the threads of a house, each
// within its limits. A part of every server's workers is reserved for persons with nothing running. The queue's rows are
// the only record of what runs and what waits. A server with a free worker counts them and takes the next job under one
// lock, so the limits hold across all servers, and a job that ends in any way frees its slot.
//
// Fairness is ours, because river has none. Three alternatives were considered. One river queue per house costs each
// server a polling loop per house, and shares nothing between threads. Snoozing jobs over a limit delays them by the
// snooze and wakes them in no fair order. A table of our own, from which jobs are queued when they may run, must know
// the servers' free capacity and duplicates the record of what runs. So only the choice of the next jobs is ours. River
// has an extension point for that, its pilot, but does not promise to keep it. If river does not use our pilot, the
// server does not start (errNotFair). Tests name the version of river with which our assumptions were checked.
//
// Sweeps and periodic tasks have a queue and workers of their own.
package jobs

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/trace"
)

const (
	// maxJobTime is longer than any job may run, so that the queue does not consider a running job stuck.
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

	// Tracer records the jobs of all queues but the one for maintenance. Defaults to nil, which records none.
	Tracer *trace.Tracer
	// SweepEvery is the time between two searches for jobs of dead servers, and LockGrace how long a server may be without
	// its lock before it counts as dead. They default to 15 and 3 seconds.
	SweepEvery, LockGrace time.Duration
	// Tune changes the settings of the library. Defaults to nil, which changes nothing.
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
	// started reports that no more kinds may be added.
	started atomic.Bool
	// sweeps are the functions of [Jobs.OnSweep].
	sweeps []func(context.Context) error
	// results ends when results can no longer be written. It is not the context of a job, because the result of a job is
	// also written when the job is cancelled or the server stops. cancelResults ends it.
	results       context.Context
	cancelResults context.CancelFunc
}

// Results returns the context in which workers write the results of jobs. It does not end when a job is cancelled or
// the server stops, but only when this server can wait no longer for the results.
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

// kind returns a kind by its name. A job of a kind that only another version of this program knows is run again, in case a
// server of that version takes it.
func (j *Jobs) kind(name string) *registered {
	if k, ok := j.kinds[name]; ok {
		return k
	}
	return &registered{}
}

// notices are the messages that servers send each other through the database. HTTP would be faster, but then an operator
// would have to give every server an address at which the others reach it. A notice is lost if the receiver's connection
// is broken, so senders repeat it.
type notices struct {
	handlers map[string]func(ctx context.Context, from Server, message []byte) error
	// handling counts the calls of handlers, because the server must not stop before they have returned.
	handling sync.WaitGroup
	stop     func()
}

// end stops receiving notices, and waits until the received ones are handled.
func (n *notices) end() {
	if n.stop != nil {
		n.stop()
	}
	n.handling.Wait()
}
