package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func threadRename(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rename [THREAD] NAME",
		Short: "Rename a thread",
		Long:  "Rename a thread; an empty NAME removes its title. THREAD defaults to $ARBE_THREAD.",
		Example: "  arbe thread rename th4w7q2m9xab 'fix the build'\n" +
			"  arbe thread rename 'fix the build' 'fix the build for good'",
		Args:              takes(1, 2, "a thread and its new title"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			thread, name := "", args[len(args)-1]
			if len(args) == 2 {
				thread = args[0]
			}
			req := &arbev1.UpdateThreadRequest{Name: &name}
			if req.Id, err = a.threadID(ctx, c, thread); err != nil {
				return err
			}
			return a.updateThread(ctx, c, req, "renamed")
		}),
	}
}
