package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func secretList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the secrets of a house: names, ages and uses",
		Long:  "List the secrets of a house: the name, when the value was set and by whom, when the server last used it, and what\nuses it. Values are not shown.",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			list, err := c.Secrets.ListSecrets(ctx, &arbev1.ListSecretsRequest{HouseId: in})
			if err != nil {
				return err
			}
			rows := make([]row, len(list.GetSecrets()))
			for i, s := range list.GetSecrets() {
				used := "never"
				if s.GetUsedAt() != nil {
					used = a.when(s.GetUsedAt().AsTime())
				}
				rows[i] = row{s.GetName(), viewSecret(s), []string{s.GetName(), a.when(s.GetSetAt().AsTime()), first(s.GetSetByName(), "-"), used, usedBy(s)}}
			}
			return a.list([]string{"NAME", "SET", "BY", "LAST USED", "USED BY"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
