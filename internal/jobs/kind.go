package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"
)

// Kind is one kind of job. All kinds have the same life cycle:
//
//	queued       it waits for a worker of its queue, in fair order if its queue has limits.
//	running      a server works on it. If only another machine can do it, the server queues it again for that machine.
//	interrupted  its server died or stopped. It is queued again, and its note says how far it was.
//	ended        the server that ends it records the result in the same transaction. It does not end again.
type Kind[A Args] struct {
	// Queue is the name of its queue.
	Queue string
	// Attempts is how often a job that fails is run. Defaults to the library's number.
	Attempts int
	// Unique: a job is queued only if no job with the same arguments waits or runs.
	Unique bool
	// Timeout limits the work on a job. Defaults to no limit: the work sets its own.
	Timeout time.Duration
	// Adopted: if a job's server dies, the next one continues the job instead of starting it again, and that does not count
	// as an attempt. Only Work ends such a job: one that was cancelled as its server left it is continued, too. By default
	// the job is run again, as often as Attempts allows, because that is harmless.
	Adopted bool
	// LeavesLost: a server stops working on a job when it finds that another one has taken it over. By default both
	// continue, because that is harmless.
	LeavesLost bool
	// Work works on a job, until it has ended or ctx ends. If it returns nil, the job ends, unless Work has ended it.
	// If it returns [Left], the job stays as it is in the database. After any other error, the job is run again if
	// there are attempts left.
	Work func(context.Context, *Job[A]) error
}

// Cancelled reports whether a job's context ended because somebody cancelled the job.
func Cancelled(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrCancelled) }

// Stopped reports whether a job's context ended because its server stops.
func Stopped(ctx context.Context) bool { return ctx.Err() != nil && !Cancelled(ctx) }

// Finishing returns a context for a step that a stopping server still finishes, because the next server could not tell how
// far the step came. It has the values of a job's context ctx, and ends when the job is cancelled, or with [Jobs.Results].
func (j *Jobs) Finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	finishing, cancel := j.Lasting(ctx)
	stop := context.AfterFunc(ctx, func() {
		if Cancelled(ctx) {
			cancel()
		}
	})
	return finishing, func() { stop(); cancel() }
}

// Add adds a kind, before [Jobs.Start].
func Add[A Args](j *Jobs, k Kind[A]) {
	var args A
	known := &registered{queue: k.Queue, attempts: k.Attempts, unique: k.Unique, adopted: k.Adopted, leavesLost: k.LeavesLost}
	j.kinds[args.Kind()] = known
	river.AddWorker(j.workers, &worker[A]{jobs: j, kind: k, working: &known.working})
}

// Running returns the ids of the jobs of a kind on which this server works.
func (j *Jobs) Running(kind string) []int64 { return j.kinds[kind].working.jobs() }

// worker runs the jobs of a kind.
type worker[A Args] struct {
	river.WorkerDefaults[A]
	jobs    *Jobs
	kind    Kind[A]
	working *working
}

func (w *worker[A]) Timeout(*river.Job[A]) time.Duration {
	if w.kind.Timeout == 0 {
		return -1
	}
	return w.kind.Timeout
}

func (w *worker[A]) Work(ctx context.Context, row *river.Job[A]) error {
	ctx, end, alone := w.working.begin(ctx, row.ID)
	if !alone {
		return Left
	}
	defer end()
	ctx, span := w.jobs.traced(ctx, row.JobRow)
	err := w.kind.Work(ctx, &Job[A]{ID: row.ID, Args: row.Args, row: row, jobs: w.jobs})
	if errors.Is(err, Left) {
		span.End(nil)
	} else {
		span.End(err)
	}
	return err
}
