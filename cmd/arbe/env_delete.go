package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func envDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete ENV",
		Short: "Delete an environment that nothing uses",
		Long: "Delete an environment that no thread, no sandbox and no house uses any more. On a terminal it\n" +
			"asks first.",
		Args:              takes(1, 1, "one environment, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.environments),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			e, err := a.getEnvironment(ctx, c, args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "delete environment %s (%s)?", e.GetId(), entry.PrintableLine(e.GetName())); err != nil {
				return err
			}
			if _, err := c.Environments.DeleteEnvironment(ctx, &arbev1.DeleteEnvironmentRequest{Id: e.GetId()}); err != nil {
				return err
			}
			return a.show(e.GetId(), deletedView{e.GetId(), true}, func() string { return "deleted " + e.GetId() })
		}),
	}
	destroys(cmd, &yes, "")
	return cmd
}
