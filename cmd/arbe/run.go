package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// runTask delegates a task to a coding agent.
func runTask(a *app) *cobra.Command {
	var req arbev1.DelegateRequest
	var house, repo, ref string
	var detach, follow bool
	cmd := &cobra.Command{
		Use:   "run [TASK…] [-]",
		Short: "Give a coding agent a task, and print its work",
		Long: "Give a coding agent a task, in a separate thread and sandbox. Its work is printed here until it\n" +
			"has ended; everyone in the house sees it in the thread. - adds stdin to TASK. Without TASK, all of it is read\n" +
			"from stdin.\n" +
			"\n" +
			"With --repo, the agent works on a git repository: in the house's environment with that repository, or in a new one. With\n" +
			"--thread, that thread delegates the task and gets its result. --detach prints the id of the task's\n" +
			"thread and returns at once. The agent continues when arbe is interrupted: arbe thread stop stops it.\n" +
			"\n" +
			"It exits with 0 when the agent has completed the task, with 10 when it failed, and with 11 when someone stopped it.",
		Example: "  arbe run 'fix the failing test'\n" +
			"  arbe run --repo https://github.com/octocat/hello-world 'fix the build'\n" +
			"  arbe run --agent @codex --detach -q 'upgrade the dependencies'\n" +
			"  arbe run --thread th4w7q2m9x --sandbox parent 'review what changed'",
		Args: isTask,
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			if req.Task, err = a.question(ctx, "arbe run", args); err != nil {
				return err
			}
			if err := a.delegatedFrom(ctx, c, house, &req); err != nil {
				return err
			}
			if repo != "" {
				if req.EnvironmentId, err = a.environmentOfRepo(ctx, c, req.HouseId, repo, ref); err != nil {
					return err
				}
			}
			made, err := c.Runs.Delegate(ctx, &req)
			if err != nil {
				return err
			}
			t := made.GetThread()
			if detach || !follow {
				return a.show(t.GetId(), export.ViewThread(t), t.GetId)
			}
			a.say("the task is in thread " + t.GetId())
			return a.watchRun(ctx, c, t.GetId(), 1)
		}),
	}
	flags := cmd.Flags()
	a.houseFlag(cmd, &house)
	flags.StringVar(&req.Agent, "agent", "", "coding agent, by @handle or id (default @pi)")
	flags.StringVar(&req.EnvironmentId, "env", "", "environment of its sandbox, by id or name (default: the thread's, or the house's)")
	flags.StringVar(&repo, "repo", "", "git repository to work on")
	flags.StringVar(&ref, "ref", "", "its branch, tag or commit (default: its default branch)")
	flags.StringVar(&req.Sandbox, "sandbox", "", "sandbox to work in: an id, or parent (default: a new one)")
	flags.StringVarP(&req.ParentThreadId, "thread", "t", "", "thread that delegates the task (default $ARBE_THREAD, or none)")
	flags.StringVar(&req.Once, "id", "", "an id of your choice for the task, so that a retry delegates nothing twice (a UUID, or 8 to 32 characters, a-z and 0-9)")
	flags.BoolVar(&detach, "detach", false, "print the id of the task's thread, and return at once")
	flags.BoolVarP(&follow, "follow", "f", true, "print the agent's work until it has ended")
	cmd.MarkFlagsMutuallyExclusive("repo", "env")
	cmd.MarkFlagsMutuallyExclusive("detach", "follow")
	a.completes(cmd, "agent", a.bots)
	a.completes(cmd, "env", a.environments)
	a.completes(cmd, "thread", a.threads)
	return cmd
}

// delegatedFrom replaces names in a request by ids.
func (a *app) delegatedFrom(ctx context.Context, c *arbe.Client, house string, req *arbev1.DelegateRequest) (err error) {
	if req.ParentThreadId = first(req.ParentThreadId, a.getenv("ARBE_THREAD")); req.ParentThreadId != "" {
		parent, err := a.getThread(ctx, c, req.ParentThreadId)
		if err != nil {
			return err
		}
		req.ParentThreadId, req.HouseId = parent.GetId(), parent.GetHouseId()
	} else if req.HouseId, err = a.inHouse(ctx, c, house); err != nil {
		return err
	}
	if req.EnvironmentId != "" {
		req.EnvironmentId, err = a.find(ctx, c, environmentKind, req.HouseId, req.EnvironmentId)
	}
	return err
}

// environmentOfRepo returns the oldest environment of a house that has this repository and no other. If the house has no such
// environment, it creates one.
func (a *app) environmentOfRepo(ctx context.Context, c *arbe.Client, house, repo, ref string) (string, error) {
	all, _, err := allEnvironments(ctx, c, house)
	if err != nil {
		return "", err
	}
	for _, e := range all {
		config := e.GetConfig()
		switch one := config.GetRepositories(); {
		case len(one) == 0 && config.GetRepo() == repo && config.GetRef() == ref,
			config.GetRepo() == "" && len(one) == 1 && one[0].GetUrl() == repo && one[0].GetRef() == ref:
			return e.GetId(), nil
		}
	}
	name := nameOfRepo(repo)
	if ref != "" {
		name += " " + ref
	}
	made, err := c.Environments.CreateEnvironment(ctx, &arbev1.CreateEnvironmentRequest{HouseId: house, Name: name, Config: &arbev1.EnvironmentConfig{Repo: repo, Ref: ref}})
	if err != nil {
		return "", err
	}
	a.say("created the environment " + made.GetEnvironment().GetId() + " for " + repo)
	return made.GetEnvironment().GetId(), nil
}

// errRunEnded ends the reading of a run.
var errRunEnded = errors.New("the run has ended")

// watchRun prints a run until it has ended, and returns its outcome as an exit code.
func (a *app) watchRun(ctx context.Context, c *arbe.Client, thread string, epoch int64) error {
	r := &reading{entryPrinter: entryPrinter{app: a, client: c, thread: thread}, follow: true, working: map[string]string{}, ended: map[string]bool{}}
	for event, err := range a.follow(ctx, c, thread, 0) {
		switch {
		case err != nil:
			return err
		case event.GetEntry() != nil:
			if !a.json && !a.quiet {
				err = r.take(ctx, event.GetEntry())
			}
			if err == nil && endsRun(event.GetEntry(), epoch) {
				a.seen(ctx, c, thread, event.GetEntry().GetSeq())
				err = errRunEnded
			}
		case isBoot(event.GetDelta()):
			a.sayBoot(event.GetDelta().GetData())
		case event.GetDelta() != nil && !a.json && !a.quiet:
			err = r.write(ctx, event.GetDelta())
		}
		if errors.Is(err, errRunEnded) {
			r.endLine()
			return a.showRun(ctx, c, thread)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// endsRun reports whether an entry ends a run.
func endsRun(e *arbev1.Entry, epoch int64) bool {
	payload, _ := export.Decode(e)
	s, ok := payload.(entry.StatusChanged)
	return ok && s.Epoch == epoch && s.To != "running"
}

// runView is a run, as JSON.
type runView struct {
	ThreadID   string     `json:"thread_id"`
	Epoch      int64      `json:"epoch"`
	Status     string     `json:"status"`
	Policy     string     `json:"policy,omitempty"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	Phase      string     `json:"failure_phase,omitempty"`
	Error      string     `json:"error,omitempty"`
	Next       string     `json:"next,omitempty"`
	LastLines  string     `json:"last_lines,omitempty"`
	Result     string     `json:"result,omitempty"`
	PatchID    string     `json:"patch_artifact_id,omitempty"`
	CostMicros int64      `json:"cost_micros,omitempty"`
	// TreeMicros is the cost so far of all runs of the thread and of the threads below it.
	TreeMicros int64 `json:"tree_cost_micros,omitempty"`
}

func viewRun(r *arbev1.Run) runView {
	v := runView{ThreadID: r.GetThreadId(), Epoch: r.GetEpoch(), Status: arbev1.Word(r.GetStatus()), Policy: r.GetPolicy(), StartedAt: r.GetStartedAt().AsTime(), Phase: arbev1.Word(r.GetFailurePhase()), Error: r.GetError(),
		Next: r.GetNext(), LastLines: r.GetLastLines(), Result: r.GetResult(), PatchID: r.GetPatchArtifactId(), CostMicros: r.GetUsage().GetCostMicros()}
	if r.GetFinishedAt() != nil {
		v.FinishedAt = new(r.GetFinishedAt().AsTime())
	}
	return v
}

// showRun shows how the last run of a thread ended, and returns its outcome as an exit code.
func (a *app) showRun(ctx context.Context, c *arbe.Client, thread string) error {
	page, err := c.Runs.ListRuns(ctx, &arbev1.ListRunsRequest{ThreadId: thread, PageSize: 1})
	if err != nil {
		return err
	}
	if len(page.GetRuns()) == 0 {
		return fault.New(fault.Precondition, "no coding agent has run in this thread", "see the thread with: arbe thread show "+thread)
	}
	r, tree := page.GetRuns()[0], page.GetTreeCostMicros()
	v := viewRun(r)
	v.TreeMicros = tree
	if err := a.show(thread, v, func() string { return runWords(r) + treeWords(tree-v.CostMicros) }); err != nil {
		return err
	}
	return runCode(r)
}

// runWords describes a run in a few lines.
func runWords(r *arbev1.Run) string {
	text := fmt.Sprintf("run %d %s", r.GetEpoch(), arbev1.Word(r.GetStatus()))
	if r.GetFinishedAt() != nil && r.GetStartedAt() != nil {
		text += " after " + entry.Approximately(r.GetFinishedAt().AsTime().Sub(r.GetStartedAt().AsTime()))
	}
	if r.GetError() != "" {
		text += ": " + entry.Printable(r.GetError())
	}
	if r.GetLastLines() != "" {
		text += "\n" + entry.Printable(r.GetLastLines())
	}
	if r.GetResult() != "" {
		text += "\n\n" + entry.Printable(r.GetResult())
	}
	if u := r.GetUsage(); u != nil {
		text += fmt.Sprintf("\n\nits model read %d tokens and wrote %d", u.GetInput()+u.GetCacheRead()+u.GetCacheWrite(), u.GetOutput())
		if u.GetCostMicros() > 0 {
			text += fmt.Sprintf(", for $%.2f", float64(u.GetCostMicros())/1e6)
		}
	}
	if r.GetPatchArtifactId() != "" {
		text += "\n\nits changes: arbe artifact get " + r.GetPatchArtifactId()
	}
	return text
}

// treeWords describes the cost of other runs of the same thread and of the threads below it.
func treeWords(micros int64) string {
	if micros <= 0 {
		return ""
	}
	return fmt.Sprintf("\n\nearlier runs and delegated tasks cost $%.2f", float64(micros)/1e6)
}

// runCode returns the exit code for a run.
func runCode(r *arbev1.Run) error { return statusCode(arbev1.Word(r.GetStatus())) }
