package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func inviteRevoke(a *app) *cobra.Command {
	var yes bool
	var house string
	cmd := &cobra.Command{
		Use:               "revoke INVITE",
		Short:             "Revoke an invite",
		Long:              "Revoke an invite: its link stops working. Owners only. Revoking one that has ended succeeds.",
		Args:              takes(1, 1, "the id of one invite, as arbe invite list shows it"),
		ValidArgsFunction: a.proposesFirst(a.invites),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			id, err := a.find(ctx, c, inviteKind, in, args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "revoke invite %s?", id); err != nil {
				return err
			}
			if _, err := c.Houses.RevokeInvite(ctx, &arbev1.RevokeInviteRequest{HouseId: in, Id: id}); err != nil {
				return err
			}
			return a.show(id, revokedView{id, true}, func() string { return "revoked " + id })
		}),
	}
	a.houseFlag(cmd, &house)
	destroys(cmd, &yes, "")
	return cmd
}
