package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func memberRemove(a *app) *cobra.Command {
	var house string
	var yes bool
	cmd := &cobra.Command{
		Use:   "remove MEMBER",
		Short: "Remove a person or a bot from a house",
		Long: "Remove a person or a bot from a house. Owners remove anyone, other members only themselves. Credentials for the house end.\n" +
			"On a terminal it asks first.",
		Args:              takes(1, 1, "one member, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.agents),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			in, agent, err := a.findMember(ctx, c, house, args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "remove %s from house %s?", args[0], in); err != nil {
				return err
			}
			if _, err := c.Houses.RemoveMember(ctx, &arbev1.RemoveMemberRequest{HouseId: in, AgentId: agent}); err != nil {
				return err
			}
			view := removedMemberView{agent, true}
			return a.show(agent, view, func() string { return "removed " + agent })
		}),
	}
	a.houseFlag(cmd, &house)
	destroys(cmd, &yes, "")
	return cmd
}

type removedMemberView struct {
	ID      string `json:"id"`
	Removed bool   `json:"removed"`
}
