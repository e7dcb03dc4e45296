package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func authRename(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rename NAME",
		Short: "Change your own name",
		Long:  "Change your own name, which others see in all your houses, and at everything that you wrote.",
		Args:  takes(1, 1, "your name"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			updated, err := c.Agents.UpdateProfile(ctx, &arbev1.UpdateProfileRequest{Name: args[0]})
			if err != nil {
				return err
			}
			view := export.ViewAgent(updated.GetAgent())
			return a.show(view.ID, view, func() string { return "you are now " + entry.PrintableLine(view.Name) })
		}),
	}
}
