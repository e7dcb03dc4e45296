package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func sandboxDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete SANDBOX",
		Short: "Delete a sandbox with its files",
		Long: "Delete a sandbox with its files and everything that runs in it. The threads on it get a new one with their\n" +
			"next command. Deleting a dead one succeeds. On a terminal it asks first.",
		Args:              takes(1, 1, "the id of one sandbox"),
		ValidArgsFunction: a.proposesFirst(a.sandboxes),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.find(ctx, c, sandboxKind, "", args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "delete sandbox %s with its files and everything that runs in it?", id); err != nil {
				return err
			}
			deleted, err := c.Sandboxes.DestroySandbox(ctx, &arbev1.DestroySandboxRequest{Id: id})
			if err != nil {
				return err
			}
			return a.show(id, viewSandbox(deleted.GetSandbox()), func() string { return "deleted " + id })
		}),
	}
	destroys(cmd, &yes, "")
	return cmd
}
