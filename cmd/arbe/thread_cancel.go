package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadCancel(a *app) *cobra.Command {
	var kill bool
	cmd := &cobra.Command{
		Use:   "cancel [THREAD] [COMMAND]",
		Short: "Cancel the run of a thread and its commands, or one command",
		Long: fmt.Sprintf("Cancel one command of a thread, or all running and waiting ones and the run of its coding agent.\n"+
			"COMMAND is the id of the command's entry. THREAD defaults to $ARBE_THREAD. The command receives SIGINT,\n"+
			"after %s SIGTERM, and after %s more SIGKILL, together with everything that it started. A coding agent ends\n"+
			"with its child processes, and the changes of its working tree are kept. Tasks that the thread has delegated\n"+
			"go on in their own threads. The thread shows how it ended.", entry.CancelGrace, entry.CancelGrace),
		Example: "  arbe thread cancel th4w7q2m9x\n" +
			"  arbe thread cancel th4w7q2m9x 2f0c7a52-8f3e-4a52-9d0e-6f1f7f2a7c11",
		Args:              takes(0, 2, "a thread and a command"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			req := &arbev1.CancelCommandRequest{All: len(args) < 2}
			if !req.All {
				if req.CommandId = args[1]; req.CommandId == "" {
					return fault.New(fault.Invalid, "the command's id is empty", "give the id of a command's entry, or leave it out for all commands")
				}
			}
			if req.ThreadId, err = a.threadID(ctx, c, firstOf(args)); err != nil {
				return err
			}
			if kill {
				req.Signal = arbev1.Signal_SIGNAL_KILL
			}
			return a.cancel(ctx, c, req)
		}),
	}
	cmd.Flags().BoolVar(&kill, "kill", false, "send SIGKILL at once")
	return cmd
}

// cancel cancels a command, or the run of a thread and all of its commands, and prints what it cancelled.
func (a *app) cancel(ctx context.Context, c *arbe.Client, req *arbev1.CancelCommandRequest) (err error) {
	stopped := false
	if req.All {
		if stopped, err = cancelRun(ctx, c, req.ThreadId); err != nil {
			return err
		}
	}
	done, err := c.Threads.CancelCommand(ctx, req)
	if err != nil {
		return err
	}
	if stopped {
		a.say("the run is cancelled")
	}
	cancelled := done.GetCommandIds()
	if !req.All {
		cancelled = []string{req.CommandId}
	}
	if len(cancelled) == 0 && !stopped {
		a.say("nothing is running or waiting there")
	}
	rows := make([]row, len(cancelled))
	for i, id := range cancelled {
		rows[i] = row{id: id, view: commandView{ID: id}, columns: []string{id}}
	}
	return a.list([]string{"CANCELLED"}, rows)
}

// cancelRun cancels the run of a thread, and reports whether the thread had one. A thread without a coding agent has no runs.
func cancelRun(ctx context.Context, c *arbe.Client, threadID string) (stopped bool, err error) {
	done, err := c.Runs.CancelRun(ctx, &arbev1.CancelRunRequest{ThreadId: threadID})
	if fault.Reason(arbe.Reason(err)) == fault.NoCodingAgent {
		return false, nil
	}
	return done.GetStopped(), err
}

// commandView is a command of a list, as JSON.
type commandView struct {
	ID string `json:"id"`
}
