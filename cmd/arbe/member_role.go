package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func memberRole(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:               "role MEMBER owner|member",
		Short:             "Make a member an owner, or an owner a member",
		Long:              "Change the role of a person in a house. Owners only. The last owner stays an owner.",
		Args:              takes(2, 2, "a member and a role"),
		ValidArgsFunction: a.proposesFirst(a.agents),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			in, agent, err := a.findMember(ctx, c, house, args[0])
			if err != nil {
				return err
			}
			updated, err := c.Houses.UpdateMember(ctx, &arbev1.UpdateMemberRequest{HouseId: in, AgentId: agent, Role: args[1]})
			if err != nil {
				return err
			}
			m := updated.GetMember()
			return a.show(agent, viewMember(m), func() string {
				return fmt.Sprintf("%s is now %s", entry.PrintableLine(m.GetAgent().GetName()), m.GetRole())
			})
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
