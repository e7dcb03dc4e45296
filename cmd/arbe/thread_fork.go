package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadFork(a *app) *cobra.Command {
	var req arbev1.ForkThreadRequest
	cmd := &cobra.Command{
		Use:   "fork [THREAD]",
		Short: "Continue from an entry of a thread in a new thread",
		Long: "Create a thread that shares the log of another thread up to an entry, and continues on its own. It keeps\n" +
			"that log when the other thread is deleted. It has the same driver, environment and tags, but no sandbox: its\n" +
			"first command gets its own. Commands of the other thread are not run again.",
		Example: "  arbe thread fork t7k2m9q4x1ab --at 12\n" +
			"  id=$(arbe thread fork t7k2m9q4x1ab -q)",
		Args:              takes(0, 1, "one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			if req.ThreadId, err = a.threadID(ctx, c, firstOf(args)); err != nil {
				return err
			}
			made, err := c.Threads.ForkThread(ctx, &req)
			if err != nil {
				return err
			}
			t := made.GetThread()
			return a.show(t.GetId(), export.ViewThread(t), t.GetId)
		}),
	}
	flags := cmd.Flags()
	flags.Int64Var(&req.At, "at", 0, "position of the last entry that both share (default: the last one)")
	flags.StringVar(&req.Id, "id", "", "an id of your choice, so that a retry creates nothing twice (a UUID, or 8 to 32 characters, a-z and 0-9)")
	flags.StringVar(&req.Name, "name", "", "its title (default: one that names the other thread)")
	return cmd
}
