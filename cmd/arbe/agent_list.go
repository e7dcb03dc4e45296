package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
)

func agentList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the people and bots of a house",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			agents, err := allAgents(ctx, c, in)
			if err != nil {
				return err
			}
			rows := make([]row, len(agents))
			for i, g := range agents {
				rows[i] = row{g.GetId(), export.ViewAgent(g), []string{g.GetId(), g.GetName(), g.GetKind(), g.GetRuntime(), a.when(g.GetCreatedAt().AsTime())}}
			}
			return a.list([]string{"ID", "NAME", "KIND", "RUNTIME", "CREATED"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
