package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The verbs of threads that coding agents drive.

func threadResult(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "result [THREAD]",
		Short: "Show how the last run of a coding agent ended",
		Long: "Show the result of a thread's last run, or why it has none. THREAD\n" +
			"defaults to $ARBE_THREAD. It exits with 0 if the run was completed or continues, with 10 if it failed, and with 11\n" +
			"if someone stopped it.",
		Example: "  arbe thread result th4w7q2m9x --json | jq -r .result",
		Args:    takes(0, 1, "one thread"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			return a.showRun(ctx, c, id)
		}),
	}
}

func threadResume(a *app) *cobra.Command {
	var req arbev1.ContinueRunRequest
	var follow bool
	cmd := &cobra.Command{
		Use:   "resume [THREAD]",
		Short: "Let a thread's coding agent, or another one, continue its work",
		Long: "Let the coding agent that drives a thread continue, with the messages since its last run. Anyone in the house may,\n" +
			"hours later and on any machine. With --fresh it continues in a new sandbox, with its session rebuilt from the log.\n" +
			"THREAD defaults to $ARBE_THREAD.\n" +
			"\n" +
			"With --agent, another coding agent continues, in a new thread below THREAD. It knows the conversation so far, and works\n" +
			"in a new sandbox with the same files.",
		Example: "  arbe thread resume th4w7q2m9x --follow\n" +
			"  arbe thread resume th4w7q2m9x --agent @codex --task 'find out why the test still fails'",
		Args: takes(0, 1, "one thread"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			req.ThreadId = id
			done, err := c.Runs.ContinueRun(ctx, &req)
			if err != nil {
				return err
			}
			id = first(done.GetThreadId(), id)
			if follow {
				return a.watchRun(ctx, c, id, done.GetEpoch())
			}
			return a.show(id, runView{ThreadID: id, Epoch: done.GetEpoch(), Status: "running"}, func() string { return fmt.Sprintf("run %d of thread %s", done.GetEpoch(), id) })
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&req.Fresh, "fresh", false, "continue in a new sandbox")
	flags.StringVar(&req.Agent, "agent", "", "coding agent that continues, by @handle or id (default: the thread's)")
	flags.StringVar(&req.Task, "task", "", "task of another agent (default: to continue the work)")
	flags.StringVar(&req.Sandbox, "sandbox", "", "sandbox of another agent: an id, or parent for the thread's (default: a new one with its files)")
	flags.StringVar(&req.Once, "id", "", "an id of your choice, so that a retry with another agent begins nothing twice (a UUID, or 8 to 32 characters, a-z and 0-9)")
	flags.BoolVarP(&follow, "follow", "f", false, "print the agent's work until it has ended")
	a.completes(cmd, "agent", a.bots)
	return cmd
}

// reconciledView is the result of checking a thread, as JSON.
type reconciledView struct {
	ThreadID string `json:"thread_id"`
	From     string `json:"from"`
	To       string `json:"to"`
	Reason   string `json:"reason,omitempty"`
}

func viewReconciled(id string, r *arbev1.ReconcileThreadResponse) reconciledView {
	return reconciledView{id, arbev1.Word(r.GetFrom()), arbev1.Word(r.GetTo()), r.GetReason()}
}

func (v reconciledView) words() string {
	if v.From == v.To {
		return v.ThreadID + ": " + v.To + ", no change"
	}
	return fmt.Sprintf("%s: %s → %s: %s", v.ThreadID, v.From, v.To, entry.Printable(v.Reason))
}

func threadReconcile(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "reconcile [THREAD]",
		Short: "Check now whether the run of a thread has ended without a report",
		Long: "Check now whether the run of a thread has ended without a report, as servers do regularly: its sandbox is gone, or its\n" +
			"runner has been silent for too long. THREAD defaults to $ARBE_THREAD.",
		Args: takes(0, 1, "one thread"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			done, err := c.Runs.ReconcileThread(ctx, &arbev1.ReconcileThreadRequest{ThreadId: id})
			if err != nil {
				return err
			}
			v := viewReconciled(id, done)
			return a.show(id, v, v.words)
		}),
	}
}

func threadPrune(a *app) *cobra.Command {
	var house string
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Check all running threads of a house for runs that have ended without a report",
		Long: "Check all running threads of a house for runs that have ended without a report, and end them. With --dry-run it\n" +
			"prints what it would do, and does nothing.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			id, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			threads, _, err := listThreads(ctx, c, &arbev1.ListThreadsRequest{HouseId: id, Status: arbev1.ThreadStatus_THREAD_STATUS_RUNNING}, 0)
			if err != nil {
				return err
			}
			var rows []row
			for _, t := range threads {
				done, err := c.Runs.ReconcileThread(ctx, &arbev1.ReconcileThreadRequest{ThreadId: t.GetId(), DryRun: dry})
				if err != nil {
					return err
				}
				v := viewReconciled(t.GetId(), done)
				rows = append(rows, row{t.GetId(), v, []string{v.ThreadID, v.From, v.To, entry.Printable(v.Reason)}})
			}
			return a.list([]string{"THREAD", "FROM", "TO", "REASON"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "change nothing")
	return cmd
}

// The exit codes of arbe thread diagnose.
const exitRunFailed, exitRunStalled = 2, 3

// stalledAfter is how long a run may take to begin before it counts as stalled, and silentAfter how long one that has begun may
// be silent. A running agent sends heartbeats every few seconds, even if the log shows nothing. The server ends a run that has
// been silent for run_silence, 90 seconds by default.
const stalledAfter, silentAfter = 2 * time.Minute, time.Minute

// diagnosisView is the state of a thread's last run, as JSON.
type diagnosisView struct {
	ThreadID string   `json:"thread_id"`
	Status   string   `json:"status"`
	Stage    string   `json:"stage"`
	Why      string   `json:"why,omitempty"`
	Next     string   `json:"next,omitempty"`
	Run      *runView `json:"run,omitempty"`
}

func threadDiagnose(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "diagnose [THREAD]",
		Short: "Show the state of a coding agent's last run, the reason, and what to do",
		Long: "Show the state of the last run of the coding agent that drives a thread, the reason, and what to do. THREAD defaults to\n" +
			"$ARBE_THREAD. It exits with 0 if all is well, with 2 if the run failed, and with 3 if nothing happens although it\n" +
			"should.",
		Args: takes(0, 1, "one thread"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			t, err := a.getThread(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			if _, err := c.Runs.ReconcileThread(ctx, &arbev1.ReconcileThreadRequest{ThreadId: t.GetId()}); err != nil {
				return err
			}
			page, err := c.Runs.ListRuns(ctx, &arbev1.ListRunsRequest{ThreadId: t.GetId(), PageSize: 1})
			if err != nil {
				return err
			}
			v, code := diagnosis(t, page.GetRuns())
			err = a.show(t.GetId(), v, func() string {
				text := v.Status + ": " + v.Stage
				if v.Why != "" {
					text += "\n" + entry.Printable(v.Why)
				}
				if v.Next != "" {
					text += "\nnext: " + entry.Printable(v.Next)
				}
				return text
			})
			if err == nil && code != 0 {
				return exitCode(code)
			}
			return err
		}),
	}
}

// diagnosis returns the state of a thread, and the exit code for it.
func diagnosis(t *arbev1.Thread, runs []*arbev1.Run) (v diagnosisView, code int) {
	v = diagnosisView{ThreadID: t.GetId(), Status: arbev1.Word(t.GetStatus())}
	silent := time.Since(t.GetLastActivityAt().AsTime())
	if t.GetLastRun().GetHeartbeatAt() != nil {
		silent = min(silent, time.Since(t.GetLastRun().GetHeartbeatAt().AsTime()))
	}
	switch {
	case t.GetAgentId() == "":
		v.Stage = "no coding agent drives this thread"
	case len(runs) == 0 && silent > stalledAfter:
		v.Stage, v.Why, v.Next = "dispatch", "the run has not begun for "+silent.Round(time.Second).String(), "see what its sandbox does on the thread's page; arbe x runs a command in it"
		code = exitRunStalled
	case len(runs) == 0:
		v.Stage = "dispatch: the sandbox and the agent are being prepared"
	default:
		r := runs[0]
		v.Run = new(viewRun(r))
		v.Status, v.Stage = arbev1.Word(r.GetStatus()), first(arbev1.Word(r.GetFailurePhase()), "execution")
		switch {
		case v.Status == "failed":
			v.Why, v.Next, code = r.GetError(), first(r.GetNext(), "arbe thread resume "+t.GetId()), exitRunFailed
		case v.Status == "running" && silent > silentAfter:
			v.Why, v.Next, code = "its runner has been silent for "+silent.Round(time.Second).String(), "wait, or stop it: arbe thread stop "+t.GetId(), exitRunStalled
		case v.Status != "running" && r.GetFailurePhase() != 0:
			v.Why, v.Next = r.GetError(), r.GetNext()
		case v.Status != "running":
			v.Stage = "ended"
		}
	}
	return v, code
}
