package main

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func keyList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the API keys of a house, and your own for all houses",
		Long: "List the API keys of a house, including expired and revoked ones, and your own keys that are valid for all your\n" +
			"houses, such as the one of arbe up. With --house, list only that house's keys. The server has no copy of\n" +
			"the keys themselves.",
		Args: takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			keys, err := a.allKeys(ctx, c, house)
			if err != nil {
				return err
			}
			rows := make([]row, len(keys))
			for i, k := range keys {
				valid := "valid"
				switch {
				case k.GetRevokedAt() != nil:
					valid = "revoked " + a.when(k.GetRevokedAt().AsTime())
				case k.GetExpiresAt() != nil && k.GetExpiresAt().AsTime().Before(time.Now()):
					valid = "expired " + a.when(k.GetExpiresAt().AsTime())
				case k.GetExpiresAt() != nil:
					valid = "until " + k.GetExpiresAt().AsTime().UTC().Format(time.RFC3339)
				}
				rows[i] = row{k.GetId(), viewKey(k), []string{
					k.GetId(), k.GetName(), first(k.GetHouseId(), "all houses"), k.GetAgentId(), first(k.GetCreatedBy(), "unknown"), valid, a.whenever(k.GetLastUsedAt()),
				}}
			}
			return a.list([]string{"ID", "NAME", "HOUSE", "AGENT", "CREATED BY", "VALID", "LAST USED"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}

// allKeys returns the API keys of a house and, unless a house is named, the caller's keys for all houses.
func (a *app) allKeys(ctx context.Context, c *arbe.Client, house string) ([]*arbev1.APIKey, error) {
	in, err := a.inHouse(ctx, c, house)
	if err != nil {
		return nil, err
	}
	keys, err := keysOf(ctx, c, in)
	if err != nil || house != "" {
		return keys, err
	}
	own, err := keysOf(ctx, c, "")
	if connect.CodeOf(err) == connect.CodePermissionDenied {
		err = nil // ignored, because the credential in use is limited to a house
	}
	return append(keys, own...), err
}

// whenever is like [app.when], for a time that may be unset.
func (a *app) whenever(t *timestamppb.Timestamp) string {
	if t == nil {
		return "never"
	}
	return a.when(t.AsTime())
}
