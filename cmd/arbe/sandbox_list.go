package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func sandboxList(a *app) *cobra.Command {
	var house string
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sandboxes of a house, newest first",
		Long:  "List the sandboxes of a house, newest first: those that exist or, with --all, the dead ones too.",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			if limit < 0 {
				return fault.New(fault.Invalid, "--limit is negative", "give how many sandboxes to list, or 0 for all")
			}
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			var rows []row
			for req := (&arbev1.ListSandboxesRequest{HouseId: in, PageSize: 200}); ; {
				page, err := c.Sandboxes.ListSandboxes(ctx, req)
				if err != nil {
					return err
				}
				for _, s := range page.GetSandboxes() {
					if limit > 0 && len(rows) == limit {
						a.say("there are more; --limit 0 lists all")
						return a.list(sandboxHeader, rows)
					}
					if all || s.GetStatus() != "dead" {
						rows = append(rows, row{s.GetId(), viewSandbox(s), []string{
							s.GetId(), s.GetStatus(), s.GetEnvironmentId(), s.GetProvider(), a.when(s.GetCreatedAt().AsTime()),
						}})
					}
				}
				if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
					return a.list(sandboxHeader, rows)
				}
			}
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.Flags().BoolVar(&all, "all", false, "list dead ones too")
	cmd.Flags().IntVar(&limit, "limit", 50, "the most to list; 0 means all")
	return cmd
}

var sandboxHeader = []string{"ID", "STATUS", "ENVIRONMENT", "DRIVER", "CREATED"}
