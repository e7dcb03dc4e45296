package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// tokenRevoke has no default thread, because an irreversible action needs an explicit name.
func tokenRevoke(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "revoke THREAD",
		Short:             "End all tokens of a thread",
		Args:              takes(1, 1, "one thread, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.threadID(ctx, c, args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "end all tokens of thread %s?", id); err != nil {
				return err
			}
			if _, err := c.Credentials.RevokeThreadTokens(ctx, &arbev1.RevokeThreadTokensRequest{ThreadId: id}); err != nil {
				return err
			}
			view := revokedTokensView{id, true}
			return a.show(id, view, func() string { return "revoked the tokens of thread " + id })
		}),
	}
	destroys(cmd, &yes, "")
	return cmd
}

type revokedTokensView struct {
	ThreadID string `json:"thread_id"`
	Revoked  bool   `json:"revoked"`
}
