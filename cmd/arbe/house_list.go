package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
)

func houseList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List your houses",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			houses, err := allHouses(ctx, c)
			if err != nil {
				return err
			}
			rows := make([]row, len(houses))
			for i, h := range houses {
				rows[i] = row{h.GetId(), viewHouse(h), []string{h.GetId(), h.GetName(), h.GetRole(), a.when(h.GetCreatedAt().AsTime())}}
			}
			return a.list([]string{"ID", "NAME", "YOU ARE", "CREATED"}, rows)
		}),
	}
}
