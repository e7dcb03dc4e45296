package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The verbs that use the changes of a run.

func threadApply(a *app) *cobra.Command {
	var epoch int64
	cmd := &cobra.Command{
		Use:   "apply [THREAD]",
		Short: "Apply the changes of a run to the files of the parent thread",
		Long: "Apply the changes of a task's last run to the working tree of the thread from which the task was delegated:\n" +
			"completely, or, if there are conflicts, not at all. It is a command in that thread, and arbe exits as it does. THREAD\n" +
			"is the thread of the task, and defaults to $ARBE_THREAD.",
		Example: "  arbe thread apply th4w7q2m9x",
		Args:    takes(0, 1, "one thread"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			done, err := c.Runs.ApplyChanges(ctx, &arbev1.ApplyChangesRequest{ThreadId: id, Epoch: epoch})
			return a.used(ctx, c, usedView{ThreadID: done.GetThreadId()}, done.GetCommand(), err)
		}),
	}
	cmd.Flags().Int64Var(&epoch, "run", 0, "number of the run (default: the last one with changes)")
	return cmd
}

func threadBranch(a *app) *cobra.Command {
	var epoch int64
	cmd := &cobra.Command{
		Use:   "branch [THREAD] [NAME]",
		Short: "Push the changes of a run as a new branch",
		Long: "Push the changes of a task's last run to the repository of its environment, as one commit on a new branch,\n" +
			"with the environment's credential for the repository's host. It changes no existing branch, and\n" +
			"never the default branch. It is a command in the task's thread, and arbe exits as it does. NAME defaults to a name\n" +
			"derived from the task, and THREAD to $ARBE_THREAD.",
		Example: "  arbe thread branch th4w7q2m9x fix/login",
		Args:    takes(0, 2, "a thread and the name of a branch"), ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			req := &arbev1.OpenBranchRequest{ThreadId: id, Epoch: epoch}
			if len(args) > 1 {
				req.Name = args[1]
			}
			done, err := c.Runs.OpenBranch(ctx, req)
			return a.used(ctx, c, usedView{ThreadID: done.GetThreadId(), Branch: done.GetBranch(), URL: done.GetUrl()}, done.GetCommand(), err)
		}),
	}
	cmd.Flags().Int64Var(&epoch, "run", 0, "number of the run (default: the last one with changes)")
	return cmd
}

// usedView says how the changes of a run were used, for programs. Without changes, all fields are empty.
type usedView struct {
	ThreadID  string `json:"thread_id,omitempty"`
	CommandID string `json:"command_id,omitempty"`
	Branch    string `json:"branch,omitempty"`
	URL       string `json:"url,omitempty"`
	ExitCode  int    `json:"exit_code"`
	Output    string `json:"output"`
}

// used waits for the command that uses changes, prints its output, and exits with its code. err is the error of the request.
func (a *app) used(ctx context.Context, c *arbe.Client, v usedView, command *arbev1.Entry, err error) error {
	if err != nil {
		return err
	} else if command == nil {
		return a.show("", v, func() string { return "no run has left changes" })
	}
	result, err := c.Await(ctx, v.ThreadID, command)
	if result == nil {
		return err
	}
	v.CommandID, v.ExitCode, v.Output = command.GetId(), result.ExitCode, result.Output+result.OutputTail
	if result.Error != "" || result.Cancelled {
		v.ExitCode = exitNotRun
		v.Output += result.Error
	}
	if v.ExitCode != 0 {
		v.URL = ""
	}
	err = a.show(v.ThreadID, v, func() string {
		return strings.TrimSpace(fmt.Sprintf("%s\n%s", entry.Printable(strings.TrimSpace(v.Output)), entry.Printable(v.URL)))
	})
	if err == nil && v.ExitCode != 0 {
		err = exitCode(v.ExitCode)
	}
	return err
}
