package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func envList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the environments of a house",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			got, err := c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: in})
			if err != nil {
				return err
			}
			environments, driver, err := allEnvironments(ctx, c, in)
			if err != nil {
				return err
			}
			rows := make([]row, len(environments))
			for i, e := range environments {
				note := ""
				if e.GetId() == got.GetHouse().GetDefaultEnvironmentId() {
					note = "default"
				}
				config := e.GetConfig()
				rows[i] = row{e.GetId(), viewEnvironment(e), []string{
					e.GetId(), e.GetName(), first(config.GetDriver(), driver), first(config.GetImage(), "-"), first(config.GetRepo(), "-"), note,
				}}
			}
			return a.list([]string{"ID", "NAME", "DRIVER", "IMAGE", "REPOSITORY", ""}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
