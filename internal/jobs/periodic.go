package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/riverqueue/river"
)

// Task is a task that one of all servers runs regularly, and soon after the first of them starts. The task itself checks
// whether there is anything to do.
type Task struct {
	Name  string
	Every time.Duration
	Do    func(context.Context) error
}

func (j *Jobs) periodic(t Task) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(t.Every), func() (river.JobArgs, *river.InsertOpts) {
		return taskArgs{t.Name}, j.kinds[taskArgs{}.Kind()].options()
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// taskArgs are the arguments of a job that runs a periodic task.
type taskArgs struct {
	Name string `json:"name"`
}

// Kind is the job's kind.
func (taskArgs) Kind() string { return "periodic_task" }

// runTask runs a task. It ignores a task that only another version of this program knows, because the next run follows
// anyway, perhaps on a server of that version.
func (j *Jobs) runTask(ctx context.Context, job *Job[taskArgs]) error {
	i := slices.IndexFunc(j.config.Tasks, func(t Task) bool { return t.Name == job.Args.Name })
	if i < 0 {
		return nil
	}
	return j.config.Tasks[i].Do(ctx)
}
