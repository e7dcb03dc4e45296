package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// keyRevoke ends an API key.
func keyRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "revoke ID",
		Short:             "End an API key for good",
		Long:              "End an API key for good: your own or, as an owner, any of the house. Revoking one that has ended succeeds.",
		Args:              takes(1, 1, "the id of one key, as arbe key list shows it"),
		ValidArgsFunction: a.proposesFirst(a.keys),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			if _, err := c.Credentials.RevokeAPIKey(ctx, &arbev1.RevokeAPIKeyRequest{Id: args[0]}); err != nil {
				return err
			}
			view := struct {
				ID      string `json:"id"`
				Revoked bool   `json:"revoked"`
			}{args[0], true}
			return a.show(view.ID, view, func() string { return "revoked " + view.ID })
		}),
	}
}

// keys proposes the keys of the house that were not revoked.
func (a *app) keys(ctx context.Context, c *arbe.Client) (found []cobra.Completion, err error) {
	keys, err := a.allKeys(ctx, c, "")
	for _, k := range keys {
		if k.GetRevokedAt() == nil {
			found = append(found, cobra.CompletionWithDesc(k.GetId(), oneLine(k.GetName())))
		}
	}
	return found, err
}
