package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func tokenRenew(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "renew",
		Short: "Create another token like the one in ARBE_TOKEN",
		Long: "Create another token like the one in ARBE_TOKEN, valid for two hours, and print it. The old one\n" +
			"stays valid until it expires.",
		Example: "  export ARBE_TOKEN=$(arbe token renew -q)",
		Args:    takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			made, err := c.Credentials.RenewThreadToken(ctx, &arbev1.RenewThreadTokenRequest{})
			if err != nil {
				return err
			}
			return a.showToken(made.GetToken())
		}),
	}
}
