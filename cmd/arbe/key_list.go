package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// keyList lists the API keys of a house.
func keyList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the API keys of a house",
		Long:  "List the API keys of a house, those that have ended too. The keys themselves are kept nowhere.",
		Args:  takes(0, 0, ""),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
			keys, err := a.allKeys(ctx, c, house)
			if err != nil {
				return err
			}
			rows := make([]row, len(keys))
			for i, k := range keys {
				state := "good"
				switch {
				case k.GetRevokedAt() != nil:
					state = "revoked " + a.when(k.GetRevokedAt().AsTime())
				case k.GetExpiresAt() != nil && k.GetExpiresAt().AsTime().Before(time.Now()):
					state = "expired " + a.when(k.GetExpiresAt().AsTime())
				case k.GetExpiresAt() != nil:
					state = "until " + k.GetExpiresAt().AsTime().UTC().Format(time.RFC3339)
				}
				rows[i] = row{k.GetId(), viewKey(k), []string{k.GetId(), k.GetName(), k.GetAgentId(), state, a.whenever(k.GetLastUsedAt())}}
			}
			return a.list([]string{"ID", "NAME", "AGENT", "STATE", "LAST USED"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	return cmd
}

// allKeys are the API keys of a house.
func (a *app) allKeys(ctx context.Context, c *arbe.Client, house string) (all []*arbev1.APIKey, err error) {
	if house, err = a.inHouse(ctx, c, house); err != nil {
		return nil, err
	}
	for req := (&arbev1.ListAPIKeysRequest{HouseId: house, PageSize: 200}); ; {
		page, err := c.Credentials.ListAPIKeys(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetApiKeys()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

// whenever is when for a time that may never have come.
func (a *app) whenever(t *timestamppb.Timestamp) string {
	if t == nil {
		return "never"
	}
	return a.when(t.AsTime())
}
