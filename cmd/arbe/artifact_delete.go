package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func artifactDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "delete ARTIFACT",
		Short:             "Delete an artifact with its bytes",
		Long:              "Delete an artifact with its bytes, which makes room in the house's quota.",
		Args:              takes(1, 1, "one artifact, by id or label"),
		ValidArgsFunction: a.proposesFirst(a.artifacts),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.find(ctx, c, artifactKind, "", args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "delete artifact %s?", id); err != nil {
				return err
			}
			if _, err := c.Artifacts.DeleteArtifact(ctx, &arbev1.DeleteArtifactRequest{Id: id}); err != nil {
				return err
			}
			return a.show(id, deletedView{id, true}, func() string { return "deleted " + id })
		}),
	}
	destroys(cmd, &yes, "")
	return cmd
}
