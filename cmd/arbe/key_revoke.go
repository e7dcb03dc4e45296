package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func keyRevoke(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "End an API key for good",
		Long: "End an API key for good: your own or, as an owner, any of the house. Revoking one that has ended succeeds.\n" +
			"The command line on arbe up's machine has its own key: if you revoke it, the next arbe up creates another.",
		Args:              takes(1, 1, "one key, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.keys),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.find(ctx, c, keyKind, "", args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, yes, "end API key %s for good?", id); err != nil {
				return err
			}
			if _, err := c.Credentials.RevokeAPIKey(ctx, &arbev1.RevokeAPIKeyRequest{Id: id}); err != nil {
				return err
			}
			return a.show(id, revokedView{id, true}, func() string { return "revoked " + id })
		}),
	}
	destroys(cmd, &yes, "")
	return cmd
}

// keys proposes the keys of the house that were not revoked.
func (a *app) keys(ctx context.Context, c *arbe.Client) (found []thing, err error) {
	keys, err := a.allKeys(ctx, c, "")
	for _, k := range keys {
		if k.GetRevokedAt() == nil {
			found = append(found, thing{k.GetId(), k.GetName()})
		}
	}
	return found, err
}
