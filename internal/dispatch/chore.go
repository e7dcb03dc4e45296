package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/riverqueue/river"
)

// Chore is something that one of all servers does now and then, and soon after the first of them starts. It
// says by itself whether there is anything to do.
type Chore struct {
	Name  string
	Every time.Duration
	Do    func(context.Context) error
}

func (c Chore) periodic() *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(c.Every), func() (river.JobArgs, *river.InsertOpts) {
		return choreArgs{c.Name}, nil
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// choreArgs asks to do a chore.
type choreArgs struct {
	Name string `json:"name"`
}

// Kind names the job.
func (choreArgs) Kind() string { return "chore" }

// InsertOpts: a chore that failed is followed by the next one.
func (choreArgs) InsertOpts() river.InsertOpts { return river.InsertOpts{MaxAttempts: 3} }

type choreWorker struct {
	river.WorkerDefaults[choreArgs]
	*Dispatcher
}

// Work does the chore. One that only another version of this program knows is nobody's.
func (w *choreWorker) Work(ctx context.Context, job *river.Job[choreArgs]) error {
	i := slices.IndexFunc(w.chores, func(c Chore) bool { return c.Name == job.Args.Name })
	if i < 0 {
		return nil
	}
	return w.chores[i].Do(ctx)
}
