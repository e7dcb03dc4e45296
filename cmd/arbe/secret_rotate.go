package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func secretRotate(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Encrypt the secrets of a house under a new key",
		Long: "Encrypt all secrets of a house under a new key of the house. The values stay the same, and nothing that uses them\n" +
			"notices. Owners only. The key of the whole installation is replaced with arbe secret-key rotate.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			done, err := c.Secrets.RotateSecretKey(ctx, &arbev1.RotateSecretKeyRequest{HouseId: in})
			if err != nil {
				return err
			}
			view := rotatedView{done.GetValues()}
			return a.show(in, view, func() string { return fmt.Sprintf("%d values are encrypted under a new key", view.Values) })
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}

type rotatedView struct {
	Values int32 `json:"values"`
}
