package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// agentCreate is the older way to create a bot. [botCreate] does the same with more settings.
func agentCreate(a *app) *cobra.Command {
	var req arbev1.CreateAgentRequest
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a bot in a house",
		Args:  takes(1, 1, "a name"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			req.Name = args[0]
			if req.HouseId, err = a.inHouse(ctx, c, req.HouseId); err != nil {
				return err
			}
			created, err := c.Agents.CreateAgent(ctx, &req)
			if err != nil {
				return err
			}
			made := created.GetAgent()
			return a.show(made.GetId(), export.ViewAgent(made), made.GetId)
		}),
	}
	a.houseFlag(cmd, &req.HouseId)
	cmd.Flags().StringVar(&req.Runtime, "runtime", "arbe", "program that does its work: arbe, in the server, or a coding agent, in a sandbox (see arbe bot runtimes)")
	return cmd
}
