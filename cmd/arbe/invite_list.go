package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
)

func inviteList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the open invites of a house",
		Long:  "List the open invites of a house. Owners only. The links themselves are not shown again.",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			invites, err := allInvites(ctx, c, in)
			if err != nil {
				return err
			}
			rows := make([]row, len(invites))
			for i, v := range invites {
				rows[i] = row{v.GetId(), viewInvite(v), []string{
					v.GetId(), v.GetRole(), v.GetCreatedByName(), "until " + v.GetExpiresAt().AsTime().UTC().Format(time.RFC3339), v.GetNote(),
				}}
			}
			return a.list([]string{"ID", "ROLE", "BY", "VALID", "NOTE"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
