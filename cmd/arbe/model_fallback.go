package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func modelFallback(a *app) *cobra.Command {
	var house string
	var none, noCheck bool
	cmd := &cobra.Command{
		Use:   "fallback [MODEL…]",
		Short: "Show or set the models that bots ask while their own does not answer",
		Long: "Show the models that bots ask while the provider of their own does not answer or, with MODELs, set them: at most 5, as\n" +
			"provider/model, the preferred one first. Bots ask them after a minute without an answer, or when the provider asks for a\n" +
			"longer pause; the thread says so. --none sets no model. A model that its provider does not list is refused. Owners only.",
		Example: "  arbe model fallback openai/gpt-5.1 openrouter/qwen/qwen3-coder",
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if none && len(args) > 0 {
				return fault.New(fault.Invalid, "a model and --none are both given", "leave one out")
			}
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			view := fallbackModelsView{Models: []string{}}
			if none || len(args) > 0 {
				set, err := c.Models.SetFallbackModels(ctx, &arbev1.SetFallbackModelsRequest{HouseId: in, Models: args, SkipCheck: noCheck})
				if err != nil {
					return err
				}
				view.Models, view.Problem, view.Unverified = append(view.Models, set.GetModels()...), set.GetProblem(), set.GetUnverified()
			} else {
				list, err := c.Models.ListModels(ctx, &arbev1.ListModelsRequest{HouseId: in})
				if err != nil {
					return err
				}
				view.Models = append(view.Models, list.GetFallbackModels()...)
			}
			if err := a.show(strings.Join(view.Models, " "), view, func() string { return first(strings.Join(view.Models, "\n"), "none") }); err != nil {
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
	cmd.Flags().BoolVar(&none, "none", false, "ask no other model")
	noCheckFlag(cmd, &noCheck, "set them although their providers do not list them")
	cmd.ValidArgsFunction = a.proposes(a.modelRefs)
	return cmd
}

type fallbackModelsView struct {
	Models  []string `json:"fallback_models"`
	Problem string   `json:"problem,omitempty"`
	// Unverified says why it is unknown whether one of them exists.
	Unverified string `json:"unverified,omitempty"`
}
