package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
)

func envShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "show ENV",
		Short:             "Show an environment, as arbe env create --from reads it",
		Args:              takes(1, 1, "one environment, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.environments),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			e, err := a.getEnvironment(ctx, c, args[0])
			if err != nil {
				return err
			}
			text, err := environmentFile{e.GetName(), recipeOf(e.GetConfig())}.text()
			if err != nil {
				return err
			}
			return a.show(e.GetId(), viewEnvironment(e), func() string { return entry.Printable(string(text)) })
		}),
	}
}
