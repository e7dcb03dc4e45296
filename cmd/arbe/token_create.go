package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func tokenCreate(a *app) *cobra.Command {
	var req arbev1.CreateThreadTokenRequest
	cmd := &cobra.Command{
		Use:   "create [THREAD]",
		Short: "Create a token for one thread",
		Long: "Create a token with which a program reads and appends to one thread's log, and nothing else, and print\n" +
			"it. Messages sent with it wake no bot. It is valid for two hours, but only while the thread is open; arbe token renew\n" + "creates the next one.\n" +
			"An owner may create one for a bot of the house.",
		Args:              takes(0, 1, "at most one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			if req.ThreadId, err = a.threadID(ctx, c, firstOf(args)); err != nil {
				return err
			}
			if req.AgentId != "" {
				if req.AgentId, err = a.find(ctx, c, agentKind, "", req.AgentId); err != nil {
					return err
				}
			}
			made, err := c.Credentials.CreateThreadToken(ctx, &req)
			if err != nil {
				return err
			}
			return a.showToken(made.GetToken())
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&req.AgentId, "agent", "", "bot that will use it, by id or name (default: you)")
	a.completes(cmd, "agent", a.agents)
	flags.StringSliceVar(&req.Scopes, "scope", nil, "stream:read or stream:write (may be repeated; default both)")
	return cmd
}
