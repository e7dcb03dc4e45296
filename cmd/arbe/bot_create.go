package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func botCreate(a *app) *cobra.Command {
	var req arbev1.CreateBotRequest
	var tools, ask []string
	cmd := &cobra.Command{
		Use:   "create HANDLE",
		Short: "Create a bot",
		Long: "Create a bot, which people mention as @HANDLE. It answers mentions, and direct messages to it; arbe bot edit\n" +
			"changes that. Only an owner of the house may create bots.",
		Example: "  arbe bot create reviewer --model anthropic/claude-sonnet-4-5 --instructions 'Review what changed.'\n" +
			"  arbe bot create reviewer --instructions - < reviewer.md",
		Args: takes(1, 1, "a handle"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			req.Handle = args[0]
			if req.Instructions == "-" {
				if req.Instructions, err = a.text(ctx, "-"); err != nil {
					return err
				}
			}
			if tools != nil {
				req.Tools = namesIn(tools) // --tools "" leaves it no tools
			}
			req.Ask = namesIn(ask)
			if req.HouseId, err = a.inHouse(ctx, c, req.HouseId); err != nil {
				return err
			}
			created, err := c.Bots.CreateBot(ctx, &req)
			if err != nil {
				return err
			}
			a.note(created.GetNote())
			b := created.GetBot()
			a.unverified(created.GetUnverifiedModel())
			return a.show(b.GetId(), viewBot(b), func() string { return "@" + b.GetHandle() + " " + b.GetId() })
		}),
	}
	f := cmd.Flags()
	a.houseFlag(cmd, &req.HouseId)
	f.StringVar(&req.Name, "name", "", "its name, as pages show it (default: the handle)")
	f.StringVar(&req.Instructions, "instructions", "", "its instructions for each turn; - reads them from stdin")
	f.StringVar(&req.Model, "model", "", "provider/model (default: the house's)")
	noCheckFlag(cmd, &req.SkipModelCheck, "set the model although its provider does not list it")
	f.StringVar(&req.Think, "think", "", "how hard its model thinks: "+entry.EffortWords+" (default: the provider's)")
	f.StringVar(&req.Runtime, "runtime", "arbe", "program that does its work: arbe, in the server, or a coding agent, in a sandbox (see arbe bot runtimes)")
	f.StringSliceVar(&tools, "tools", nil, "tools that it may use, separated by commas (default: all)")
	f.StringSliceVar(&ask, "ask", nil, "tools for which it needs a person's approval, besides those of the house (default: none)")
	a.completes(cmd, "think", efforts)
	for _, flag := range []string{"tools", "ask"} {
		a.completes(cmd, flag, func(context.Context, *arbe.Client) (found []thing, err error) {
			for _, tool := range entry.Tools {
				found = append(found, thing{id: tool})
			}
			return found, nil
		})
	}
	return cmd
}
