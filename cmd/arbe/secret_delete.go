package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func secretDelete(a *app) *cobra.Command {
	var house string
	var yes, force bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a secret that nothing uses",
		Long: "Delete a secret. If something uses it, the secret stays, and the error says what uses it; --force deletes it anyway. On a\n" +
			"terminal it asks first.",
		Args:              takes(1, 1, "one secret, by name"),
		ValidArgsFunction: a.proposesFirst(a.secretNames),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "delete secret %s?", entry.PrintableLine(args[0])); err != nil {
				return err
			}
			if _, err := c.Secrets.DeleteSecret(ctx, &arbev1.DeleteSecretRequest{HouseId: in, Name: args[0], Force: force}); err != nil {
				return err
			}
			view := deletedSecretView{args[0], true}
			return a.show(args[0], view, func() string { return "deleted " + args[0] })
		}),
	}
	a.houseFlag(cmd, &house)
	destroys(cmd, &yes, "")
	cmd.Flags().BoolVar(&force, "force", false, "delete it even if something uses it")
	return cmd
}

type deletedSecretView struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}
