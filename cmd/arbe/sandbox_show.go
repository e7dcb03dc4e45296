package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func sandboxShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "show SANDBOX",
		Short:             "Show a sandbox",
		Args:              takes(1, 1, "the id of one sandbox"),
		ValidArgsFunction: a.proposesFirst(a.sandboxes),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.find(ctx, c, sandboxKind, "", args[0])
			if err != nil {
				return err
			}
			got, err := c.Sandboxes.GetSandbox(ctx, &arbev1.GetSandboxRequest{Id: id})
			if err != nil {
				return err
			}
			s := got.GetSandbox()
			return a.show(s.GetId(), viewSandbox(s), func() string {
				var b strings.Builder
				w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
				fmt.Fprintf(w, "sandbox\t%s\nstatus\t%s\nenvironment\t%s\ndriver\t%s\nhouse\t%s\ncreated\t%s\n",
					s.GetId(), s.GetStatus(), s.GetEnvironmentId(), s.GetProvider(), s.GetHouseId(), a.when(s.GetCreatedAt().AsTime()))
				if s.GetDestroyedAt() != nil {
					fmt.Fprintf(w, "deleted\t%s\n", a.when(s.GetDestroyedAt().AsTime()))
				}
				w.Flush()
				return b.String()
			})
		}),
	}
}
