package main

import (
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

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
