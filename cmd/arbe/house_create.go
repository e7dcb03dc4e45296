package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func houseCreate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Create a house, which you own",
		Long:  "Create a house with a default environment. You are its owner and only member until you invite others.",
		Args:  takes(1, 1, "a name"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			created, err := c.Houses.CreateHouse(ctx, &arbev1.CreateHouseRequest{Name: args[0]})
			if err != nil {
				return err
			}
			h := created.GetHouse()
			return a.show(h.GetId(), viewHouse(h), h.GetId)
		}),
	}
}
