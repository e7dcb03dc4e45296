package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadFork makes a thread of the beginning of another one.
func threadFork(a *app) *cobra.Command {
	var req arbev1.ForkThreadRequest
	cmd := &cobra.Command{
		Use:   "fork [ID]",
		Short: "Go on from a place in a thread, in a thread of its own",
		Long: "Make a thread that begins as another one is up to an entry, and goes on by itself. It stays\n" +
			"whole when that one is deleted. It has the same driver, environment and tags, but no sandbox:\n" +
			"its first command makes it one of its own. Commands of the other thread are not run again.",
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
			return a.show(t.GetId(), viewThread(t), t.GetId)
		}),
	}
	flags := cmd.Flags()
	flags.Int64Var(&req.At, "at", 0, "position of the last entry to take along (default the end)")
	flags.StringVar(&req.Id, "id", "", "your own word for the fork, so that a repeat creates nothing (8 to 32 of a-z0-9)")
	flags.StringVar(&req.Name, "name", "", "its title (default: that it is a fork of the other)")
	return cmd
}
