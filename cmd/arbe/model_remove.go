package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func modelRemove(a *app) *cobra.Command {
	var house string
	var yes bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a server with models that the house added",
		Long: "Remove a server with models that the house added. Its key goes with it, if it was given with\n" +
			"the server and nothing else uses it. A secret of yours stays. On a terminal it asks first.",
		Args:              takes(1, 1, "one name"),
		ValidArgsFunction: a.proposesFirst(a.ownEndpoints),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "remove the models of %s?", entry.PrintableLine(args[0])); err != nil {
				return err
			}
			if _, err := c.Models.DeleteModelEndpoint(ctx, &arbev1.DeleteModelEndpointRequest{HouseId: in, Name: args[0]}); err != nil {
				return err
			}
			view := removedEndpointView{args[0], true}
			return a.show(args[0], view, func() string { return "removed " + args[0] })
		}),
	}
	a.houseFlag(cmd, &house)
	destroys(cmd, &yes, "")
	return cmd
}

type removedEndpointView struct {
	Name    string `json:"name"`
	Removed bool   `json:"removed"`
}
