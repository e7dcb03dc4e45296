package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func houseModel(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "model MODEL",
		Short: "Set the model of a house's bots that name none",
		Long: "Set the model of a house's bots that name none, as provider/model. An empty MODEL is the installation's default.\n" +
			"Owners only.",
		Example: "  arbe house model anthropic/claude-sonnet-4-5",
		Args:    takes(1, 1, "a model"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			updated, err := c.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: id, DefaultModel: &args[0]})
			if err != nil {
				return err
			}
			h := updated.GetHouse()
			return a.show(h.GetId(), viewHouse(h), func() string {
				return h.GetId() + " uses " + first(h.GetDefaultModel(), "the installation's default model")
			})
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
