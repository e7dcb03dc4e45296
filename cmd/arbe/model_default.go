package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func modelDefault(a *app) *cobra.Command {
	var house string
	var reset, noCheck bool
	cmd := &cobra.Command{
		Use:   "default [MODEL]",
		Short: "Show or set the model of bots that name none",
		Long: "Show the model of bots that name none or, with MODEL, set it: provider/model, as arbe model list shows. With\n" +
			"--reset the house follows the installation. A model that its provider does not list is refused. Owners only.",
		Example: "  arbe model default anthropic/claude-sonnet-4-6",
		Args:    takes(0, 1, "at most one model, as provider/model"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if reset && len(args) > 0 {
				return fault.New(fault.Invalid, "a model and --reset are both given", "leave one out")
			}
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			var view defaultModelView
			if reset || len(args) > 0 {
				set, err := c.Models.SetDefaultModel(ctx, &arbev1.SetDefaultModelRequest{HouseId: in, Model: firstOf(args), SkipCheck: noCheck})
				if err != nil {
					return err
				}
				view.Model, view.Problem, view.Unverified = set.GetDefaultModel(), set.GetProblem(), set.GetUnverified()
			} else {
				list, err := c.Models.ListModels(ctx, &arbev1.ListModelsRequest{HouseId: in})
				if err != nil {
					return err
				}
				view.Model, view.Problem = list.GetDefaultModel(), list.GetProblem()
			}
			if err := a.show(view.Model, view, func() string { return first(view.Model, "none") }); err != nil {
				return err
			}
			if view.Problem != "" {
				a.say("%s", entry.Printable(view.Problem))
			} else {
				a.unverified(view.Unverified)
			}
			return nil
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.Flags().BoolVar(&reset, "reset", false, "follow the installation")
	noCheckFlag(cmd, &noCheck, "set it although its provider does not list it")
	cmd.ValidArgsFunction = a.proposesFirst(a.modelRefs)
	return cmd
}

type defaultModelView struct {
	Model   string `json:"default_model"`
	Problem string `json:"problem,omitempty"`
	// Unverified says why it is unknown whether the model exists.
	Unverified string `json:"unverified,omitempty"`
}
