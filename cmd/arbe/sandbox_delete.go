package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func sandboxDelete(a *app) *cobra.Command {
	var yes, discard bool
	cmd := &cobra.Command{
		Use:   "delete SANDBOX",
		Short: "Delete a sandbox, after saving its files",
		Long: "Delete a sandbox and everything that runs in it. Its files are saved first: the changes of its repositories since\n" +
			"their commits, or other files up to 64 MB. The threads on it get a new one with their next command, with these\n" +
			"files. If they cannot be saved, nothing is deleted, unless you --discard them. Deleting a dead one succeeds. On a\n" +
			"terminal it asks first.",
		Args:              takes(1, 1, "the id of one sandbox"),
		ValidArgsFunction: a.proposesFirst(a.sandboxes),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.find(ctx, c, sandboxKind, "", args[0])
			if err != nil {
				return err
			}
			what := "delete sandbox %s and everything that runs in it? Its files are saved"
			if discard {
				what = "delete sandbox %s with its files and everything that runs in it?"
			}
			if err := a.confirm(ctx, yes, what, id); err != nil {
				return err
			}
			deleted, err := c.Sandboxes.DestroySandbox(ctx, &arbev1.DestroySandboxRequest{Id: id, Discard: discard})
			if err != nil {
				return err
			}
			return a.show(id, viewSandbox(deleted.GetSandbox()), func() string { return "deleted " + id })
		}),
	}
	cmd.Flags().BoolVar(&discard, "discard", false, "do not save its files")
	destroys(cmd, &yes, "")
	return cmd
}
