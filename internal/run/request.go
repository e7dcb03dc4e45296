package run

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/thread"
)

// launchArgs are the arguments of the job that launches and follows a run. Each run has one job, so two concurrent
// requests for a thread's next run get the same one.
type launchArgs struct {
	House  string `json:"house"`
	Thread string `json:"thread"`
	Epoch  int64  `json:"epoch"`
}

// Kind is the job's kind.
func (launchArgs) Kind() string { return "launch_run" }

// launchesTx returns the jobs of a thread's present and next run.
func (r *Runs) launchesTx(ctx context.Context, tx pgx.Tx, threadID string) ([]jobs.Row, error) {
	return r.config.Jobs.FindTx(ctx, tx, jobs.Filter{Kind: launchArgs{}.Kind(), Args: map[string]string{"thread": threadID}, Most: 10})
}

// note is the note of such a job.
type note struct {
	// Fresh means that the session is rebuilt from the log.
	Fresh bool `json:"fresh,omitempty"`
	// Leaves is the sandbox that the thread leaves for a new one with the same files; empty for none.
	Leaves string `json:"leaves,omitempty"`
	// Sandbox is the sandbox in which the run was launched, or may have been; empty before the launch.
	Sandbox string `json:"sandbox,omitempty"`
	// Policy is the policy that starts the run. Defaults to that of [policyOf].
	Policy entry.Reason `json:"policy,omitempty"`
}

// policyOf returns the policy that starts the next run of a thread that nobody continues explicitly: its task was
// delegated, or a message came.
func policyOf(th thread.Thread) entry.Reason {
	if th.Run.Epoch == 0 && th.AskedBy != "" {
		return entry.ReasonDelegated
	}
	return entry.ReasonDriver
}

// requestTx queues the next run of a thread, whose row the caller has locked. queued is false if it is already
// queued. A bot that delegated the thread waits for that run too.
func (r *Runs) requestTx(ctx context.Context, tx pgx.Tx, th thread.Thread, n note) (queued bool, err error) {
	n.Policy = cmp.Or(n.Policy, policyOf(th))
	queued, err = r.config.Jobs.InsertTx(ctx, tx, launchArgs{th.House, th.ID, th.Run.Epoch + 1}, jobs.Options{Note: n})
	if err != nil || !queued || th.AskedBy == "" || th.ParentThread == "" {
		return queued, err
	}
	return true, r.config.Threads.AwaitTx(ctx, tx, th.ID, r.config.Limits.Wait)
}

// Resume says how a thread is continued.
type Resume struct {
	// Fresh continues in a new sandbox that has the old one's files, with the session rebuilt from the log. Otherwise
	// the run continues in the thread's sandbox, if it still exists.
	Fresh bool
	// Agent is the id or the handle of the bot that continues. Defaults to the bot that drives the thread. Another bot
	// continues in a child that begins with the thread's log, and has a new sandbox with the same files.
	Agent string
	// Task is the message for another bot. Defaults to "Continue." Sandbox is the sandbox in which it works instead of a
	// new one, as in [Task]. ID makes a retry harmless, as there.
	Task, Sandbox, ID string
}

// Continued is the run with which a thread is continued.
type Continued struct {
	Thread string
	Epoch  int64
}

// carryOn is the message for an agent that continues without a message of its own.
const carryOn = "Continue."

// Continue requests the next run of an idle driven thread. The agent continues with the messages that it has not read.
// If there are none, the scope's agent posts "Continue." It does nothing if the thread is running or its next run is
// queued. A chat is a [fault.Precondition].
//
// For another bot, one transaction creates the child, records it in the thread and queues its first run. If the thread
// is running or its next run is queued, the error is a [fault.Precondition]. Its other errors are those of
// [Runs.Spawn].
func (r *Runs) Continue(ctx context.Context, scope db.Scope, threadID string, how Resume) (c Continued, err error) {
	err = r.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		if how.Agent != "" {
			if err := r.config.Threads.LockDelegationsTx(ctx, tx, threadID); err != nil {
				return err
			}
		}
		th, err := r.lockDrivenTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		if how.Agent != "" {
			b, err := r.coderTx(ctx, tx, scope, how.Agent)
			if err != nil {
				return err
			}
			if b.ID != th.Agent {
				c, err = r.continueElsewhereTx(ctx, tx, scope, th, how)
				return err
			}
		}
		if how.Task != "" || how.Sandbox != "" {
			return fault.New(fault.Invalid, "task, sandbox: these are only for another agent than the thread's own", "name another agent, or post a message in the thread")
		}
		c, err = r.continueTx(ctx, tx, scope, th, how)
		return err
	})
	return c, err
}

// continueTx is [Runs.Continue] for the thread's own bot.
func (r *Runs) continueTx(ctx context.Context, tx pgx.Tx, scope db.Scope, th thread.Thread, how Resume) (Continued, error) {
	c := Continued{th.ID, th.Run.Epoch}
	if th.Status == thread.Running {
		return c, nil
	}
	c.Epoch++
	n := note{Fresh: how.Fresh, Policy: entry.ReasonContinued}
	if how.Fresh {
		n.Leaves = th.Sandbox
	}
	queued, err := r.requestTx(ctx, tx, th, n)
	if err != nil || !queued {
		return c, err
	}
	unread, err := r.config.Threads.UnreadTx(ctx, tx, th)
	if err != nil || unread {
		return c, err
	}
	_, err = r.config.Log.AppendTx(ctx, tx, th.Stream(), entry.NewDraft("", scope.Agent, entry.Chat{Text: carryOn}))
	return c, err
}

// SaidTx requests the next run of a driven thread if the message at seq came after its last run ended. Messages that
// come during a run reach the runner, which follows the log.
func (r *Runs) SaidTx(ctx context.Context, tx pgx.Tx, threadID string, seq int64) error {
	th, err := r.config.Threads.LockTx(ctx, tx, threadID)
	if err != nil || th.Agent == "" || th.Status == thread.Running || seq <= max(th.Run.From, th.Run.Through) {
		return err
	}
	if unread, err := r.config.Threads.UnreadTx(ctx, tx, th); err != nil || !unread { // the message was cancelled
		return err
	}
	_, err = r.requestTx(ctx, tx, th, note{})
	return err
}

// lockDrivenTx locks and returns a thread that a bot drives.
func (r *Runs) lockDrivenTx(ctx context.Context, tx pgx.Tx, threadID string) (thread.Thread, error) {
	th, err := r.config.Threads.LockTx(ctx, tx, threadID)
	if err == nil && th.Agent == "" {
		err = fault.New(fault.Precondition, "no coding agent drives this thread", "delegate a task from it with: arbe run").WithReason(fault.NoCodingAgent)
	}
	return th, err
}
