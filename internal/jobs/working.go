package jobs

import (
	"context"
	"sync"
)

// working are this server's workers for one kind of job, by the ids of their jobs. The zero value is ready to use.
type working struct{ byJob sync.Map }

type workerOf struct {
	over   chan struct{} // closed when it no longer works on the job
	cancel context.CancelCauseFunc
}

// begin registers a worker for a job. If this server was mistaken for dead, the job was queued again, and this server
// may take it although its earlier worker still works on it. Two workers must not work on one job: begin then waits for
// the earlier worker, and alone is false. Otherwise the caller works with the returned context, and then calls end.
func (w *working) begin(ctx context.Context, job int64) (_ context.Context, end func(), alone bool) {
	ours, cancel := context.WithCancelCause(ctx)
	this := workerOf{make(chan struct{}), cancel}
	if earlier, there := w.byJob.LoadOrStore(job, this); there {
		cancel(nil)
		// The queue knows only the later worker, so that one passes a cancellation on.
		stop := context.AfterFunc(ctx, func() { earlier.(workerOf).cancel(context.Cause(ctx)) })
		<-earlier.(workerOf).over
		stop()
		return nil, nil, false
	}
	return ours, func() {
		w.byJob.Delete(job)
		close(this.over)
		cancel(nil)
	}, true
}

// cancel ends the context of a job's worker, if there is one.
func (w *working) cancel(job int64, cause error) {
	if found, there := w.byJob.Load(job); there {
		found.(workerOf).cancel(cause)
	}
}

// jobs returns the ids of the jobs that have a worker.
func (w *working) jobs() (ids []int64) {
	w.byJob.Range(func(id, _ any) bool {
		ids = append(ids, id.(int64))
		return true
	})
	return ids
}
