package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// tokenRevoke ends all tokens of a thread. It takes no default thread: what cannot be undone is named.
func tokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "revoke THREAD",
		Short:             "End all tokens of a thread",
		Args:              takes(1, 1, "the id of one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if _, err := c.Credentials.RevokeThreadTokens(ctx, &arbev1.RevokeThreadTokensRequest{ThreadId: args[0]}); err != nil {
				return err
			}
			view := struct {
				ThreadID string `json:"thread_id"`
				Revoked  bool   `json:"revoked"`
			}{args[0], true}
			return a.show(view.ThreadID, view, func() string { return "revoked the tokens of thread " + view.ThreadID })
		}),
	}
}
