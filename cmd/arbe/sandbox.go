package main

import (
	"time"

	"github.com/spf13/cobra"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func sandbox(a *app) *cobra.Command {
	return group(a, "sandbox", "List, show and delete sandboxes", sandboxList, sandboxShow, sandboxDelete)
}

type sandboxView struct {
	ID            string     `json:"id"`
	HouseID       string     `json:"house_id"`
	EnvironmentID string     `json:"environment_id"`
	Provider      string     `json:"provider"`
	Status        string     `json:"status"`
	Ephemeral     bool       `json:"ephemeral,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	DestroyedAt   *time.Time `json:"destroyed_at,omitempty"`
}

func viewSandbox(s *arbev1.Sandbox) sandboxView {
	return sandboxView{
		ID: s.GetId(), HouseID: s.GetHouseId(), EnvironmentID: s.GetEnvironmentId(), Provider: s.GetProvider(), Status: s.GetStatus(),
		Ephemeral: s.GetEphemeral(), CreatedAt: s.GetCreatedAt().AsTime(), DestroyedAt: optional(s.GetDestroyedAt()),
	}
}
