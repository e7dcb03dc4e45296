package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
)

func memberList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the members of a house with their roles",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			members, err := allMembers(ctx, c, in)
			if err != nil {
				return err
			}
			rows := make([]row, len(members))
			for i, m := range members {
				agent := m.GetAgent()
				rows[i] = row{agent.GetId(), viewMember(m), []string{
					agent.GetId(), agent.GetName(), first(agent.GetRuntime(), agent.GetKind()), m.GetRole(), a.when(m.GetJoinedAt().AsTime()),
				}}
			}
			return a.list([]string{"ID", "NAME", "KIND", "ROLE", "JOINED"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
