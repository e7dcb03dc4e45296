package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadRetry(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "retry THREAD TURN",
		Short: "Let a bot try its answer again",
		Long: "Let a bot answer again the question of a turn that has ended. TURN is the turn_id of the\n" +
			"entries with which the turn began and ended. arbe thread entries read shows the new answer.",
		Example:           "  arbe thread retry th4w7q2m9x 5k2m8q1d7xwz",
		Args:              takes(2, 2, "a thread and a turn"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			thread, err := a.threadID(ctx, c, args[0])
			if err != nil {
				return err
			}
			done, err := c.Threads.RetryTurn(ctx, &arbev1.RetryTurnRequest{ThreadId: thread, TurnId: args[1]})
			if err != nil {
				return err
			}
			id := done.GetTurnId()
			return a.show(id, turnView{ID: id}, func() string { return "turn " + id + " of thread " + thread })
		}),
	}
}
