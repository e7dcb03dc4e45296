package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
)

func artifactList(a *app) *cobra.Command {
	var in place
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the artifacts of a thread or of a house, newest first",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			if err := in.find(ctx, a, c); err != nil {
				return err
			}
			var rows []row
			req := in.list()
			for req.PageSize = 200; ; {
				page, err := c.Artifacts.ListArtifacts(ctx, req)
				if err != nil {
					return err
				}
				for _, f := range page.GetArtifacts() {
					size := "-"
					if f.GetHasBytes() {
						size = fmt.Sprint(f.GetSize())
					}
					rows = append(rows, row{f.GetId(), viewArtifact(f), []string{
						f.GetId(), f.GetKind(), size, f.GetThreadId(), a.when(f.GetCreatedAt().AsTime()), first(f.GetLabel(), f.GetExternalId()),
					}})
				}
				if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
					return a.list([]string{"ID", "KIND", "BYTES", "THREAD", "MADE", "LABEL"}, rows)
				}
			}
		}),
	}
	a.placeFlags(cmd, &in)
	return cmd
}
