package jobs

import (
	"context"
	"slices"

	"github.com/riverqueue/river"
)

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
