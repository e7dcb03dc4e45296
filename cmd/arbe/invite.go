package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func invite(a *app) *cobra.Command {
	return group(a, "invite", "List and revoke the invites of a house (arbe member invite makes one)", inviteList, inviteRevoke)
}

// allInvites returns the invites of a house that can still be used.
func allInvites(ctx context.Context, c *arbe.Client, house string) ([]*arbev1.Invite, error) {
	return pages(func(token string) ([]*arbev1.Invite, string, error) {
		page, err := c.Houses.ListInvites(ctx, &arbev1.ListInvitesRequest{HouseId: house, PageSize: 200, PageToken: token})
		return page.GetInvites(), page.GetNextPageToken(), err
	})
}

type inviteView struct {
	ID               string    `json:"id"`
	HouseID          string    `json:"house_id"`
	Role             string    `json:"role"`
	Note             string    `json:"note,omitempty"`
	CreatedByAgentID string    `json:"created_by_agent_id"`
	CreatedByName    string    `json:"created_by_name,omitempty"`
	CreatedAt        time.Time `json:"created_at"`
	ExpiresAt        time.Time `json:"expires_at"`
}

func viewInvite(i *arbev1.Invite) inviteView {
	return inviteView{
		ID: i.GetId(), HouseID: i.GetHouseId(), Role: i.GetRole(), Note: i.GetNote(), CreatedByAgentID: i.GetCreatedByAgentId(),
		CreatedByName: i.GetCreatedByName(), CreatedAt: i.GetCreatedAt().AsTime(), ExpiresAt: i.GetExpiresAt().AsTime(),
	}
}
