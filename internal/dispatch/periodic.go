package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/riverqueue/river"
)

// PeriodicTask is a task that one of all servers runs regularly, and soon after the first of them starts. The task
// itself checks whether there is anything to do.
type PeriodicTask struct {
	Name  string
	Every time.Duration
	Do    func(context.Context) error
}

func (c PeriodicTask) periodic() *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(c.Every), func() (river.JobArgs, *river.InsertOpts) {
		return periodicTaskArgs{c.Name}, nil
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// periodicTaskArgs are the arguments of a job that runs a periodic task.
type periodicTaskArgs struct {
	Name string `json:"name"`
}

// Kind is the job's kind.
func (periodicTaskArgs) Kind() string { return "periodic_task" }

// InsertOpts: after the last attempt of a failed task, the next run follows anyway.
func (periodicTaskArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: maintenance, MaxAttempts: 3}
}

type periodicTaskWorker struct {
	river.WorkerDefaults[periodicTaskArgs]
	*Dispatcher
}

// Timeout limits a task that hangs, because it occupies a worker.
func (w *periodicTaskWorker) Timeout(*river.Job[periodicTaskArgs]) time.Duration {
	return maintenanceTimeout
}

// Work runs the task. It ignores a task that only another version of this program knows, because the next run follows
// anyway, perhaps on a server of that version.
func (w *periodicTaskWorker) Work(ctx context.Context, job *river.Job[periodicTaskArgs]) error {
	i := slices.IndexFunc(w.config.PeriodicTasks, func(c PeriodicTask) bool { return c.Name == job.Args.Name })
	if i < 0 {
		return nil
	}
	return w.config.PeriodicTasks[i].Do(ctx)
}
