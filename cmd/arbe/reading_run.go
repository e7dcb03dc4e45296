package main

import (
	"context"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// reachedRun is the progress of a coding agent's runs, as far as a reader of the thread knows. It has no status if no coding
// agent drives the thread.
type reachedRun struct {
	// status is that of the thread: "idle", "running", "completed", "failed" or "cancelled".
	status string
	// ended is the position of the entry that ended the last run; 0 if it was not read.
	ended int64
	// next reports whether another run is about to begin. fresh means that nothing was read since it was determined.
	next, fresh bool
}

// reach returns the present progress of a thread's runs.
func reach(ctx context.Context, c *arbe.Client, thread string) (r reachedRun, err error) {
	found, err := c.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: thread})
	if err == nil && found.GetThread().GetAgentId() != "" {
		r.status = arbev1.Word(found.GetThread().GetStatus())
	}
	return r, err
}

// follows processes an entry, and reports whether a run began or ended with it.
func (r *reachedRun) follows(e *arbev1.Entry) bool {
	r.fresh = false
	payload, _ := export.Decode(e)
	changed, ok := payload.(entry.StatusChanged)
	if !ok || changed.Epoch == 0 || r.status == "" {
		return false
	}
	if r.status = changed.To; r.status != "running" {
		r.ended = e.GetSeq()
	}
	return true
}

// forked forgets the runs of the thread from which this one was forked.
func (r *reachedRun) forked() {
	if r.status != "" {
		r.status, r.ended = "idle", 0
	}
}

// goesOn reports whether a run is in progress, or about to begin because of a waiting message.
func (r *reachedRun) goesOn(ctx context.Context, c *arbe.Client, thread string) (bool, error) {
	if r.status == "" || r.status == "running" || r.fresh {
		return r.status == "running" || r.next, nil
	}
	queue, err := c.Runs.ListQueue(ctx, &arbev1.ListQueueRequest{ThreadId: thread})
	if err != nil {
		return false, err
	}
	// Messages left over from a failed or stopped run do not start a run.
	after := int64(0)
	if r.status == entry.RunFailed || r.status == entry.RunCancelled {
		after = r.ended
	}
	r.fresh, r.next = true, false
	for _, m := range queue.GetMessages() {
		if m.GetSeq() <= after {
			continue
		}
		if r.next, err = beginsRun(ctx, c, thread, m); r.next || err != nil {
			return r.next, err
		}
	}
	return false, nil
}

// beginsRun reports whether a waiting message begins a run. The result of another task, and a message of a program in a
// sandbox, do not: they wait for the next run.
func beginsRun(ctx context.Context, c *arbe.Client, thread string, m *arbev1.QueuedMessage) (bool, error) {
	page, err := c.Entries.List(ctx, &arbev1.ListRequest{ThreadId: thread, After: m.GetSeq() - 1, Limit: 1})
	if err != nil || len(page.GetEntries()) == 0 {
		return false, err
	}
	payload, _ := export.Decode(page.GetEntries()[0])
	chat, ok := payload.(entry.Chat)
	return ok && chat.Run == nil && !chat.Confined, nil
}

// isBoot reports whether a delta is about the preparation of a run.
func isBoot(d *arbev1.Delta) bool {
	_, is := entry.BootOf(d.GetEntryId())
	return is
}

// sayBoot prints which step the launch of a run has reached.
func (a *app) sayBoot(output []byte) {
	for _, step := range entry.BootSteps(output) {
		a.say(step + " …")
	}
}

// statusCode returns the exit code for the status of a run.
func statusCode(status string) error {
	switch status {
	case entry.RunFailed:
		return exitCode(exitBotFailed)
	case entry.RunCancelled:
		return exitCode(exitBotStopped)
	}
	return nil
}
