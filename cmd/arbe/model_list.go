package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
)

func modelList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List where a house finds models, and which one is its default",
		Long: "List where a house finds models: through its own keys (the secrets ANTHROPIC_API_KEY, OPENAI_API_KEY,\n" +
			"OPENROUTER_API_KEY and GEMINI_API_KEY), at servers that it added, and what the installation offers. Keys are not\n" +
			"tried. The default, which bots use that name no model, is marked.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			list, err := a.models(ctx, c, house)
			if err != nil {
				return err
			}
			rows := make([]row, len(list.GetEndpoints()))
			for i, e := range list.GetEndpoints() {
				models := first(strings.Join(e.GetModels(), ", "), e.GetDefaultModel(), "-")
				note := e.GetProblem()
				if ref, is := strings.CutPrefix(list.GetDefaultModel(), e.GetName()+"/"); is {
					note = first(note, "default: "+ref)
				}
				rows[i] = row{e.GetName(), viewEndpoint(e, list), []string{e.GetName(), e.GetSource(), models, note}}
			}
			if err := a.list([]string{"NAME", "FROM", "MODELS", ""}, rows); err != nil {
				return err
			}
			if problem := list.GetProblem(); problem != "" {
				a.say("%s", printable(problem))
			}
			return nil
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}
