package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// This file finds runs that have gone silent: when somebody reads a thread, on request, and regularly. The log alone
// decides whether a run is dead or still thinking, because a live runner posts a heartbeat every five seconds.

const (
	// SweepEvery is how often all runs are checked.
	SweepEvery = 15 * time.Second
	// probeTimeout limits a check of a sandbox, and readTimeout one because somebody reads its thread.
	probeTimeout, readTimeout = 5 * time.Second, 2 * time.Second
)

// Reconciled is the result of checking a thread.
type Reconciled struct {
	// From and To are the statuses before and after. They are equal if nothing was wrong.
	From, To thread.Status
	// Reason describes the problem; empty if nothing was wrong.
	Reason string
}

// Reconcile checks a thread. It ends the run if the log says that it has ended, if its sandbox is gone, or if its
// runner has been silent for too long. It leaves a thread that is not running as it is.
func (r *Runs) Reconcile(ctx context.Context, scope db.Scope, threadID string) (done Reconciled, err error) {
	th, e, found, err := r.judge(ctx, scope, threadID)
	done = Reconciled{From: th.Status, To: th.Status}
	if err != nil || !found {
		return done, err
	}
	over, err := r.finish(ctx, th.House, th.ID, th.Run.Epoch, e)
	if err == nil && !over {
		done.To, done.Reason = e.to, cmp.Or(e.err, "its runner had reported its end")
		r.posts.forget(th.ID)
	}
	return done, err
}

// Judge returns the result that [Runs.Reconcile] would have, and changes nothing.
func (r *Runs) Judge(ctx context.Context, scope db.Scope, threadID string) (done Reconciled, err error) {
	th, e, found, err := r.judge(ctx, scope, threadID)
	done = Reconciled{From: th.Status, To: th.Status}
	if found {
		done.To, done.Reason = e.to, cmp.Or(e.err, "its runner had reported its end")
	}
	return done, err
}

// Fresh is for readers of a thread. It reconciles a silent run and returns the thread's new state. If that takes too
// long or fails, it returns the thread unchanged. It limits how often it checks, however often a thread is read.
func (r *Runs) Fresh(ctx context.Context, scope db.Scope, th thread.Thread) thread.Thread {
	if th.Status != thread.Running || !r.sights.mayLook(th, time.Now()) {
		return th
	}
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if done, err := r.Reconcile(bounded, scope, th.ID); err != nil || done.From == done.To {
		return th
	}
	if after, err := r.config.Threads.Get(ctx, scope, th.ID); err == nil {
		return after
	}
	return th
}

// judge returns a thread, and the end of its run if it found that the run is over.
func (r *Runs) judge(ctx context.Context, scope db.Scope, threadID string) (th thread.Thread, e end, found bool, err error) {
	th, err = r.config.Threads.Get(ctx, scope, threadID)
	if err != nil || th.Status != thread.Running {
		return th, e, false, err
	}
	still := r.sights.still(th, time.Now())
	if max(still, time.Since(heard(th))) < quiet {
		return th, e, false, nil
	}
	e, found, err = r.look(ctx, scope, th, still)
	return th, e, found, err
}

// look checks whether a silent run has ended. still is how long this server has seen nothing new from it.
func (r *Runs) look(ctx context.Context, scope db.Scope, th thread.Thread, still time.Duration) (e end, found bool, err error) {
	if report, id, ok, err := r.reported(ctx, th); err != nil || ok {
		e = finished(th.Agent, id, report)
		e.report = e.report[1:] // the log already has it
		return e, ok, err
	}
	if th.Sandbox != "" {
		bounded, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		alive, err := r.config.Boxes.Confirm(bounded, scope, th.Sandbox)
		_, elsewhere := errors.AsType[*sandbox.OtherMachineError](err)
		switch {
		case fault.CodeOf(err) == fault.NotFound, err == nil && alive == sandbox.Gone:
			return lost(th.Run.Epoch, "its sandbox is gone", ""), true, nil
		case err != nil && !elsewhere && ctx.Err() != nil:
			return e, false, err
		}
	}
	l := r.config.Limits
	switch {
	case th.Run.HeartbeatAt.IsZero() && still > l.Start:
		return lost(th.Run.Epoch, fmt.Sprintf("its runner did not report within %s", l.Start), ""), true, nil
	case !th.Run.HeartbeatAt.IsZero() && still > l.Silence:
		return lost(th.Run.Epoch, fmt.Sprintf("its runner has been silent for %s", entry.Approximately(max(still, l.Silence))), ""), true, nil
	}
	return e, false, nil
}

// reported returns a run's report if the log has one although the row says that the run is running.
func (r *Runs) reported(ctx context.Context, th thread.Thread) (report entry.RunFinished, id string, ok bool, err error) {
	for after := th.Run.From; after < th.Tail; {
		entries, _, err := r.config.Log.Read(ctx, th.Stream(), stream.Range{After: after, Limit: 1000})
		if err != nil || len(entries) == 0 {
			return report, "", false, err
		}
		for _, at := range entries {
			if report, ok := entry.As[entry.RunFinished](at); ok && report.Epoch == th.Run.Epoch {
				return report, at.ID, true, nil
			}
		}
		after = entries[len(entries)-1].Seq
	}
	return report, "", false, nil
}

// Sweep checks all runs. It continues after an error, because that may affect only one run.
func (r *Runs) Sweep(ctx context.Context) (failed error) {
	running := map[string]bool{}
	for after := ""; ; {
		list, err := r.config.Threads.RunningAfter(ctx, after, sweepPage)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, th := range list {
			after, running[th.ID] = th.ID, true
			if _, err := r.Reconcile(ctx, db.Scope{House: th.House}, th.ID); err != nil && fault.CodeOf(err) != fault.NotFound {
				failed = errors.Join(failed, err)
			}
			if err := r.expire(ctx, th.House, th.ID); err != nil && fault.CodeOf(err) != fault.NotFound {
				failed = errors.Join(failed, err)
			}
		}
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
		if len(list) < sweepPage {
			r.sights.keep(running)
			return errors.Join(failed, r.endWaits(ctx))
		}
	}
}
