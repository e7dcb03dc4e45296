package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// artifactDelete removes an artifact.
func artifactDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "delete ID",
		Short:             "Remove an artifact with its bytes",
		Long:              "Remove an artifact with its bytes, which makes room in the house's quota. Deleting one that is gone succeeds.",
		Args:              takes(1, 1, "the id of one artifact, as arbe artifact list shows it"),
		ValidArgsFunction: a.proposesFirst(a.artifacts),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if err := a.confirm(ctx, yes, "delete artifact %s?", args[0]); err != nil {
				return err
			}
			if _, err := c.Artifacts.DeleteArtifact(ctx, &arbev1.DeleteArtifactRequest{Id: args[0]}); err != nil {
				return err
			}
			return a.show(args[0], deletedView{args[0], true}, func() string { return "deleted " + args[0] })
		}),
	}
	yesFlag(cmd, &yes)
	return cmd
}
