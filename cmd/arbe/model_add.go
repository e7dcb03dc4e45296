package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func modelAdd(a *app) *cobra.Command {
	var req arbev1.SetModelEndpointRequest
	cmd := &cobra.Command{
		Use:   "add NAME URL",
		Short: "Add a server with models that speaks OpenAI's chat/completions",
		Long: "Add a server with models to a house, or change the one of this name. Its models are then NAME/model. The address\n" +
			"must be on the public internet; the operator can name others in the server's environment (ARBE_MODEL_PRIVATE_HOSTS).\n" +
			"Owners only, because the key is sent there.",
		Example: "  arbe secret set LAB_KEY < key\n" +
			"  arbe model add lab https://models.example.com/v1 --key LAB_KEY",
		Args: takes(2, 2, "a name and an address"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			req.Name, req.BaseUrl = args[0], args[1]
			if req.HouseId, err = a.inHouse(ctx, c, req.HouseId); err != nil {
				return err
			}
			made, err := c.Models.SetModelEndpoint(ctx, &req)
			if err != nil {
				return err
			}
			e := made.GetEndpoint()
			if err := a.show(e.GetName(), viewEndpoint(e, nil), func() string { return "models at " + e.GetBaseUrl() + " are " + e.GetName() + "/…" }); err != nil {
				return err
			}
			if e.GetProblem() != "" {
				a.say("%s", printable(e.GetProblem()))
			}
			return nil
		}),
	}
	a.houseFlag(cmd, &req.HouseId)
	cmd.Flags().StringVar(&req.SecretName, "key", "", "name of the secret that has its key (default: it wants none)")
	a.completes(cmd, "key", a.secretNames)
	return cmd
}
