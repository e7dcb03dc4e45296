package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func houseDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete HOUSE",
		Short: "Delete a house with everything in it",
		Long: "Delete a house for good, with everything in it: threads, bots, environments, secrets and artifacts. Owners only.\n" +
			"At once, nobody is in it any more. Its sandboxes are destroyed, and their files are not saved. On a terminal it\n" +
			"asks first. The first house of an installation cannot be deleted.",
		Args:              takes(1, 1, "one house, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.houses),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.inHouse(ctx, c, args[0])
			if err != nil {
				return err
			}
			got, err := c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: id})
			if err != nil {
				return err
			}
			name := got.GetHouse().GetName()
			if err := a.confirm(ctx, yes, "delete the house %s (%s) with everything in it, for all its members?", entry.PrintableLine(name), id); err != nil {
				return err
			}
			if _, err := c.Houses.DeleteHouse(ctx, &arbev1.DeleteHouseRequest{Id: id, Name: name}); err != nil {
				return err
			}
			return a.show(id, deletedView{id, true}, func() string { return "deleted " + id + " (" + entry.PrintableLine(name) + ")" })
		}),
	}
	destroys(cmd, &yes, "")
	return cmd
}
