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
		Short: "Cancel a command of a thread, or all that run or wait",
		Long: fmt.Sprintf("Cancel one command of a thread, or all that run or wait. COMMAND is the id of the command's entry. THREAD\n"+
			"defaults to $ARBE_THREAD. The command receives SIGINT, after %s SIGTERM, and after %s more SIGKILL,\n"+
			"together with everything that it started. The thread shows how it ended.", entry.CancelGrace, entry.CancelGrace),
		Example: "  arbe thread cancel th4w7q2m9x\n" +
			"  arbe thread cancel th4w7q2m9x 2f0c7a52-8f3e-4a52-9d0e-6f1f7f2a7c11",
		Args:              takes(0, 2, "a thread and a command"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			req := &arbev1.CancelCommandRequest{All: true}
			named := ""
			switch len(args) {
			case 2:
				if req.All, req.CommandId = false, args[1]; args[1] == "" {
					return fault.New(fault.Invalid, "the command's id is empty", "give the id of a command entry, or none for all")
				}
				fallthrough
			case 1:
				named = args[0]
			}
			if req.ThreadId, err = a.threadID(ctx, c, named); err != nil {
				return err
			}
			if kill {
				req.Signal = arbev1.Signal_SIGNAL_KILL
			}
			done, err := c.Threads.CancelCommand(ctx, req)
			if err != nil {
				return err
			}
			cancelled := done.GetCommandIds()
			if !req.All {
				cancelled = []string{req.CommandId}
			}
			if len(cancelled) == 0 {
				a.say("no command runs or waits there")
			}
			rows := make([]row, len(cancelled))
			for i, id := range cancelled {
				rows[i] = row{id: id, view: commandView{ID: id}, columns: []string{id}}
			}
			return a.list([]string{"CANCELLED"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&kill, "kill", false, "send SIGKILL at once")
	return cmd
}

// commandView is a command as programs see it in a list.
type commandView struct {
	ID string `json:"id"`
}
