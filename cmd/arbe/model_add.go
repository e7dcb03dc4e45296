package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func modelAdd(a *app) *cobra.Command {
	var req arbev1.SetModelEndpointRequest
	cmd := &cobra.Command{
		Use:   "add NAME URL",
		Short: "Add a server with models",
		Long: "Add a server with models to a house, or change the one of this name. Its models are then NAME/model. The address\n" +
			"must be on the public internet; the operator can name others in the server's environment (ARBE_MODEL_PRIVATE_HOSTS).\n" +
			"Owners only, because the key is sent there.\n\n" +
			"--dialect sets what the server speaks: chat (OpenAI's chat/completions), messages (Anthropic's), responses (OpenAI's) or\n" +
			"gemini (Google's). By default arbe infers it from the address (known providers, and addresses that end in\n" +
			"/anthropic), else chat. arbe first tries the server and its key, which costs nothing.",
		Example: "  arbe secret set LAB_KEY < key\n" +
			"  arbe model add lab https://models.example.com/v1 --key LAB_KEY\n" +
			"  arbe model add deepseek https://api.deepseek.com/anthropic --key DEEPSEEK_KEY",
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
			view := addedEndpointView{viewEndpoint(e, nil), viewCheck(made.GetCheck())}
			if err := a.show(e.GetName(), view, func() string {
				return view.Check.after("models at " + e.GetBaseUrl() + " are " + e.GetName() + "/… (" + e.GetDialect() + ")")
			}); err != nil {
				return err
			}
			if e.GetProblem() != "" {
				a.say("%s", entry.Printable(e.GetProblem()))
			}
			return nil
		}),
	}
	a.houseFlag(cmd, &req.HouseId)
	cmd.Flags().StringVar(&req.SecretName, "key", "", "name of the secret that has its key (default: no key)")
	a.completes(cmd, "key", a.secretNames)
	cmd.Flags().StringVar(&req.Dialect, "dialect", "", "protocol that it speaks: chat, messages, responses or gemini")
	a.completes(cmd, "dialect", func(context.Context, *arbe.Client) ([]thing, error) {
		return []thing{{id: "chat"}, {id: "messages"}, {id: "responses"}, {id: "gemini"}}, nil
	})
	noCheckFlag(cmd, &req.SkipCheck, "add it without trying it")
	return cmd
}

type addedEndpointView struct {
	endpointView
	Check *checkView `json:"check,omitempty"`
}
