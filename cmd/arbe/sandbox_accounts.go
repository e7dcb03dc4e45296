package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

type sandboxAccountView struct {
	Driver     string `json:"driver"`
	SecretName string `json:"secret_name"`
	// Set reports that the house has set its key, and Operator that the operator has an account too.
	Set       bool  `json:"set"`
	Operator  bool  `json:"operator"`
	Sandboxes int32 `json:"sandboxes"`
}

// newIn says in whose account new sandboxes are created.
func newIn(a *arbev1.SandboxAccount) string {
	switch {
	case a.GetSet():
		return "the house's own"
	case a.GetOperator():
		return "the operator's"
	}
	return "none"
}

func sandboxAccounts(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "accounts",
		Short: "List the provider accounts in which a house has its sandboxes",
		Long: "List the drivers whose provider a house can use with its own key, and say in whose account new sandboxes are created.\n\n" +
			"An owner gives the house its own account by setting the secret with its key, which is tried first: arbe secret set DAYTONA_API_KEY.\n" +
			"Existing sandboxes stay where they are. While some are in the house's account, only another key of the same account can replace\n" +
			"its key. Deleting the key anyway (--force) makes them unreachable until it is set again.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			got, err := c.Sandboxes.ListSandboxAccounts(ctx, &arbev1.ListSandboxAccountsRequest{HouseId: in})
			if err != nil {
				return err
			}
			var rows []row
			for _, one := range got.GetAccounts() {
				view := sandboxAccountView{one.GetDriver(), one.GetSecretName(), one.GetSet(), one.GetOperator(), one.GetSandboxes()}
				rows = append(rows, row{one.GetDriver(), view, []string{one.GetDriver(), newIn(one), one.GetSecretName(), strconv.Itoa(int(one.GetSandboxes()))}})
			}
			return a.list([]string{"DRIVER", "ACCOUNT", "KEY", "OWN SANDBOXES"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
