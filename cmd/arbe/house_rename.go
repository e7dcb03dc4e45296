package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func houseRename(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "rename [HOUSE] NAME",
		Short:             "Rename a house",
		Long:              "Rename a house. Owners only. HOUSE defaults to $ARBE_HOUSE, or your only house.",
		Args:              takes(1, 2, "a house and its new name"),
		ValidArgsFunction: a.proposesFirst(a.houses),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			ref, name := "", args[len(args)-1]
			if len(args) == 2 {
				ref = args[0]
			}
			id, err := a.inHouse(ctx, c, ref)
			if err != nil {
				return err
			}
			updated, err := c.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: id, Name: &name})
			if err != nil {
				return err
			}
			h := updated.GetHouse()
			return a.show(h.GetId(), viewHouse(h), func() string { return fmt.Sprintf("renamed %s (%s)", h.GetId(), entry.PrintableLine(h.GetName())) })
		}),
	}
}
