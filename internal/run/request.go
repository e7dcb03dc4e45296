package run

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/thread"
)

// launchArgs are the arguments of the job that launches a run and follows it. There is one job for each run, so that two who
// ask for the next run of a thread at once get one.
type launchArgs struct {
	House  string `json:"house"`
	Thread string `json:"thread"`
	Epoch  int64  `json:"epoch"`
}

// Kind is the job's kind.
func (launchArgs) Kind() string { return "launch_run" }

// note is what is noted of such a job.
type note struct {
	// Fresh: the session is rebuilt from the log.
	Fresh bool `json:"fresh,omitempty"`
	// Leaves is the sandbox that the thread leaves for a new one with the same files; empty for none.
	Leaves string `json:"leaves,omitempty"`
	// Sandbox is where the run was launched, or may have been; empty before.
	Sandbox string `json:"sandbox,omitempty"`
}

// requestTx queues the next run of a thread, whose row the caller has locked. queued is false if it is queued already. Who delegated
// the thread waits for that run, too.
func (r *Runs) requestTx(ctx context.Context, tx pgx.Tx, th thread.Thread, n note) (queued bool, err error) {
	queued, err = r.config.Jobs.InsertTx(ctx, tx, launchArgs{th.House, th.ID, th.Run.Epoch + 1}, jobs.Options{Note: n})
	if err != nil || !queued || th.AskedBy == "" || th.ParentThread == "" {
		return queued, err
	}
	return true, r.config.Threads.AwaitTx(ctx, tx, th.ID, r.config.Limits.Wait)
}

// Resume says how a thread is continued.
type Resume struct {
	// Fresh continues in a new sandbox that has the files of the old one, with the session rebuilt from the log. Otherwise the run goes on in the sandbox that
	// the thread has, if that is still there.
	Fresh bool
}

// Continue asks for the next run of a driven thread that rests, and returns its epoch. If somebody has said something since the
// agent read last, that is what it goes on with; otherwise it is told to continue, in the name of the scope's agent. For a
// thread that runs, or whose next run is queued, it does nothing. A chat is a [fault.Precondition].
func (r *Runs) Continue(ctx context.Context, scope db.Scope, threadID string, how Resume) (epoch int64, err error) {
	err = r.config.DB.In(ctx, scope, func(tx pgx.Tx) error {
		th, err := r.lockDrivenTx(ctx, tx, threadID)
		if err != nil {
			return err
		}
		if epoch = th.Run.Epoch; th.Status == thread.Running {
			return nil
		}
		epoch++
		n := note{Fresh: how.Fresh}
		if how.Fresh {
			n.Leaves = th.Sandbox
		}
		queued, err := r.requestTx(ctx, tx, th, n)
		if err != nil || !queued {
			return err
		}
		unread, err := r.config.Threads.UnreadTx(ctx, tx, th)
		if err != nil || unread {
			return err
		}
		_, err = r.config.Log.AppendTx(ctx, tx, th.Stream(), entry.NewDraft("", scope.Agent, entry.Chat{Text: "Continue."}))
		return err
	})
	return epoch, err
}

// SaidTx asks for the next run of a driven thread if somebody has said something to its agent, at a position, after its last run
// had ended. What is said while it runs reaches the runner, which follows the log.
func (r *Runs) SaidTx(ctx context.Context, tx pgx.Tx, threadID string, seq int64) error {
	th, err := r.config.Threads.LockTx(ctx, tx, threadID)
	if err != nil || th.Agent == "" || th.Status == thread.Running || seq <= max(th.Run.From, th.Run.Through) {
		return err
	}
	if unread, err := r.config.Threads.UnreadTx(ctx, tx, th); err != nil || !unread { // it was cancelled
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
